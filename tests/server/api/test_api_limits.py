"""The HTTP API lets each caller in so many times a minute, and tells who comes more often when to come again."""

from __future__ import annotations

import pytest
from api_world import EXPERIMENT, Coordinator, refused

from tideline.engine.coordinator.enrolment import secret_hash
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.api.requests.idempotency import HEADER
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits

GOOD, BAD = {"Authorization": "Bearer right"}, {"Authorization": "Bearer wrong"}


@pytest.fixture
def clock() -> ManualClock:
    """The limits' clock."""
    return ManualClock(1_000_000_020.0)


@pytest.fixture
def door(clock: ManualClock) -> Coordinator:
    """A door that lets an address in three times a minute, and twice without the key."""
    return Coordinator(api_key_hash=secret_hash("right"), limits=Limits(LocalCounts(), clock, 3, 2, 1))


def test_a_caller_who_comes_too_often_waits(door: Coordinator, clock: ManualClock) -> None:
    """The fourth request is refused in the one shape, with the time after which the next is let in; it is, then."""
    assert [door.get("/runs", headers=GOOD).status_code for _ in range(3)] == [200] * 3
    answer = door.get("/runs", headers=GOOD)
    error = refused(answer, 429, "TooMany")
    assert error["detail"] == "More than 3 requests a minute come from 127.0.0.1" and "--rate" in error["todo"]
    wait = int(answer.headers["retry-after"])
    assert wait == error["context"]["retry_after"] and wait in (80, 81), "to the next minute of the clock, and a third of it"
    clock.advance(wait - 2.0)
    refused(door.get("/runs", headers=GOOD), 429, "TooMany")
    clock.advance(2.0)
    assert door.get("/runs", headers=GOOD).status_code == 200


def test_other_callers_are_not_delayed(door: Coordinator) -> None:
    """Each address has its own count. Health and the manual are open to all."""
    for _ in range(5):
        door.get("/runs", headers=GOOD)
    assert door.get("/runs", headers=GOOD, address="10.0.0.7").status_code == 200
    assert {door.get(path).status_code for path in ("/health", "/docs", "/openapi.json") for _ in range(5)} == {200}


def test_a_guesser_locks_nobody_out(door: Coordinator) -> None:
    """Wrong keys are told apart from too many of them; who has the key is let in, from the same address too."""
    for _ in range(2):
        refused(door.get("/runs", headers=BAD), 401, "IdentityRefused")
    for headers in (BAD, {}):
        answer = door.get("/runs", headers=headers)
        assert "without the right key" in refused(answer, 429, "TooMany")["detail"] and "www-authenticate" not in answer.headers
    assert door.get("/runs", headers=GOOD).status_code == 200
    refused(door.get("/runs", headers=BAD, address="10.0.0.7"), 401, "IdentityRefused")


def test_a_call_that_is_put_off_is_not_answered(door: Coordinator, clock: ManualClock) -> None:
    """Its key is as good as new afterwards: too many is no answer to what was asked."""
    key = GOOD | {HEADER: "key"}
    for _ in range(3):
        door.get("/runs", headers=GOOD)
    refused(door.post("/runs", EXPERIMENT, headers=key), 429, "TooMany")
    clock.advance(120.0)
    answer = door.post("/runs", EXPERIMENT, headers=key)
    assert answer.status_code == 201 and "idempotent-replayed" not in answer.headers
