"""Whatever dies or breaks while a call with an Idempotency-Key is done: sent again, it is done once and answered alike."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import httpx
import pytest
from api_world import EXPERIMENT, Coordinator, refused
from fragile import KINDS, Fault, Fragile, Killed
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.budgets import examples
from tideline.core.run import RunId
from tideline.engine.model.runs import Status
from tideline_server.api import ApiSettings
from tideline_server.api.requests.idempotency import HEADER

KEY = {HEADER: "0b1f8a3e-9d0c-4d7b-8a51-6f1d2c3b4a59"}
MARK = "idempotent-replayed"
HASTY = ApiSettings(patience_seconds=0.02)
DEADLINE = 600.0
GIVEN = EXPERIMENT | {"waiting": {"deadline": DEADLINE}, "method": "fedprox", "reference": {"method": "fedavg"}}
BODIES: dict[str, Any] = {"runs": GIVEN, "invites": {"name": "dora", "labels": {"country": "nl"}, "ttl_seconds": 60}}
CAUSES = {"cancel": "cancelled by a person", "resume": "resumed by a person"}
NAMES = (*BODIES, *CAUSES)


class Ask:
    """A call that changes something, in a world of its own, and how often that has happened."""

    def __init__(self, name: str) -> None:
        self.name, self.home, self.run = name, Coordinator(), RunId("")
        self.federation, self.journal = self.home.federation, self.home.federation.journal
        self.how = {"json": BODIES[name]} if name in BODIES else {}
        if name in CAUSES:
            self.run = RunId(self.home.start(**GIVEN | {"roster": GIVEN["roster"] | {"nobody": "source"}}))
            self.stall()
        self.before = len(self.journal._invites)

    def send(self, *faults: Fault) -> httpx.Response | None:
        """Send the call to a coordinator that has just been started; no answer if it dies."""
        door = self.home.beside(Fragile(self.journal, faults), HASTY)  # type: ignore[arg-type]
        with suppress(Killed):
            path = f"/runs/{self.run}/{self.name}" if self.run else f"/{self.name}"
            return door.send("POST", path, headers=KEY, **self.how)
        return None

    def times(self) -> set[int]:
        """How often it was done, by each run that it is done to."""
        if self.name == "invites":
            return {len(self.journal._invites) - self.before}
        if self.name == "runs":
            runs = self.journal.run_ids()
            return {len(runs) // 2} if len(runs) % 2 == 0 else {-1}
        runs = (self.run, RunId(f"{self.run}-ref"))
        return {sum(e.data.get("cause") == CAUSES[self.name] for e in self.journal.events(run)) for run in runs}

    def stall(self) -> None:
        """Let time pass, in which a run that waits for sites stalls."""
        self.federation.clock.advance(DEADLINE + 1)
        for run in self.journal.run_ids():
            self.federation.scheduler.turn(run)


faults = st.lists(st.tuples(st.integers(0, 16), st.sampled_from(KINDS)), max_size=2)


@pytest.mark.nightly(job="services")
@settings(max_examples=examples(60))
@given(name=st.sampled_from(NAMES), tries=st.lists(faults, max_size=4), stalls=st.booleans())
def test_whatever_dies_it_is_done_once(name: str, tries: list[list[Fault]], stalls: bool) -> None:
    """Tries that die or are cut at calls of the journal, then two in peace: done once, and every success told is the same."""
    ask, told = Ask(name), list[httpx.Response | None]()
    for each in tries:
        told.append(ask.send(*each))
        assert ask.times() <= {0, 1}
        if stalls:
            ask.stall()
    told += [ask.send(), ask.send()]
    answers = [answer for answer in told if answer is not None]
    assert {answer.status_code for answer in answers} <= {200, 201, 503}
    assert len({answer.content for answer in answers if answer.status_code != 503}) == 1
    assert answers[-1].headers[MARK] == "true"
    assert ask.times() == {1}


@pytest.mark.parametrize(
    "kind", ["dies after", pytest.param("cut after", marks=pytest.mark.nightly(job="services"))]
)  # before a call is after the one before it
@pytest.mark.parametrize("name", NAMES)
def test_every_moment_is_survived(name: str, kind: str) -> None:
    """A death or a cut at each call of the journal in turn, until all are through: done once, and the answer comes."""
    for at in itertools.count():
        ask = Ask(name)
        first, answer = ask.send((at, kind)), ask.send()
        assert answer is not None and answer.status_code < 300 and ask.times() == {1}, at
        if first is not None and first.status_code < 300:
            assert (first.content, first.headers.get("location")) == (answer.content, answer.headers.get("location"))
            assert at > 4
            return


def test_a_resumed_run_that_stalls_again_is_not_resumed_again() -> None:
    """The answer was lost, the run went on and stalled: a repeat hears of the success, and the run waits for a person."""
    for at in itertools.count():
        ask = Ask("resume")
        if ask.send((at, "dies after")) is None and ask.times() == {1}:
            break
    ask.stall()
    answer = ask.send()
    assert answer is not None and answer.status_code == 200 and answer.json()["status"] == "stalled"
    assert ask.times() == {1}
    row = ask.journal.run(ask.run)
    assert row is not None and row.status is Status.STALLED


def test_what_failed_is_not_kept() -> None:
    """An error of ours leaves the key to the next try, which need not wait."""
    ask = Ask("runs")
    answer = ask.send((2, "cut before"))
    assert answer is not None
    refused(answer, 503, "Unreachable")
    broken = ask.home.beside(ask.journal)
    broken.services.run_service.compute = None  # type: ignore[assignment]
    with capture_logs():
        refused(broken.post("/runs", GIVEN, headers=KEY), 500, "InternalError")
    patient = ask.home.beside(ask.journal, ApiSettings(patience_seconds=600.0))
    answer = patient.post("/runs", GIVEN, headers=KEY)
    assert answer.status_code == 201 and MARK not in answer.headers
    assert ask.times() == {1}
