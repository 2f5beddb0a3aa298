"""Who is let in: keys, credentials from before them, approval, revocation, and how long a row is believed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.toys import ROSTER, stage, start
from tests.laws.stage import Stage
from tests.synthetic import experiment
from tideline.core.errors import IdentityRefused, NotFound, Refused, RosterRefused
from tideline.core.run import ClientId
from tideline.core.tokens import Token
from tideline.engine.enrolment import FRESH_SECONDS, Applicant, Enrolment, admitted
from tideline.engine.rows import Keys, OrderStatus, Standing

ALL = ("source", "target", "peer")
OLD, NEW = Keys("aa" * 32, "bb" * 32), Keys("cc" * 32, "dd" * 32)


@pytest.fixture
def on() -> Stage:
    return stage()


@pytest.fixture
def people(on: Stage) -> Enrolment:
    return on.office.people


def applicant(keys: Keys | None = OLD, name: str = "dora", credential: str = "") -> Applicant:
    return Applicant(name, ALL, "1.0", credential, keys)


def enrolled(people: Enrolment, **more: Any) -> None:
    people.admit(people.invite("dora", {"site": "north"}, 60.0, **more), applicant())


def test_keys_are_kept_with_the_client(people: Enrolment) -> None:
    """A client with keys needs no credential, and none is kept."""
    enrolled(people)
    known = people.find("dora")
    assert (known.keys, known.credential_hash, known.protocol, known.standing) == (OLD, "", 2, Standing.APPROVED)


def test_a_whole_token_admits_too(people: Enrolment) -> None:
    """An agent from before tokens held more than a secret sends all of it."""
    token = Token(people.invite("dora", {}, 60.0), ("a:1",)).text
    assert people.admit(token, applicant(None, credential="secret")).protocol == 1


def test_a_name_belongs_to_its_keys(people: Enrolment) -> None:
    """Neither other keys nor a credential take a name that has keys, whatever the token."""
    enrolled(people)
    for who in (applicant(NEW), applicant(None, credential=""), applicant(None, credential="guess")):
        for token in (people.invite("", {}, 60.0), ""):
            with pytest.raises(IdentityRefused, match="belongs to another agent"):
                people.admit(token, who)
    assert people.admit("", applicant()).keys == OLD


def test_an_older_agent_is_bound_to_its_keys(people: Enrolment) -> None:
    """Its credential proves it once more, with keys beside it; from then on the credential is worth nothing."""
    people.admit(people.invite("dora", {}, 60.0), applicant(None, credential="secret"))
    assert people.authenticate("dora", "secret").name == "dora"
    with pytest.raises(IdentityRefused, match="belongs to another agent"):
        people.admit("", applicant(OLD, credential="wrong"))
    bound = people.admit("", applicant(OLD, credential="secret"))
    assert (bound.keys, bound.protocol, bound.credential_hash) == (OLD, 2, "")
    with pytest.raises(IdentityRefused, match="a credential proves nothing"):
        people.authenticate("dora", "secret")
    with pytest.raises(IdentityRefused, match="belongs to another agent"):
        people.admit("", applicant(None, credential="secret"))
    assert people.admit("", applicant(OLD, credential="secret")).keys == OLD, "an answer that was lost is asked for again"


def test_a_credential_proves_one_name(people: Enrolment) -> None:
    """It needs the name's own credential; an unknown name has none."""
    people.admit(people.invite("dora", {}, 60.0), applicant(None, credential="secret"))
    for name, credential in (("dora", "wrong"), ("dora", ""), ("anna", "secret"), ("nobody", "secret")):
        with pytest.raises(IdentityRefused):
            people.authenticate(name, credential)


def test_a_held_client_waits_for_approval(on: Stage, people: Enrolment) -> None:
    """It may not work until a person says so; asked again, the same. Selectors pass over it."""
    enrolled(people, hold=True)
    with pytest.raises(IdentityRefused, match="waits for approval"):
        admitted(people.look("dora"))
    assert people.admit("", applicant()).standing is Standing.PENDING
    with pytest.raises(RosterRefused, match="No approved client has the labels"):
        on.office.start(experiment("fedavg", {}, select=[{"labels": {"site": "north"}, "role": "source"}]))
    for _ in range(2):
        assert on.office.approve("dora").standing is Standing.APPROVED
    assert admitted(people.look("dora")).name == "dora" and "client:dora" in on.bell.rung
    assert on.office.start(experiment("fedavg", {}, select=[{"labels": {"site": "north"}, "role": "source"}]))


def test_a_revoked_client(on: Stage, people: Enrolment) -> None:
    """It is told when and why, its orders end, its runs are woken; again is no error, and keeps the first reason."""
    name = next(iter(ROSTER))
    run = start(on)
    on.bell.rung.clear()
    revoked = on.office.revoke(name, "the site\nhas left")
    assert (revoked.standing, revoked.reason) == (Standing.REVOKED, "the site has left")
    assert {f"client:{name}", f"run:{run}"} <= set(on.bell.rung)
    assert {o.status for o in on.journal.orders(run) if o.client == name} == {OrderStatus.FAILED}
    assert on.office.revoke(name, "another").reason == "the site has left"
    with pytest.raises(IdentityRefused, match=r"revoked on 1970-01-01 .*: the site has left"):
        admitted(people.look(name))
    with pytest.raises(IdentityRefused, match="revoked on"):
        people.admit("", applicant(None, name=name, credential=f"credential of {name}"))
    with pytest.raises(Refused, match="was revoked on"):
        on.office.approve(name)
    with pytest.raises(RosterRefused, match="was revoked on"):
        start(on)


def test_a_run_does_not_wait_for_a_revoked_client(on: Stage) -> None:
    """What a later round asks of it ends too, so that no round waits for its deadline."""
    name = ClientId(next(iter(ROSTER)))
    run = start(on)
    on.journal.revoke(name, "left", 1.0)
    on.journal.reissue([on.office.next_attempt(o, 2.0) for o in on.journal.orders(run) if o.client == name])
    assert on.journal.open_orders(name)
    on.conductor.turn(run)
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


def test_who_has_no_keys_is_not_asked_for_others(people: Enrolment) -> None:
    """Neither one of protocol 1, nor a revoked one, nor a stranger."""
    people.admit(people.invite("emil", {}, 60.0), applicant(None, "emil", "secret"))
    with pytest.raises(Refused, match="speaks protocol 1"):
        people.ask_rotation("emil")
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
    known = people.look("dora", anew=False)
    assert people.cached("dora") == known and people.cached("nobody") is None
    on.journal.revoke(ClientId("dora"), "elsewhere", on.clock.now())
    assert people.cached("dora") == known == people.look("dora", anew=False)
    assert people.look("dora").standing is Standing.REVOKED
    on.clock.advance(FRESH_SECONDS)
    assert people.cached("dora") is None
    assert people.look("dora", anew=False).standing is Standing.REVOKED
    enrolled_again = people.admit(people.invite("dora", {}, 60.0), applicant(NEW))
    assert people.cached("dora") is None and people.look("dora", anew=False) == enrolled_again
    people.revoke("dora", "")
    assert people.cached("dora") is None
