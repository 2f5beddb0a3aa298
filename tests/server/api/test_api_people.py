"""Methods, clients, invitations and health."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import pytest
from api_world import SITES, Coordinator, refused

from tests.enrolling import enrol
from tideline.algorithms import METHODS
from tideline.core.errors import IdentityRefused
from tideline.core.tokens import Trust, read_token
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.model.accounts import Keys
from tideline_server.api.services import Meeting


def test_a_method_shows_its_settings_and_its_contract(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """The list has each method with a summary and its source; its settings come with defaults and documentation; its contract
    says every clause in words too.
    """
    listed = coordinator.get("/algorithms").json()
    assert [m["name"] for m in listed] == [name for name, _ in METHODS] and all(m["summary"] and m["paper"] for m in listed)
    for name, _ in METHODS:
        with subtests.test(name):
            shown = coordinator.get(f"/algorithms/{name}").json()
            rounds = [s for s in shown["settings"] if s["name"] == "rounds"]
            assert all(s["low"] in (0, 1) for s in rounds) and all(s["doc"] for s in shown["settings"])
            contract = coordinator.get(f"/algorithms/{name}/contract").json()
            assert len(contract["contract"]) == len(contract["sentences"]) > 0
            assert contract["digest"] == shown["digest"]


def test_a_presets_contract(coordinator: Coordinator) -> None:
    """?preset= gives the contract of a preset, and a wrong one a guess."""
    assert coordinator.get("/algorithms/fedavg/contract?preset=tiny").status_code == 200
    error = refused(coordinator.get("/algorithms/fedavg/contract?preset=tini"), 422, "ConfigRefused", "preset")
    assert "did you mean tiny?" in error["todo"]


def test_the_contract_of_a_run_with_secure_sums(coordinator: Coordinator) -> None:
    """?secure_sums=true says what goes to a sum; a method without any is refused with those that have some."""
    shown = coordinator.get("/algorithms/fedavg/contract?secure_sums=true&preset=tiny").json()
    assert [(c["phase"], c["field"]) for c in shown["contract"] if c["audience"] == ["sum"]] == [("train", "values")]
    assert shown["digest"] != coordinator.get("/algorithms/fedavg/contract").json()["digest"]
    error = refused(coordinator.get("/algorithms/hfedf/contract?secure_sums=true"), 422, "ConfigRefused", "secure_sums")
    assert "hfedf needs" in error["detail"] and "fedavg" in error["todo"]


def test_an_unknown_method_is_not_found(coordinator: Coordinator) -> None:
    """A misspelt method is answered with the names that exist and a guess."""
    for tail in ("", "/contract"):
        error = refused(coordinator.get(f"/algorithms/fedavgg{tail}"), 404, "NotFound", "method")
        assert "fedprox" in error["todo"] and "did you mean fedavg?" in error["todo"]


def test_clients_are_listed_without_their_secrets(coordinator: Coordinator) -> None:
    """GET /clients tells what an operator needs, and of keys the fingerprint."""
    listed = coordinator.get("/clients").json()
    assert [c["name"] for c in listed] == list(SITES)
    assert set(listed[0]) == {
        *("name", "roles", "labels", "version", "enrolled", "seen", "standing", "revoked", "reason"),
        *("fingerprint", "rotate", "doubles", "projects", "device", "ledger_entries", "ledger_hash", "ledger_now", "follows"),
    }
    assert listed[0]["standing"] == "approved"
    assert re.fullmatch("[0-9a-f]{4}( [0-9a-f]{4}){7}", listed[0]["fingerprint"])


def test_an_invitation_admits_an_agent_once(coordinator: Coordinator) -> None:
    """The token enrols the named agent, with its labels, and experiments can select by them."""
    answer = coordinator.post("/invites", {"name": "dora", "labels": {"country": "nl"}, "ttl_seconds": 60})
    invited, run_service = answer.json(), coordinator.federation.run_service
    assert (answer.status_code, invited["expires"]) == (201, 60.0)
    enrol(run_service, invited["token"], "dora", ("source",))
    with pytest.raises(IdentityRefused):
        enrol(run_service, invited["token"], "emil", ("source",))
    run = coordinator.start(roster={}, select=[{"labels": {"country": "nl"}, "role": "source"}])
    assert [c["name"] for c in coordinator.get(f"/runs/{run}").json()["clients"]] == ["dora"]


def test_an_invitation_expires(coordinator: Coordinator) -> None:
    """After its time a token admits nobody."""
    token = coordinator.post("/invites", {"ttl_seconds": 5}).json()["token"]
    coordinator.federation.clock.advance(6.0)
    with pytest.raises(IdentityRefused, match="expired"):
        enrol(coordinator.federation.run_service, token, "dora", ("source",))


WRONG: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"name": "anna"}, 409, "Refused", None),
    ({"name": "a/b"}, 422, "ConfigRefused", "name"),
    ({"name": 3}, 422, "ConfigRefused", "name"),
    ({"ttl_seconds": 0}, 422, "ConfigRefused", "ttl_seconds"),
    ({"ttl_seconds": -5}, 422, "ConfigRefused", "ttl_seconds"),
    ({"ttl_seconds": 1e9}, 422, "ConfigRefused", "ttl_seconds"),
    ({"ttl": 60}, 422, "ConfigRefused", "ttl"),
    ({"labels": {"country": 31}}, 422, "ConfigRefused", "labels.country"),
    ({"hold": 1}, 422, "ConfigRefused", "hold"),
    ({"addresses": "a:1"}, 422, "ConfigRefused", "addresses"),
    ({"addresses": ["a:1", "nowhere"]}, 422, "ConfigRefused", "addresses[1]"),
    ({"addresses": [f"{'a' * 250}:{port}" for port in range(1, 10)]}, 422, "ConfigRefused", "addresses"),
]


def test_wrong_invitations_are_refused(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Taken and impossible names, lifetimes out of range and unknown settings are refused with their place."""
    for body, status, kind, path in WRONG:
        with subtests.test(str(body)[:40]):
            refused(coordinator.post("/invites", body), status, kind, path)


MEETING = Meeting(("told.example:1",), ("own:2",), Trust.PINNED, bytes(32))


@pytest.mark.parametrize(
    ("meeting", "addresses"),
    [(MEETING, ("told.example:1",)), (replace(MEETING, advertised=()), ("asked:3",)), (Meeting(own=("own:2",)), ("asked:3",))],
)
def test_what_a_token_says(meeting: Meeting, addresses: tuple[str, ...]) -> None:
    """What the operator advertises stands before what a request knows, and that before the door's own address."""
    coordinator = Coordinator(meeting=lambda: meeting)
    told = coordinator.post("/invites", {"addresses": ["asked:3"]}).json()
    token = read_token(told["token"])
    assert (token.addresses, token.trust, token.authority) == (addresses, meeting.trust, meeting.authority)
    assert told["addresses"] == list(addresses) and not told["hold"]
    assert read_token(coordinator.post("/invites", {}).json()["token"]).addresses == (meeting.advertised or meeting.own)


def test_a_held_client_is_approved(coordinator: Coordinator) -> None:
    """By its name, as often as one likes; a stranger is not found."""
    token = coordinator.post("/invites", {"name": "dora", "hold": True}).json()["token"]
    who = Applicant("dora", ("source",), "1", keys=Keys("00" * 32, "99" * 32))
    coordinator.federation.run_service.enrolment.admit(token, who)
    (line,) = [each for each in coordinator.get("/clients").json() if each["name"] == "dora"]
    assert line["standing"] == "pending"
    assert line["fingerprint"] == "af2d 92c4 c14b cc03 ca35 0e49 6c12 336c"
    for _ in range(2):
        assert coordinator.post("/clients/dora/approve").json()["standing"] == "approved"
    assert coordinator.post("/clients/dora/rotate").json()["rotate"]
    for what in ("approve", "revoke", "rotate"):
        refused(coordinator.post(f"/clients/dorra/{what}"), 404, "NotFound")


def test_a_client_is_revoked(coordinator: Coordinator) -> None:
    """With a reason or without, and twice; then it is neither approved nor asked for keys."""
    told = coordinator.post("/clients/anna/revoke", {"reason": "has left"}).json()
    assert (told["standing"], told["reason"]) == ("revoked", "has left") and told["revoked"] is not None
    assert coordinator.post("/clients/anna/revoke").json() == told
    for what in ("approve", "rotate"):
        refused(coordinator.post(f"/clients/anna/{what}"), 409, "Refused")
    refused(coordinator.post("/clients/anna/revoke", {"why": "x"}), 422, "ConfigRefused", "why")


def test_health_tells_what_the_shell_knows(coordinator: Coordinator) -> None:
    """GET /health gives the version and the shell's facts."""
    assert coordinator.get("/health").json() == {"status": "ok", "version": "1.2.3", "replicas": 1}


def test_health_waits_for_no_store() -> None:
    """Requests that wait for a database take every thread; who asks whether the process answers needs none."""
    begun, go = threading.Semaphore(0), threading.Event()

    def stuck() -> tuple[bytes, str]:
        begun.release()
        go.wait(60)
        return b"", "text/plain"

    door = Coordinator(metrics=stuck)

    async def asked() -> int:
        threads = int(anyio.to_thread.current_default_thread_limiter().total_tokens)
        async with anyio.create_task_group() as waiting:
            for _ in range(threads):
                waiting.start_soon(door.asend, "GET", "/metrics")
            for _ in range(threads):
                await anyio.to_thread.run_sync(begun.acquire, limiter=anyio.CapacityLimiter(1))
            with anyio.fail_after(60):
                answer = await door.asend("GET", "/health")
            go.set()
        return answer.status_code

    assert anyio.run(asked) == 200
