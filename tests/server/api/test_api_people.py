"""Methods, clients, invitations and health."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import SITES, Coordinator, refused

from tideline.algorithms import METHODS
from tideline.core.errors import IdentityRefused, Unreachable


def test_every_method_is_listed(coordinator: Coordinator) -> None:
    """GET /algorithms names each method of the registry with a summary and its source."""
    listed = coordinator.get("/algorithms").json()
    assert [m["name"] for m in listed] == [name for name, _ in METHODS]
    assert all(m["summary"] and m["paper"] for m in listed)


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_a_method_shows_its_settings_and_its_contract(coordinator: Coordinator, name: str) -> None:
    """Settings come with defaults and documentation; the contract says every clause in words too."""
    shown = coordinator.get(f"/algorithms/{name}").json()
    rounds = next(s for s in shown["settings"] if s["name"] == "rounds")
    assert rounds["low"] in (0, 1) and rounds["doc"]
    contract = coordinator.get(f"/algorithms/{name}/contract").json()
    assert len(contract["contract"]) == len(contract["sentences"]) > 0
    assert contract["digest"] == shown["digest"]


def test_a_presets_contract(coordinator: Coordinator) -> None:
    """?preset= gives the contract of a preset, and a wrong one a guess."""
    assert coordinator.get("/algorithms/fedavg/contract?preset=tiny").status_code == 200
    error = refused(coordinator.get("/algorithms/fedavg/contract?preset=tini"), 422, "ConfigRefused", "preset")
    assert "did you mean tiny?" in error["todo"]


@pytest.mark.parametrize("tail", ["", "/contract"])
def test_an_unknown_method_is_not_found(coordinator: Coordinator, tail: str) -> None:
    """A misspelt method is answered with the names that exist and a guess."""
    error = refused(coordinator.get(f"/algorithms/fedavgg{tail}"), 404, "NotFound", "method")
    assert "fedprox" in error["todo"] and "did you mean fedavg?" in error["todo"]


def test_clients_are_listed_without_their_secrets(coordinator: Coordinator) -> None:
    """GET /clients tells names, roles, labels and when each was heard; never a credential or its hash."""
    listed = coordinator.get("/clients").json()
    assert [c["name"] for c in listed] == list(SITES)
    assert set(listed[0]) == {"name", "roles", "labels", "version", "enrolled", "seen"}


def test_an_invitation_admits_an_agent_once(coordinator: Coordinator) -> None:
    """The token enrols the named agent, with its labels, and experiments can select by them."""
    answer = coordinator.post("/invites", {"name": "dora", "labels": {"country": "nl"}, "ttl_seconds": 60})
    invited, office = answer.json(), coordinator.federation.office
    assert (answer.status_code, invited["expires"]) == (201, 60.0)
    office.enrol(invited["token"], "dora", "a secret", ("source",), "1")
    with pytest.raises(IdentityRefused):
        office.enrol(invited["token"], "emil", "a secret", ("source",), "1")
    run = coordinator.start(roster={}, select=[{"labels": {"country": "nl"}, "role": "source"}])
    assert [c["name"] for c in coordinator.get(f"/runs/{run}").json()["clients"]] == ["dora"]


def test_an_invitation_expires(coordinator: Coordinator) -> None:
    """After its time a token admits nobody."""
    token = coordinator.post("/invites", {"ttl_seconds": 5}).json()["token"]
    coordinator.federation.clock.advance(6.0)
    with pytest.raises(IdentityRefused, match="expired"):
        coordinator.federation.office.enrol(token, "dora", "a secret", ("source",), "1")


WRONG: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"name": "anna"}, 409, "Refused", None),
    ({"name": "a/b"}, 422, "ConfigRefused", "name"),
    ({"name": 3}, 422, "ConfigRefused", "name"),
    ({"ttl_seconds": 0}, 422, "ConfigRefused", "ttl_seconds"),
    ({"ttl_seconds": -5}, 422, "ConfigRefused", "ttl_seconds"),
    ({"ttl_seconds": 1e9}, 422, "ConfigRefused", "ttl_seconds"),
    ({"ttl": 60}, 422, "ConfigRefused", "ttl"),
    ({"labels": {"country": 31}}, 422, "ConfigRefused", "labels.country"),
]


@pytest.mark.parametrize(("body", "status", "kind", "path"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_invitations_are_refused(
    coordinator: Coordinator, body: dict[str, Any], status: int, kind: str, path: str | None
) -> None:
    """Taken and impossible names, lifetimes out of range and unknown settings are refused with their place."""
    refused(coordinator.post("/invites", body), status, kind, path)


def test_health_tells_what_the_shell_knows(coordinator: Coordinator) -> None:
    """GET /health gives the version and the shell's facts."""
    assert coordinator.get("/health").json() == {"status": "ok", "version": "1.2.3", "replicas": 1}


def test_health_fails_with_its_stores() -> None:
    """A store that does not answer makes the coordinator unwell: 503, which tools understand."""

    def health() -> dict[str, Any]:
        raise Unreachable("The database does not answer", "Start it")

    refused(Coordinator(health=health).get("/health"), 503, "Unreachable")
