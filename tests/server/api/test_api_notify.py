"""Targets over HTTP: added, listed, tried and removed by operators, each within their project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import HOME_KEY, OWN, Coordinator, refused

from tests.receivers import receiving
from tideline.engine.coordinator.api_keys import hash_of
from tideline.engine.coordinator.notices.targets import Targets
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.api.requests.access import PROJECT
from tideline_server.api.requests.idempotency import HEADER
from tideline_server.notify.addresses import allowed_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.webhooks import Webhooks
from tideline_server.store import SqlJournal

HOOK = {"url": "https://hooks.example/services/secret", "on": ["failed", "stalled"]}


class Door(Coordinator):
    """A coordinator that notifies, with the project retina beside the default one."""

    def __init__(self, store: SqlJournal) -> None:
        self.ticks, self.store = ManualClock(1000.0), store
        sender = NoticeSender(Webhooks(allowed_in(["127.0.0.0/8"]), found, seconds=2.0))
        super().__init__(api_key_hash=hash_of(HOME_KEY), targets=Targets(store.notices, sender, self.ticks))
        self.add_project("retina")


def found(host: str, port: int) -> list[str]:
    """Names as the tests have them."""
    return {"internal.example": ["10.0.0.1"]}.get(host, [host] if host[0].isdigit() else ["93.184.216.34"])


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """A fresh one."""
    store = SqlJournal(tmp_path / "journal.db")
    yield Door(store)
    store.close()


def test_a_target_is_added_listed_and_removed(door: Door) -> None:
    """Its secret is shown once; of its address as much as is no secret."""
    made = door.post("/notify", HOOK, headers=OWN)
    assert made.status_code == 201 and made.json()["secret"].startswith("whsec_")
    assert (made.json()["name"], made.json()["project"], made.json()["form"]) == ("hooks.example", "", "json")
    [row] = door.get("/notify", headers=OWN).json()
    assert row == {name: value for name, value in made.json().items() if name != "secret"}
    assert (row["to"], row["on"], row["created_by"]) == ("https://hooks.example/...", ["stalled", "failed"], "admin")
    assert "secret" not in door.get("/notify", headers=OWN).text
    assert door.send("DELETE", "/notify/hooks.example", headers=OWN).json() == row
    refused(door.send("DELETE", "/notify/hooks.example", headers=OWN), 404, "NotFound")
    assert door.get("/notify", headers=OWN).json() == []


def test_operators_have_their_own(door: Door) -> None:
    """Of their project; a name of another is free, and its target not there. Viewers see none."""
    native, foreign = door.add_key("nat", "operator"), door.add_key("ret", "operator", "retina")
    for headers in (OWN, native, foreign):
        assert door.post("/notify", HOOK, headers=headers).status_code == 201
    assert [row["project"] for row in door.get("/notify", headers=OWN).json()] == ["", "default", "retina"]
    assert [row["project"] for row in door.get("/notify", headers=foreign).json()] == ["retina"]
    assert door.send("DELETE", "/notify/hooks.example", headers=foreign).status_code == 200
    refused(door.send("DELETE", "/notify/hooks.example", headers=foreign), 404, "NotFound")
    refused(door.send("DELETE", "/notify/hooks.example", headers=OWN), 422, "ConfigRefused", "project")
    assert door.send("DELETE", "/notify/hooks.example", headers=OWN | {PROJECT: "default"}).json()["project"] == "default"
    viewer = door.add_key("vic", "viewer")
    for answer in (door.get("/notify", headers=viewer), door.post("/notify", HOOK, headers=viewer)):
        refused(answer, 403, "PermissionRefused")
    told = refused(door.post("/notify", HOOK | {"on": ["failed", "disk"]}, headers=foreign), 422, "ConfigRefused", "on")
    assert "the project retina does not see" in told["detail"]


def test_a_call_that_is_sent_again_adds_one(door: Door) -> None:
    """And shows the same secret."""
    first, second = (door.post("/notify", HOOK, headers=OWN | {HEADER: "k"}) for _ in range(2))
    assert first.json() == second.json() and len(door.get("/notify", headers=OWN).json()) == 1
    refused(door.post("/notify", HOOK, headers=OWN), 409, "Refused")


def test_a_test_says_how_it_went(door: Door) -> None:
    """At once, with a signature; not twice in ten seconds. What the receiver says is not shown."""
    with receiving() as receiver:
        door.post("/notify", {"url": receiver.url, "on": ["failed"], "name": "here"}, headers=OWN)
        assert door.post("/notify/here/test", headers=OWN).json() == {"taken": True, "words": "HTTP 204"}
        [got] = receiver.got
        assert json.loads(got.body)["kind"] == "test" and got.headers["webhook-signature"]
        answer = door.post("/notify/here/test", headers=OWN)
        refused(answer, 429, "TooMany")
        assert int(answer.headers["Retry-After"]) <= 11
        receiver.answers = [500]
        door.ticks.advance(10.0)
        assert door.post("/notify/here/test", headers=OWN).json() == {"taken": False, "words": "HTTP 500"}


A, ON = "https://a.example", ["failed"]
ANN = "mailto:ann@example.org"
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "url"),
    ({"url": A}, "on"),
    ({"url": A, "on": []}, "on"),
    ({"url": A, "on": ["faild"]}, "on[0]"),
    ({"url": A, "on": ["test"]}, "on"),
    ({"url": "https://internal.example/", "on": ON}, "url"),
    ({"url": "http://public.example/", "on": ON}, "url"),
    ({"url": "https://10.0.0.1/", "on": ON}, "url"),
    ({"url": ANN, "on": ON}, "url"),
    ({"url": ANN, "on": ON, "form": "slack"}, "form"),
    ({"url": A, "on": ON, "name": "a b"}, "name"),
    ({"url": A, "on": ON, "form": "sms"}, "form"),
    ({"url": f"{A}/" + "x" * 2000, "on": ON}, "url"),
)


def test_what_is_refused(door: Door, subtests: pytest.Subtests) -> None:
    """With its place, and nothing is written."""
    for body, path in WRONG:
        with subtests.test(str(body)[:80]):
            refused(door.post("/notify", body, headers=OWN), 422, "ConfigRefused", path)
    assert door.get("/notify", headers=OWN).json() == []


def test_where_nobody_is_notified() -> None:
    """A coordinator that was built without it says so."""
    told = refused(Coordinator().get("/notify"), 404, "NotFound")
    assert told["detail"] == "This coordinator notifies nobody"
