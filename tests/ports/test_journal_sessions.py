"""One suite for every journal: sessions of agents, and clients that two agents are."""

from __future__ import annotations

from functools import partial

import pytest
from journal_names import ANN, BOB
from journal_values import client, invite, together

from tests.engine.present import present
from tideline.engine.model.accounts import Client, Session, Standing
from tideline.engine.ports.journal import Journal

FIRST, SECOND, COPY = Session(1, "aaaaaaaa"), Session(2, "bbbbbbbb"), Session(2, "cccccccc")


@pytest.fixture
def enrolled(journal: Journal) -> Journal:
    """With ann, in its first session."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN, session=1, session_id=FIRST.id, session_began=1.0))
    return journal


def ann(journal: Journal) -> Client:
    return present(journal.client(ANN))


def test_a_session_comes_after_the_other(enrolled: Journal) -> None:
    """Each counts further; the same again changes nothing, not even when it began."""
    assert ann(enrolled).current == FIRST
    assert not enrolled.begin_session(ANN, SECOND, 2.0) and not enrolled.begin_session(ANN, SECOND, 3.0)
    found = ann(enrolled)
    assert (found.current, found.session_began, found.standing) == (SECOND, 2.0, Standing.APPROVED)
    assert not enrolled.begin_session(BOB, SECOND, 2.0)


@pytest.mark.parametrize("other", [FIRST, COPY, Session()], ids=["an older one", "another of one count", "none at all"])
def test_a_double_is_noticed_once(enrolled: Journal, other: Session) -> None:
    """Both sessions are named, and each that comes later; it stands in the audit log."""
    enrolled.begin_session(ANN, SECOND, 2.0)
    assert enrolled.begin_session(ANN, other, 9.0)
    assert not enrolled.begin_session(ANN, other, 9.0) and not enrolled.begin_session(ANN, SECOND, 9.0)
    assert not enrolled.begin_session(ANN, Session(3, "dddddddd"), 9.0)
    found = ann(enrolled)
    assert (found.standing, found.current) == (Standing.DOUBLED, SECOND)
    assert found.doubles == (str(SECOND), str(other), "3.dddddddd")
    entry = enrolled.audit()[-1]
    assert (entry.kind, entry.client, entry.details["sessions"]) == ("doubled", ANN, [str(SECOND), str(other)])


def test_one_session_goes_on(enrolled: Journal) -> None:
    """With new keys asked for; the others are remembered as shut out, and to be approved is not enough."""
    enrolled.begin_session(ANN, SECOND, 2.0)
    assert not enrolled.let_on(ANN, SECOND, "admin", 3.0)
    enrolled.begin_session(ANN, COPY, 9.0)
    assert not enrolled.approve(ANN) and not enrolled.let_on(ANN, FIRST, "admin", 9.0)
    assert enrolled.let_on(ANN, COPY, "admin", 10.0) and not enrolled.let_on(ANN, COPY, "admin", 10.0)
    found = ann(enrolled)
    assert (found.standing, found.current, found.doubles) == (Standing.APPROVED, COPY, ())
    assert found.shut == (SECOND.id,) and found.rotate
    assert (enrolled.audit()[-1].kind, enrolled.audit()[-1].details) == ("approved", {"session": str(COPY)})


def test_a_doubled_client_may_be_revoked(enrolled: Journal) -> None:
    """And its name is free for an invitation, with no trace of the sessions before."""
    enrolled.begin_session(ANN, COPY, 2.0)
    enrolled.begin_session(ANN, SECOND, 9.0)
    enrolled.revoke(ANN, "copied", 10.0)
    assert ann(enrolled).standing is Standing.REVOKED
    enrolled.add_invite(invite("again"))
    assert enrolled.enrol("again", client(ANN)) and ann(enrolled) == client(ANN)


def test_of_two_at_once_one_is_the_double(enrolled: Journal) -> None:
    """Two coordinators, each with one of two agents."""
    assert sorted(together(*(partial(enrolled.begin_session, ANN, each, 2.0) for each in (SECOND, COPY))), key=bool) == [
        False,
        True,
    ]
    assert set(ann(enrolled).doubles) == {str(SECOND), str(COPY)}
