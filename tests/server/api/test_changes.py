"""What has changed since the last look: exactly, for whoever may see it, and at a cost that does not grow with what is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from api_world import EXPERIMENT, OWN, SITES, Coordinator, locked

from tideline.core.errors import Unreachable
from tideline.engine.audit.entries import KINDS
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.feed.changes import (
    OF_SITES,
    SEEN_SECONDS,
    WARNINGS_SECONDS,
    ChangedRun,
    ChangedSites,
    ChangedWarnings,
    GoneRun,
    Poller,
    concerns,
)


class CountedJournal:
    """A journal whose calls are counted, and which may be away."""

    def __init__(self, journal: Any) -> None:
        self._journal, self.calls, self.away = journal, Counter[str](), ""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._journal, name)

        def call(*args: Any, **more: Any) -> Any:
            self.calls[name] += 1
            if name == self.away:
                raise Unreachable("The store does not answer", "Look at it")
            return method(*args, **more)

        return call


@pytest.fixture
def door() -> Coordinator:
    """A coordinator with a second project."""
    door = locked()
    door.add_project("retina")
    return door


@pytest.fixture
def clock() -> ManualClock:
    """The clock by which is looked."""
    return ManualClock(1000.0)


def start(door: Coordinator, **changes: Any) -> str:
    """A run."""
    return str(door.post("/runs", EXPERIMENT | changes, headers=OWN).json()["run"])


def test_a_run_is_told_whenever_its_line_changes(door: Coordinator, clock: ManualClock) -> None:
    """New, further, stalled, over, gone: what is told is the line of the list; nothing is told twice, or without a change."""
    journal = door.federation.journal
    poller = Poller(journal, clock)
    assert poller.poll() == ()
    run = start(door)
    (new,) = poller.poll()
    assert new == ChangedRun(journal.headlines()[0]) and poller.poll() == ()
    assert door.post(f"/runs/{run}/cancel", headers=OWN).status_code == 200
    (over,) = poller.poll()
    assert over == ChangedRun(journal.headlines()[0]) and over.line.status == "cancelled" and poller.poll() == ()
    assert door.send("DELETE", f"/runs/{run}", headers=OWN).status_code == 200
    assert poller.poll() == (GoneRun(new.line.id, "default"),) and poller.poll() == ()


def test_what_began_and_ended_between_two_looks(door: Coordinator, clock: ManualClock) -> None:
    """The log has it: a run that was played to its end, and one of which nothing is left."""
    poller = Poller(door.federation.journal, clock)
    played, deleted = start(door), start(door)
    door.play(played)
    door.post(f"/runs/{deleted}/cancel", headers=OWN)
    door.send("DELETE", f"/runs/{deleted}", headers=OWN)
    runs, gone = poller.poll()
    assert isinstance(runs, ChangedRun) and (runs.line.id, runs.line.status) == (played, "completed")
    assert gone == GoneRun(deleted, "default") and poller.poll() == ()


def test_a_look_reads_no_run_that_is_over(door: Coordinator, clock: ManualClock) -> None:
    """Four questions at most, of which none names one."""
    journal = CountedJournal(door.federation.journal)
    for _ in range(3):
        door.post(f"/runs/{start(door)}/cancel", headers=OWN)
    poller = Poller(journal, clock)  # type: ignore[arg-type]
    journal.calls.clear()
    for _ in range(5):
        assert poller.poll() == ()
    assert journal.calls == {"mentions": 5, "current": 5}


def test_sites_are_told_to_their_projects(door: Coordinator, clock: ManualClock) -> None:
    """Someone is new, is revoked, changes projects: both the old ones and the new ones hear of it."""
    poller = Poller(door.federation.journal, clock)
    door.join("dora")
    assert poller.poll() == (ChangedSites(frozenset({"default"})),) and poller.poll() == ()
    assert door.post("/clients/dora/projects", {"projects": ["retina"]}, headers=OWN).status_code == 200
    assert poller.poll() == (ChangedSites(frozenset({"default", "retina"})),)
    assert door.post("/clients/dora/revoke", headers=OWN).status_code == 200
    assert poller.poll() == (ChangedSites(frozenset({"retina"})),) and poller.poll() == ()


def test_when_a_site_was_heard_is_told_every_ten_seconds(door: Coordinator, clock: ManualClock) -> None:
    """Also a version, of which the log says nothing; and where another site changed in between, none is forgotten."""
    journal = door.federation.journal
    door.join("dora")
    poller = Poller(journal, clock)
    journal.saw(SITES[0], 5e9)  # type: ignore[arg-type]
    clock.advance(SEEN_SECONDS - 1)
    assert poller.poll() == ()
    door.post("/clients/dora/projects", {"projects": ["retina"]}, headers=OWN)
    assert poller.poll() == (ChangedSites(frozenset({"default", "retina"})),)
    clock.advance(1)
    assert poller.poll() == (ChangedSites(frozenset({"default"})),), "anna was heard meanwhile"
    journal.saw("dora", 6e9, "9.9", ())  # type: ignore[arg-type]
    clock.advance(SEEN_SECONDS)
    assert ChangedSites(frozenset({"retina"})) in poller.poll() and poller.poll() == ()


def test_every_entry_about_a_site_is_known(door: Coordinator) -> None:
    """A new kind of entry has to be sorted in: whether it changes what the list of sites shows."""
    elsewhere = {"invited", "asked_again", "reply_accepted", "reply_late", "reply_failed", "reply_refused", "sign_in_refused"}
    elsewhere |= {"approval_awaited"}
    of_runs = {kind for kind in KINDS if kind.startswith(("run_", "round_", "part", "log_", "key_", "project_", "target_"))}
    others = {"signed_in", "session_ended", "notice_given_up", "database_restored", "restore_confirmed", "audit_archived"}
    others |= {"signer_introduced"}
    left = set(KINDS) - OF_SITES - elsewhere - of_runs
    assert left <= others | {kind for kind in left if "restore" in kind or "archiv" in kind}, left


def test_warnings_are_told_when_they_change(door: Coordinator, clock: ManualClock) -> None:
    """To everybody, as anybody may ask for them."""
    warnings = ["a disk is nearly full"]
    poller = Poller(door.federation.journal, clock, lambda: tuple(warnings))
    warnings.clear()
    assert poller.poll() == ()
    clock.advance(WARNINGS_SECONDS)
    (told,) = poller.poll()
    assert told == ChangedWarnings(()) and concerns(told, "retina")
    clock.advance(WARNINGS_SECONDS)
    assert poller.poll() == ()


def test_who_hears_of_what(door: Coordinator, clock: ManualClock) -> None:
    """Nothing of one project is told to another; who sees every project hears all."""
    poller = Poller(door.federation.journal, clock)
    run = start(door)
    door.post(f"/runs/{run}/cancel", headers=OWN)
    door.join("dora")
    (ran, sites) = poller.poll()
    door.send("DELETE", f"/runs/{run}", headers=OWN)
    (gone,) = poller.poll()
    for change in (ran, sites, gone):
        assert [concerns(change, scope) for scope in ("", "default", "retina", "*")] == [True, True, False, False]


@pytest.mark.parametrize("away", ["mentions", "current", "tombstones", "clients"])
def test_a_look_that_fails_loses_nothing(door: Coordinator, clock: ManualClock, away: str) -> None:
    """The next one finds what it would have found."""
    journal = CountedJournal(door.federation.journal)
    poller = Poller(journal, clock)  # type: ignore[arg-type]
    run, dead = start(door), start(door)
    door.post(f"/runs/{dead}/cancel", headers=OWN)
    door.send("DELETE", f"/runs/{dead}", headers=OWN)
    door.join("dora")
    journal.away = away
    with pytest.raises(Unreachable):
        poller.poll()
    journal.away = ""
    found = poller.poll()
    assert [type(each) for each in found] == [ChangedRun, GoneRun, ChangedSites]
    assert isinstance(found[0], ChangedRun) and found[0].line.id == run


def test_what_comes_between_the_first_questions_is_told(door: Coordinator, clock: ManualClock) -> None:
    """A run that begins while the first look is under way is not missed, wherever in it that is."""
    for name in ("audit_tip", "current", "clients"):
        begun: list[str] = []

        class Late(CountedJournal):
            def __getattr__(self, asked: str, name: str = name, begun: list[str] = begun) -> Callable[..., Any]:
                call = super().__getattr__(asked)

                def then(*args: Any, **more: Any) -> Any:
                    found = call(*args, **more)
                    if asked == name and not begun:
                        begun.append(start(door))
                    return found

                return then

        journal = door.federation.journal
        poller = Poller(Late(journal), clock)  # type: ignore[arg-type]
        known = set(poller._runs)
        told = {each.line.id for each in poller.poll() if isinstance(each, ChangedRun)}
        assert begun[0] in known | told, name
