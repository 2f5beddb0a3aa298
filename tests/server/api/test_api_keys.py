"""Keys and roles over HTTP: who may do what, how keys come and go, and who is told to have done it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from api_world import EXPERIMENT, OWN, Coordinator, refused, unread
from fastapi.routing import APIRoute

from tideline.core.errors import Unreachable
from tideline.engine.coordinator.api_keys import ADMIN, hash_of
from tideline.engine.model.accounts import KeyRole
from tideline_server.api.app import KEYED
from tideline_server.api.requests.access import NEEDS, UNCHANGING, check_rows
from tideline_server.api.requests.idempotency import HEADER
from tideline_server.store import SqlJournal

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"


def operations() -> set[str]:
    """Every method and path that asks for a key."""
    routes = [route for router in KEYED for route in router.routes if isinstance(route, APIRoute)]
    return {f"{method} {route.path}" for route in routes for method in route.methods or ()}


def test_every_route_has_a_role() -> None:
    """The table names each, and none that is not there; a route without a row ends the start."""
    assert operations() == set(NEEDS)
    with pytest.raises(LookupError, match="POST /new"):
        check_rows(["GET /health", "POST /new"])


def test_looking_is_for_viewers_and_changing_is_not() -> None:
    """By method: no row lets a viewer change anything. What has a body and changes nothing is for viewers too.

    Everybody may sign out. Hidden from one: keys, sessions, the audit log, who is notified, what a restore had forgotten,
    weights (a look keeps them, and so does a check of an experiment), and models, of which much of rows may be read.
    """
    hidden = ("GET /keys", "GET /sessions", "GET /audit", "GET /audit/tip", "GET /restored", "GET /notify")
    hidden += ("GET /weights/{digest}", "GET /runs/{run}/files", "GET /parts/{digest}", "POST /runs/check")
    for name, need in NEEDS.items():
        looks = (name.startswith("GET ") or name in (*UNCHANGING, "POST /sign-out")) and name not in hidden
        assert (need.role is KeyRole.VIEWER) == looks, name


def test_the_manual_names_the_roles() -> None:
    """docs/http-api.md has a row for each operation with its role."""
    text = PAGE.read_text()
    for name in operations():
        assert f"| `{name}` | {NEEDS[name].role} |" in text, name


@pytest.mark.parametrize("role", KeyRole)
def test_a_role_opens_what_it_covers(door: Coordinator, role: KeyRole, subtests: pytest.Subtests) -> None:
    """Anything but a 403 for who may; for who may not a sentence, and not a byte of the body is read."""
    headers = door.add_key("bob", role)
    for name, need in NEEDS.items():
        with subtests.test(name):
            method, _, path = name.partition(" ")
            path = path.format(run="nosuch", name="nosuch", digest="b3-" + "0" * 64)
            path += "?follow=false" if path == "/changes" else ""
            if role.covers(need.role):
                assert door.send(method, path, headers=headers).status_code != 403, "where there is one project, it is the whole"
            else:
                answer = door.send(method, path, headers=headers, content=unread())
                words = refused(answer, 403, "PermissionRefused")["detail"]
                assert words.startswith(f"The key 'bob' is a{'n' if role is KeyRole.OPERATOR else ''} {role}; ")
                assert words.endswith(f" needs {need.role}")


ODD_PATHS = ("/runs/", "//runs", "/runs/x/cancel/", "/RUNS", "/keys/a/b", "/runs%2Fx", "/runs/a%0Ab/cancel")


def test_odd_addresses_open_nothing(door: Coordinator, subtests: pytest.Subtests) -> None:
    """What the table does not know, no route takes either: a viewer who writes addresses oddly changes nothing."""
    run, headers = door.post("/runs", EXPERIMENT, headers=OWN).json()["run"], door.add_key("bob", "viewer")
    for method, path in itertools.product(("POST", "DELETE", "PUT", "PATCH", "post"), ODD_PATHS):
        with subtests.test(f"{method} {path}"):
            assert door.send(method, path, headers=headers).status_code in (403, 404, 405)
    assert [(row["id"], row["status"]) for row in door.get("/runs", headers=OWN).json()] == [(run, "waiting")]


def test_keys_are_made_listed_and_revoked(door: Coordinator) -> None:
    """The key is told once; the list tells whose it is, who made it and when it was used, and no hash."""
    bob = door.add_key("bob", "operator", ttl_seconds=3600)
    assert door.get("/whoami", headers=bob).json() == {"name": "bob", "role": "operator", "project": "default", "grants": []}
    assert door.get("/whoami", headers=OWN).json() == {"name": ADMIN, "role": "admin", "project": "", "grants": []}
    (row,) = door.get("/keys", headers=OWN).json()
    now = door.federation.clock.now()
    expected = {"name": "bob", "role": "operator", "created": now, "created_by": ADMIN, "last_used": now}
    expected |= {"expires": now + 3600, "revoked": None, "project": "default"}
    assert {k: row[k] for k in row if k != "id"} == expected
    assert hash_of(bob["Authorization"].split()[1]) not in door.get("/keys", headers=OWN).text
    first = door.send("DELETE", "/keys/bob", headers=OWN)
    assert first.status_code == 200 and first.json()["revoked"] == now
    assert door.send("DELETE", "/keys/bob", headers=OWN).json() == first.json()
    answer = door.get("/runs", headers=bob)
    assert "'bob' was revoked" in refused(answer, 401, "IdentityRefused")["detail"] and answer.headers["www-authenticate"]
    assert door.add_key("bob", "viewer") != bob


WRONG: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({}, 422, "ConfigRefused", "name"),
    ({"name": "bob"}, 422, "ConfigRefused", "role"),
    ({"name": "bob", "role": "boss"}, 422, "ConfigRefused", "role"),
    ({"name": "admin", "role": "admin"}, 422, "ConfigRefused", "name"),
    ({"name": "a/b", "role": "admin"}, 422, "ConfigRefused", "name"),
    ({"name": "bob", "role": "viewer", "ttl_seconds": 0}, 422, "ConfigRefused", "ttl_seconds"),
    ({"name": "bob", "role": "viewer", "ttl_seconds": 1e300}, 422, "ConfigRefused", "ttl_seconds"),
    ({"name": "bob", "role": "viewer", "ttl": 5}, 422, "ConfigRefused", "ttl"),
    ({"name": "eve", "role": "viewer"}, 409, "Refused", None),
]


def test_wrong_keys_are_not_made(door: Coordinator, subtests: pytest.Subtests) -> None:
    """Names, roles and lifetimes that cannot be are refused with their place."""
    door.add_key("eve", "viewer")
    for body, status, kind, path in WRONG:
        with subtests.test(str(body)[:40]):
            refused(door.post("/keys", body, headers=OWN), status, kind, path)
    assert len(door.get("/keys", headers=OWN).json()) == 1


def test_what_is_no_key_of_the_list(door: Coordinator) -> None:
    """An unknown name is not found, with a guess; the home's key is not revoked here."""
    door.add_key("bob", "viewer")
    assert "did you mean bob?" in refused(door.send("DELETE", "/keys/bib", headers=OWN), 404, "NotFound")["todo"]
    assert "admin.key" in refused(door.send("DELETE", "/keys/admin", headers=OWN), 409, "Refused")["todo"]


def test_a_key_is_made_once(door: Coordinator, tmp_path: Path) -> None:
    """Sent again under the same Idempotency-Key it is the same key; the store has it neither in the table nor in the answer."""
    journal = SqlJournal(tmp_path / "j.db")
    stored, again = door.beside(journal), OWN | {HEADER: "once"}
    first = stored.post("/keys", {"name": "bob", "role": "viewer"}, headers=again)
    second = stored.post("/keys", {"name": "bob", "role": "viewer"}, headers=again)
    assert first.status_code == 201 and first.content == second.content and second.headers["idempotent-replayed"] == "true"
    journal.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"bob" in kept and first.json()["key"].removeprefix("tidekey_").encode() not in kept


def test_a_kept_answer_belongs_to_the_key_that_asked(door: Coordinator) -> None:
    """Another caller who sends the same Idempotency-Key is refused, whatever its role; the first gets its answer again."""
    bob, eve = door.add_key("bob", "operator"), door.add_key("eve", "operator")
    first = door.post("/invites", {"name": "dora"}, headers=bob | {HEADER: "k"})
    for other in (eve, OWN):
        refused(door.post("/invites", {"name": "dora"}, headers=other | {HEADER: "k"}), 422, "KeyReused", HEADER)
    assert door.post("/invites", {"name": "dora"}, headers=bob | {HEADER: "k"}).content == first.content
    door.send("DELETE", "/keys/bob", headers=OWN)
    refused(door.post("/invites", {"name": "dora"}, headers=bob | {HEADER: "k"}), 401, "IdentityRefused")


def test_events_name_who_asked(door: Coordinator) -> None:
    """Who started, resumed and cancelled a run stands in its events, with or without an Idempotency-Key."""
    bob, eve = door.add_key("bob", "operator"), door.add_key("eve", "operator")
    run = door.post("/runs", EXPERIMENT | {"roster": {"nobody": "source"}}, headers=bob | {HEADER: "k"}).json()["run"]
    door.play(run)
    assert door.post(f"/runs/{run}/resume", headers=eve).status_code == 200
    assert door.post(f"/runs/{run}/cancel", headers=OWN).status_code == 200
    events = door.federation.journal.events(run)
    told = [(e.kind, e.data.get("by")) for e in events]
    assert told == [("created", "bob"), ("stalled", None), ("waiting", "eve"), ("cancelled", ADMIN)]


def test_replicas_share_keys_but_not_their_own(door: Coordinator) -> None:
    """A key of the journal opens both doors, that of a home its own; one that is given to both opens both."""
    bob = door.add_key("bob", "viewer")
    other = Coordinator(api_key_hash=hash_of("another"), shared_key_hash=hash_of("shared")).beside(door.federation.journal)
    assert other.get("/runs", headers=bob).status_code == 200
    refused(other.get("/runs", headers=OWN), 401, "IdentityRefused")
    assert other.get("/whoami", headers={"Authorization": "Bearer shared"}).json()["role"] == "admin"


def test_a_store_that_is_away_is_no_wrong_key(door: Coordinator) -> None:
    """503, so that it is tried again; the home's key is let in, and told the same by what it asks for."""

    class Away:
        def __getattr__(self, name: str) -> Any:
            def away(*_: Any) -> Any:
                raise Unreachable("The store does not answer", "Look at it")

            return away

    bob, broken = door.add_key("bob", "viewer"), door.beside(Away())  # type: ignore[arg-type]
    refused(broken.get("/runs", headers=bob), 503, "Unreachable")
    assert broken.get("/whoami", headers=OWN).status_code == 200
