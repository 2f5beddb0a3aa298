"""Who an agent is, start by start: at two coordinators, in time and late."""

from __future__ import annotations

import pytest

from tests.enrolling import keys_of
from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound, Refused, Unreachable
from tideline.engine.coordinator.api_keys import ANYBODY, ApiKeys, hash_of
from tideline.engine.coordinator.enrolment import LATE_SECONDS, Applicant, Enrolment, admitted
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.model.accounts import ApiKey, Client, KeyRole, Session, Standing, session_in
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
    assert session_in(text) is None and session_in("") == Session() and session_in(str(SECOND)) == SECOND


# Whose key it is: what is remembered, for how long, and what costs a look at the journal.
HOME_KEY = "the key of the home"


class Counting(MemoryJournal):
    """A journal that counts how often its keys are read, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.away = 0, False

    def api_keys(self) -> tuple[ApiKey, ...]:
        self.reads += 1
        if self.away:
            raise Unreachable("The store does not answer", "Look at it")
        return super().api_keys()


@pytest.fixture
def clock() -> ManualClock:
    """The clock of both coordinators."""
    return ManualClock(1_000_000.0)


@pytest.fixture
def journal() -> Counting:
    """What both coordinators share."""
    return Counting()


@pytest.fixture
def ring(journal: Counting, clock: ManualClock) -> ApiKeys:
    """The keys of a coordinator."""
    return ApiKeys(journal, clock, [hash_of(HOME_KEY)])


def test_the_homes_key_needs_no_journal(ring: ApiKeys, journal: Counting) -> None:
    """It opens the door while the store is away; a door without any key is open to all."""
    journal.away = True
    caller = ring.at_once(HOME_KEY)
    assert caller is not None and (caller.name, caller.role) == ("admin", KeyRole.ADMIN)
    assert ApiKeys(journal, ManualClock(0.0), None).caller("") == ANYBODY and journal.reads == 0


def test_a_key_is_known_and_remembered(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """One look at the journal lasts five seconds; what is remembered is not asked for."""
    key, _ = ring.add("bob", KeyRole.VIEWER, None, "admin")
    assert (ring.caller(key).name, ring.caller(key).role) == ("bob", KeyRole.VIEWER)
    reads = journal.reads
    clock.advance(4.9)
    assert ring.at_once(key) == ring.caller(key) and journal.reads == reads
    clock.advance(0.2)
    assert ring.at_once(key) is None and ring.caller(key).name == "bob" and journal.reads == reads + 1
    assert key not in repr(ring.caller(key)) and hash_of(key) != ring.caller(key).secret


def test_guessers_cost_a_look_a_second(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """However many they are. What does not look like a key costs nothing."""
    for _ in range(50):
        for guess in ("tidekey_guess", "guess", ""):
            with pytest.raises(IdentityRefused, match="missing or wrong"):
                ring.caller(guess)
    assert journal.reads == 1
    clock.advance(1.0)
    with pytest.raises(IdentityRefused):
        ring.caller("tidekey_guess")
    assert journal.reads == 2


def test_a_revoked_key_ends_at_once_here_and_soon_elsewhere(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """At a replica within five seconds, and never later."""
    replica = ApiKeys(journal, clock, [])
    key, _ = ring.add("bob", KeyRole.VIEWER, None, "admin")
    assert ring.caller(key).name == replica.caller(key).name == "bob"
    assert ring.revoke("bob").revoked == clock.now()
    with pytest.raises(IdentityRefused, match="'bob' was revoked on 1970-01-12"):
        ring.caller(key)
    assert replica.caller(key).name == "bob"
    clock.advance(5.0)
    with pytest.raises(IdentityRefused, match="revoked"):
        replica.caller(key)
    assert ring.revoke("bob").revoked == clock.now() - 5.0, "a second time changes nothing"


def test_a_new_key_is_known_to_replicas_within_a_second(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """Also where somebody has just guessed."""
    replica = ApiKeys(journal, clock, [])
    with pytest.raises(IdentityRefused):
        replica.caller("tidekey_guess")
    key, _ = ring.add("bob", KeyRole.VIEWER, None, "admin")
    clock.advance(1.0)
    assert replica.caller(key).name == "bob"


def test_a_key_of_a_while_ago_opens_what_tells_of_an_outage(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """For an hour after it was last read as good; nobody else is let in, and elsewhere the outage is told."""
    key, _ = ring.add("prometheus", KeyRole.VIEWER, None, "admin")
    ended, _ = ring.add("old", KeyRole.VIEWER, None, "admin")
    ring.revoke("old")
    ring.caller(key)
    journal.away = True
    clock.advance(3599.0)
    assert ring.caller(key, lately=True).name == "prometheus"
    with pytest.raises(IdentityRefused, match="revoked"):
        ring.caller(ended, lately=True)
    for unheard, lately in ((key, False), ("tidekey_guess", True)):
        with pytest.raises(Unreachable):
            ring.caller(unheard, lately)
    reads = journal.reads
    assert ring.caller(key, lately=True).name == "prometheus" and journal.reads == reads, "not asked at each scrape"
    clock.advance(2.0)
    with pytest.raises(Unreachable):
        ring.caller(key, lately=True)


def test_a_key_expires(ring: ApiKeys, clock: ManualClock) -> None:
    """To the second, remembered or not."""
    key, made = ring.add("bob", KeyRole.VIEWER, 3.0, "admin")
    assert made.expires == clock.now() + 3.0 and ring.caller(key).name == "bob"
    clock.advance(3.0)
    with pytest.raises(IdentityRefused, match="'bob' expired"):
        ring.caller(key)


def test_the_last_use_is_written_once_a_minute(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """At the first call, and at the first after a minute."""
    key, _ = ring.add("bob", KeyRole.VIEWER, None, "admin")
    began = clock.now()
    for seconds, last in ((0.0, began), (30.0, began), (29.0, began), (1.0, began + 60.0)):
        clock.advance(seconds)
        ring.caller(key)
        assert journal.api_keys()[0].last_used == last


def test_a_store_that_is_away_lets_in_whom_it_knew(ring: ApiKeys, journal: Counting, clock: ManualClock) -> None:
    """For five seconds; then it is said that the store is away, and not that the key is wrong."""
    key, _ = ring.add("bob", KeyRole.VIEWER, None, "admin")
    ring.caller(key)
    journal.away = True
    assert ring.caller(key).name == "bob"
    clock.advance(6.0)
    with pytest.raises(Unreachable):
        ring.caller(key)


def test_names_and_lifetimes_that_cannot_be(ring: ApiKeys) -> None:
    """They are refused with their place; a taken name by its own sentence."""
    for name, words in (
        ("", "cannot name"),
        ("a b", "cannot name"),
        ("x" * 65, "cannot"),
        (".a", "cannot"),
        ("admin", "own key"),
    ):
        with pytest.raises(ConfigRefused, match=words) as refused:
            ring.add(name, KeyRole.VIEWER, None, "")
        assert refused.value.context["path"] == "name"
    for ttl in (0.0, -1.0, 1e12):
        with pytest.raises(ConfigRefused, match="out of range"):
            ring.add("bob", KeyRole.VIEWER, ttl, "")
    ring.add("bob", KeyRole.VIEWER, None, "")
    with pytest.raises(Refused, match="a key named 'bob' already"):
        ring.add("bob", KeyRole.ADMIN, None, "")
    with pytest.raises(NotFound, match="no key 'bab'") as lost:
        ring.revoke("bab")
    assert "did you mean bob?" in lost.value.todo
    with pytest.raises(Refused, match="is a file"):
        ring.revoke("admin")


def test_one_call_makes_one_key(ring: ApiKeys) -> None:
    """A later try of the same call finds the key that an earlier one made."""
    mine = Identity("seed", b"secret", "errand", "worker")
    first = ring.add("bob", KeyRole.VIEWER, None, "admin", mine)
    assert ring.add("bob", KeyRole.VIEWER, None, "admin", mine) == first
    assert len(ring.every()) == 1 and first[0] not in repr(ring.every())


def test_roles_cover_those_below() -> None:
    """An admin may do all, a viewer only look."""
    viewer, operator, admin = KeyRole
    covered = {role: {other for other in KeyRole if role.covers(other)} for role in KeyRole}
    assert covered == {viewer: {viewer}, operator: {viewer, operator}, admin: {viewer, operator, admin}}
