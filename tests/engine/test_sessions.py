"""Who an agent is, start by start: at two coordinators, in time and late."""

from __future__ import annotations

import pytest

from tests.enrolling import keys_of
from tideline.core.errors import IdentityRefused, Refused, Unreachable
from tideline.engine.coordinator.enrolment import LATE_SECONDS, Applicant, Enrolment, admitted
from tideline.engine.model.accounts import Client, Session, Standing, session_in
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal

FIRST, SECOND, COPY = Session(1, "aaaaaaaa"), Session(2, "bbbbbbbb"), Session(2, "cccccccc")


class Two:
    """Two coordinators on one journal, and ann's starts at either."""

    def __init__(self) -> None:
        self.clock, journal = ManualClock(1000.0), MemoryJournal()
        self.here, self.there = Enrolment(journal, self.clock), Enrolment(journal, self.clock)
        self.token = self.here.invite("ann", {}, 600.0)
        self.noticed: list[str] = []
        for each in (self.here, self.there):
            each.noticed = lambda client: self.noticed.append(", ".join(client.doubles))

    def start(self, at: Enrolment, session: Session) -> Client:
        """An agent enrols, with what it signs now."""
        who = Applicant(name="ann", roles=("source",), version="1", keys=keys_of("ann"), session=session, signed=self.clock.now())
        return at.admit(self.token, who)

    def call(self, at: Enrolment, session: Session, late: float = 0.0) -> Client:
        """A call of a session, signed some seconds ago."""
        return admitted(at.in_session(at.read("ann"), session, self.clock.now() - late))


@pytest.fixture
def two() -> Two:
    return Two()


def test_starts_follow_each_other(two: Two) -> None:
    """Wherever; and an enrolment that is repeated after a cut is the same start."""
    for at, session in ((two.here, FIRST), (two.here, FIRST), (two.there, SECOND), (two.here, SECOND)):
        assert two.start(at, session).current == session
        two.call(two.here, session)
        two.call(two.there, session)
    assert two.noticed == []


def test_what_a_killed_start_sent_comes_late(two: Two) -> None:
    """A frozen coordinator goes on with it: it is put off, and nobody is held."""
    two.start(two.here, FIRST)
    two.clock.advance(1.0)
    two.start(two.there, SECOND)
    two.clock.advance(60.0)
    with pytest.raises(Unreachable, match="later session"):
        two.call(two.here, FIRST, late=61.0)
    assert two.call(two.there, SECOND).standing is Standing.APPROVED


def test_a_copy_works_beside_it(two: Two) -> None:
    """The older start calls on: a while later both are held, and the users' side hears of it once."""
    two.start(two.here, FIRST)
    two.start(two.there, SECOND)
    with pytest.raises(Unreachable, match="later session"):
        two.call(two.here, FIRST)
    two.clock.advance(LATE_SECONDS)
    for _ in range(2):
        with pytest.raises(Unreachable, match="is held"):
            two.call(two.here, FIRST)
    with pytest.raises(Unreachable, match="is held"):
        two.call(two.there, SECOND)
    assert two.noticed == [f"{SECOND}, {FIRST}"] and two.there.doubled() == 1


def test_two_starts_of_one_count(two: Two) -> None:
    """That is a copy whenever it comes."""
    two.start(two.here, FIRST)
    two.start(two.here, SECOND)
    assert two.start(two.there, COPY).standing is Standing.DOUBLED


def test_who_goes_on(two: Two) -> None:
    """The session that is named; the other is refused, and which one is never guessed."""
    two.start(two.here, SECOND)
    two.start(two.there, COPY)
    for given in ("", "9.dddddddd", "nonsense"):
        with pytest.raises(Refused, match="doubled") as refusal:
            two.here.approve("ann", session=given)
        assert f"--session {SECOND} or" in refusal.value.todo
    assert two.here.approve("ann", session=str(SECOND)).rotate
    two.clock.advance(LATE_SECONDS)
    assert two.call(two.there, SECOND).standing is Standing.APPROVED
    for at in (two.here, two.there):
        with pytest.raises(IdentityRefused, match="was let go on"):
            two.call(at, COPY)
    with pytest.raises(IdentityRefused, match="was let go on"):
        two.start(two.here, COPY)
    assert two.start(two.here, Session(3, "dddddddd")).standing is Standing.APPROVED


def test_a_database_that_went_back(two: Two) -> None:
    """A start that it has forgotten is taken up when it calls."""
    two.start(two.here, FIRST)
    assert two.call(two.here, Session(7, "dddddddd")).current == Session(7, "dddddddd")


def test_agents_of_before(two: Two) -> None:
    """They name no session; once a home has named one, a call without is a double."""
    two.start(two.here, Session())
    assert two.call(two.here, Session()).current == Session()
    two.start(two.here, FIRST)
    two.clock.advance(LATE_SECONDS)
    with pytest.raises(Unreachable, match="is held"):
        two.call(two.here, Session())


@pytest.mark.parametrize("text", ["1", "1.", ".aaaaaaaa", "1.AAAAAAAA", "-1.aaaaaaaa", "1.aaaaaaaa\n", "9999999999.aaaaaaaa"])
def test_what_is_no_session(text: str) -> None:
    """And what is one."""
    assert session_in(text) is None
    assert session_in("") == Session() and session_in(str(SECOND)) == SECOND
