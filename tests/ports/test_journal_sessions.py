"""One suite for every journal: sessions of agents, and clients that two agents are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from journal_names import ANN, BOB
from journal_values import client, invite, together

from tests.engine.present import present
from tideline.engine.audit.log import Tip
from tideline.engine.model.accounts import Client, Session, ShownLedger, Standing
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


# One suite for every journal: ends of sites' ledgers, and those that are not as they were reported.


def tip(number: int, mark: str = "a") -> Tip:
    return Tip(number, mark * 64)


@pytest.fixture
def unreported(journal: Journal) -> Journal:
    """A journal with ann, who has reported nothing yet."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN))
    return journal


def said(journal: Journal) -> list[tuple[str, dict[str, object]]]:
    return [(each.kind, dict(each.details)) for each in journal.audit() if each.kind.startswith("ledger_")]


def test_the_newest_end_is_kept(unreported: Journal) -> None:
    """Calls come in any order; nobody is made up by what is reported of him."""
    assert ann(unreported).reported == Tip()
    unreported.note_ledgers({ANN: tip(4)})
    unreported.note_ledgers({ANN: tip(3), BOB: tip(9)})
    unreported.note_ledgers({})
    assert ann(unreported).reported == tip(4) and unreported.client(BOB) is None
    assert not unreported.show_ledger(BOB, ShownLedger(tip(1)), 5.0)


def test_what_was_told_is_shown_again(unreported: Journal) -> None:
    """The first that is shown counts, and then one that has the entry that was reported."""
    assert not unreported.show_ledger(ANN, ShownLedger(tip(2)), 5.0) and ann(unreported).reported == tip(2)
    assert not unreported.show_ledger(ANN, ShownLedger(tip(7, "b"), tip(2)), 6.0)
    assert ann(unreported).reported == tip(7, "b") and not said(unreported)


@pytest.mark.parametrize(("shown", "now"), [(Tip(9, ""), 3), (tip(9, "c"), 12)], ids=["shorter", "another"])
def test_a_ledger_that_differs_is_said_once(unreported: Journal, shown: Tip, now: int) -> None:
    """What was reported stays, whatever comes meanwhile, until the ledger fits again."""
    unreported.note_ledgers({ANN: tip(9)})
    assert unreported.show_ledger(ANN, ShownLedger(tip(now, "d"), shown), 5.0)
    assert not unreported.show_ledger(ANN, ShownLedger(tip(now + 1, "e"), shown), 6.0)
    unreported.note_ledgers({ANN: tip(40, "f")})
    assert (ann(unreported).reported, ann(unreported).ledger_now) == (tip(9), now + 1)
    assert said(unreported) == [("ledger_differs", {"reported": 9, "hash": tip(9).hash, "entries": now})]
    assert not unreported.show_ledger(ANN, ShownLedger(tip(11), tip(9)), 7.0)
    assert (ann(unreported).reported, ann(unreported).ledger_now) == (tip(11), None) and said(unreported)[-1][0] == "ledger_fits"


def test_an_owner_goes_on_without_it(unreported: Journal) -> None:
    """From then on the ledger that there is counts."""
    unreported.note_ledgers({ANN: tip(9)})
    unreported.show_ledger(ANN, ShownLedger(tip(3, "d"), Tip(9, "")), 5.0)
    assert not unreported.show_ledger(ANN, ShownLedger(tip(5, "d"), Tip(9, ""), accepted=True), 6.0)
    assert (ann(unreported).reported, ann(unreported).ledger_now) == (tip(5, "d"), None)
    assert said(unreported)[-1] == ("ledger_accepted", {"reported": 9, "hash": tip(9).hash, "entries": 5})


def test_what_was_told_since_is_not_compared(unreported: Journal) -> None:
    """With an entry that an agent was asked for before; nor is what shows nothing."""
    unreported.note_ledgers({ANN: tip(9)})
    for shown in (ShownLedger(tip(3, "d"), Tip(8, "")), ShownLedger(tip(3, "d")), ShownLedger()):
        assert not unreported.show_ledger(ANN, shown, 5.0)
    assert ann(unreported).reported == tip(9) and not said(unreported)


def test_a_name_that_is_enrolled_anew_has_told_nothing(unreported: Journal) -> None:
    """Its ledger is another one."""
    unreported.note_ledgers({ANN: tip(9)})
    unreported.revoke(ANN, "left", 10.0)
    unreported.add_invite(invite("again"))
    assert unreported.enrol("again", client(ANN)) and ann(unreported) == client(ANN)


# One suite for every journal: how often sites said that they charged their budgets, at most, and under the same name anew.


def test_the_highest_number_stays(unreported: Journal) -> None:
    """With the time when it was told; nobody is made up by it."""
    assert (ann(unreported).charged, ann(unreported).charged_at) == (None, None)
    unreported.note_ledgers({}, {ANN: (0, 3.0)})
    assert (ann(unreported).charged, ann(unreported).charged_at) == (0, 3.0)
    unreported.note_ledgers({ANN: tip(4)}, {ANN: (7, 5.0), BOB: (9, 5.0)})
    unreported.note_ledgers({}, {ANN: (7, 8.0)})
    unreported.note_ledgers({}, {ANN: (6, 9.0)})
    assert (ann(unreported).charged, ann(unreported).charged_at, ann(unreported).reported) == (7, 5.0, tip(4))
    assert unreported.client(BOB) is None


def test_an_owner_who_goes_on_begins_anew(unreported: Journal) -> None:
    """A ledger that lacks entries, and whose owner accepted that, has fewer charges."""
    unreported.note_ledgers({ANN: tip(9)}, {ANN: (7, 5.0)})
    unreported.show_ledger(ANN, ShownLedger(tip(3, "b"), tip(9, "c")), 6.0)
    assert ann(unreported).charged == 7
    unreported.show_ledger(ANN, ShownLedger(tip(4, "b"), tip(9, "c"), accepted=True), 7.0)
    assert ann(unreported).charged == 0 and ann(unreported).ledger_now is None


@pytest.mark.parametrize("charged", [True, False])
def test_a_name_that_enrols_anew(unreported: Journal, charged: bool) -> None:
    """What was known of the ledger of a site with a budget stays: an empty home begins no budget by accident."""
    unreported.note_ledgers({ANN: tip(9)}, {ANN: (7, 5.0)} if charged else {})
    unreported.revoke(ANN, "its home was lost", 6.0)
    unreported.add_invite(replace(invite(), token_hash="another"))
    assert unreported.enrol("another", client(ANN))
    assert (ann(unreported).charged, ann(unreported).reported == tip(9)) == ((7, True) if charged else (None, False))
