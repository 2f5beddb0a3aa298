"""Who is let in: keys, approval, revocation, and how long a row is believed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.low_order import LOW_ORDER
from tests.engine.toys import ROSTER, start
from tests.laws.stage import Stage
from tests.synthetic import experiment
from tideline.core.errors import IdentityRefused, Malformed, NotFound, Refused, RosterRefused
from tideline.core.run import ClientId
from tideline.core.tokens import Token
from tideline.engine.coordinator.enrolment import (
    AHEAD_SECONDS,
    FRESH_SECONDS,
    MOST_SECRET,
    MOST_VERSION,
    Applicant,
    Enrolment,
    admitted,
)
from tideline.engine.coordinator.history import next_attempt
from tideline.engine.model.accounts import Client, Keys, Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal

ALL = ("source", "target", "peer")
OLD, NEW = Keys("aa" * 32, "bb" * 32), Keys("cc" * 32, "dd" * 32)


@pytest.fixture
def people(on: Stage) -> Enrolment:
    return on.run_service.enrolment


def applicant(keys: Keys = OLD, name: str = "dora") -> Applicant:
    return Applicant(name, ALL, "1.0", keys)


def enrolled(people: Enrolment, **more: Any) -> None:
    people.admit(people.invite("dora", {"site": "north"}, 60.0, **more), applicant())


def test_keys_are_kept_with_the_client(people: Enrolment) -> None:
    """They prove it from then on."""
    enrolled(people)
    known = people.find("dora")
    assert (known.keys, known.standing) == (OLD, Standing.APPROVED)


def test_a_whole_token_admits_too(people: Enrolment) -> None:
    """Beside its secret, it says where the coordinators are."""
    token = Token(people.invite("dora", {}, 60.0), ("a:1",)).text
    assert people.admit(token, applicant()).name == "dora"


def test_a_name_belongs_to_its_keys(people: Enrolment) -> None:
    """Other keys do not take a name, whatever the token."""
    enrolled(people)
    for token in (people.invite("", {}, 60.0), ""):
        with pytest.raises(IdentityRefused, match="belongs to another agent"):
            people.admit(token, applicant(NEW))
    assert people.admit("", applicant()).keys == OLD
    with pytest.raises(Refused, match="enrolled already"):
        people.invite("dora", {}, 60.0)


def test_a_held_client_waits_for_approval(on: Stage, people: Enrolment) -> None:
    """It may not work until a person says so; asked again, the same. Selectors pass over it."""
    enrolled(people, hold=True)
    with pytest.raises(IdentityRefused, match="waits for approval"):
        admitted(people.read("dora"))
    assert people.admit("", applicant()).standing is Standing.PENDING
    with pytest.raises(RosterRefused, match="No approved client has the labels"):
        on.run_service.start(experiment("fedavg", {}, select=[{"labels": {"site": "north"}, "role": "source"}]))
    for _ in range(2):
        assert on.run_service.approve("dora").standing is Standing.APPROVED
    assert admitted(people.read("dora")).name == "dora" and "client:dora" in on.bell.rung
    assert on.run_service.start(experiment("fedavg", {}, select=[{"labels": {"site": "north"}, "role": "source"}]))


def test_a_revoked_client(on: Stage, people: Enrolment) -> None:
    """It is told when and why, its orders end, its runs are woken; again is no error, and keeps the first reason."""
    name = next(iter(ROSTER))
    run = start(on)
    on.bell.rung.clear()
    revoked = on.run_service.revoke(name, "the site\nhas left")
    assert (revoked.standing, revoked.reason) == (Standing.REVOKED, "the site has left")
    assert {f"client:{name}", f"run:{run}"} <= set(on.bell.rung)
    assert {o.status for o in on.journal.orders(run) if o.client == name} == {OrderStatus.FAILED}
    assert on.run_service.revoke(name, "another").reason == "the site has left"
    with pytest.raises(IdentityRefused, match=r"revoked on 1970-01-01 .*: the site has left"):
        admitted(people.read(name))
    with pytest.raises(IdentityRefused, match="revoked on"):
        people.admit("", applicant(people.find(name).keys, name))
    with pytest.raises(Refused, match="was revoked on"):
        on.run_service.approve(name)
    with pytest.raises(RosterRefused, match="was revoked on"):
        start(on)


def test_a_run_does_not_wait_for_a_revoked_client(on: Stage) -> None:
    """What a later round asks of it ends too, so that no round waits for its deadline."""
    name = ClientId(next(iter(ROSTER)))
    run = start(on)
    on.journal.revoke(name, "left", 1.0)
    on.journal.reissue([next_attempt(o, JOIN - 1, 2.0) for o in on.journal.orders(run) if o.client == name])
    assert on.journal.open_orders(name)
    on.scheduler.turn(run)
    assert not on.journal.open_orders(name)


def test_a_revoked_name_is_invited_again(people: Enrolment) -> None:
    """With a new token and new keys it is a client like any other; without a token it stays out."""
    enrolled(people)
    used = people.invite("", {}, 60.0)
    people.admit(used, applicant(name="emil"))
    people.revoke("dora", "left")
    token = people.invite("dora", {"site": "south"}, 60.0)
    for worthless in ("", "invented", used, people.invite("", {}, 60.0)):
        with pytest.raises(IdentityRefused, match="revoked on"):
            people.admit(worthless, applicant(NEW))
    again = people.admit(token, applicant(NEW))
    assert (again.keys, again.standing, again.labels, again.reason) == (NEW, Standing.APPROVED, {"site": "south"}, "")
    with pytest.raises(IdentityRefused):
        people.admit("", applicant(OLD))


def test_new_keys_are_asked_for(people: Enrolment) -> None:
    """Of a client that has some; it is noted until it has brought others."""
    enrolled(people)
    assert people.ask_rotation("dora").rotate
    people.rekey(people.find("dora"), NEW)
    known = people.find("dora")
    assert known.keys == NEW and not known.rotate
    with pytest.raises(IdentityRefused, match="changed a moment ago"):
        people.rekey(admitted(known).__class__(**{**vars(known), "sign_key": OLD.sign}), OLD)


@pytest.mark.parametrize("receive", [*LOW_ORDER, "aa" * 31])
def test_keys_that_receive_nothing_are_refused(people: Enrolment, receive: str) -> None:
    """At enrolment and at rotation: what is sealed to a key of low order anybody could open. Nothing is changed."""
    bad, token = Keys("ee" * 32, receive), people.invite("dora", {}, 60.0)
    with pytest.raises(Malformed, match=r"The key to receive \(X25519\) .* of low order"):
        people.admit(token, applicant(bad))
    with pytest.raises(Malformed, match="of low order"):
        people.would(token, applicant(bad))
    assert people.admit(token, applicant()).keys == OLD
    with pytest.raises(Malformed, match="of low order") as refusal:
        people.rekey(people.find("dora"), bad)
    assert people.find("dora").keys == OLD and refusal.value.todo


def test_who_is_not_asked_for_new_keys(people: Enrolment) -> None:
    """Neither a revoked client nor a stranger."""
    people.admit(people.invite("emil", {}, 60.0), applicant(name="emil"))
    enrolled(people)
    people.revoke("dora", "")
    with pytest.raises(Refused, match="was revoked"):
        people.ask_rotation("dora")
    for call in (people.approve, people.ask_rotation, lambda name: people.revoke(name, "")):
        with pytest.raises(NotFound, match="no client 'emli'") as refusal:
            call("emli")
        assert "did you mean emil" in refusal.value.todo


def test_a_row_is_believed_for_a_while(on: Stage, people: Enrolment) -> None:
    """What another coordinator changes is seen after a few seconds, or at once by who looks anew; our own changes at once."""
    enrolled(people)
    assert people.cached("dora") is None
    known = people.read("dora", anew=False)
    assert people.cached("dora") == known and people.cached("nobody") is None
    on.journal.revoke(ClientId("dora"), "elsewhere", on.clock.now())
    assert people.cached("dora") == known == people.read("dora", anew=False)
    assert people.read("dora").standing is Standing.REVOKED
    on.clock.advance(FRESH_SECONDS)
    assert people.cached("dora") is None and people.read("dora", anew=False).standing is Standing.REVOKED
    enrolled_again = people.admit(people.invite("dora", {}, 60.0), applicant(NEW))
    assert people.cached("dora") is None and people.read("dora", anew=False) == enrolled_again
    people.revoke("dora", "")
    assert people.cached("dora") is None


ODD: dict[str, dict[str, Any]] = {
    "role that there is not": {"roles": ("source", "x" * 1_000_000)},
    "role twice": {"roles": ("source", "target", "source")},
    "endless version": {"version": "1" * (MOST_VERSION + 1)},
    "version with a NUL": {"version": "1.0\0"},
    "version of several lines": {"version": "1\n0"},
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_what_an_applicant_says_has_bounds(on: Stage, people: Enrolment, odd: str, known: bool) -> None:
    """It would lie in its row and in the audit log. Refused before anything is looked up, by name and in few words."""
    token = people.invite("dora", {}, 60.0)
    if known:
        people.admit(token, applicant())
    before, said = (on.journal.clients(), on.journal.audit_tip()), replace(applicant(), **ODD[odd])
    for call in (people.admit, people.would):
        with pytest.raises(Malformed) as refusal:
            call(token, said)
        assert refusal.value.todo and len(str(refusal.value)) < 300
    assert (on.journal.clients(), on.journal.audit_tip()) == before


def test_a_token_has_bounds(people: Enrolment) -> None:
    """It is hashed before it is known."""
    for call in (people.admit, people.would):
        with pytest.raises(Malformed, match="token has 4097 characters"):
            call("t" * (MOST_SECRET + 1), applicant())


class Held(MemoryJournal):
    """A journal in which the calls of one name are held: a write before it is done, a reading after."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.reached, self.go_on = "", threading.Event(), threading.Event()

    def hold(self, name: str) -> None:
        if name == self.held:
            self.reached.set()
            assert self.go_on.wait(120)

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        self.hold("approve")
        return super().approve(name, by, now)

    def client(self, name: str) -> Client | None:
        found = super().client(name)
        self.hold("client")
        return found

    def clients(self) -> tuple[Client, ...]:
        found = super().clients()
        self.hold("clients")
        return found


def federation_of(journal: Held, clock: ManualClock) -> Enrolment:
    """Dora works, and Emil waits for approval."""
    people = Enrolment(journal, clock)
    for name, hold in (("dora", False), ("emil", True)):
        people.admit(people.invite(name, {}, 60.0, hold=hold), applicant(name=name))
    people.read("dora", anew=False)
    return people


def test_a_slow_write_delays_nobody_else() -> None:
    """While a client is being changed, the others are known without a look, and looked up without a wait; then it is changed."""
    journal = Held()
    people = federation_of(journal, ManualClock())
    journal.held = "approve"
    with ThreadPoolExecutor(2) as threads:
        try:
            approving = threads.submit(people.approve, "emil")
            assert journal.reached.wait(120) and people.cached("dora") is not None
            assert threads.submit(people.read, "dora").result(120).name == "dora"
            assert threads.submit(people.read, "emil").result(120).standing is Standing.PENDING
        finally:
            journal.go_on.set()
        assert approving.result(120).standing is Standing.APPROVED
    assert people.cached("emil") is None and people.read("emil", anew=False).standing is Standing.APPROVED


def test_rows_are_read_ahead() -> None:
    """While they are read again, calls go on with those that are still good: a database that is slow holds up no call."""
    journal, clock = Held(), ManualClock()
    people = federation_of(journal, clock)
    assert not people.ageing()
    clock.advance(AHEAD_SECONDS)
    assert people.ageing()
    journal.held = "clients"
    with ThreadPoolExecutor(1) as threads:
        try:
            reading = threads.submit(people.read_ahead)
            assert journal.reached.wait(120) and people.cached("dora") is not None
        finally:
            journal.go_on.set()
        reading.result(120)
    clock.advance(FRESH_SECONDS - 0.1)
    assert people.cached("dora") is not None, "good for as long as if they had been read now"
    clock.advance(0.2)
    assert people.cached("dora") is None


@pytest.mark.parametrize("reading", ["client", "clients"])
def test_what_was_read_beside_a_change_counts_no_more(reading: str) -> None:
    """Neither one row nor everybody's: who was revoked is refused as soon as that is done. The others' rows are kept."""
    journal, clock = Held(), ManualClock()
    people = federation_of(journal, clock)
    clock.advance(0.0 if reading == "client" else FRESH_SECONDS)
    journal.held = reading
    with ThreadPoolExecutor(1) as threads:
        try:
            looking = threads.submit(people.read, "dora", reading == "client")
            assert journal.reached.wait(120)
            journal.held = ""
            people.revoke("dora", "left")
        finally:
            journal.go_on.set()
        looking.result(120)
    assert people.read("dora", anew=False).standing is Standing.REVOKED and people.cached("emil") is not None
    known = people.cached("dora")
    assert known is not None and known.standing is Standing.REVOKED
