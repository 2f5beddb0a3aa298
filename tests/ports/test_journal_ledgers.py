"""One suite for every journal: ends of sites' ledgers, and those that are not as they were reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from journal_names import ANN, BOB
from journal_values import client, invite

from tests.engine.present import present
from tideline.engine.audit.log import Tip
from tideline.engine.model.accounts import Client, ShownLedger
from tideline.engine.ports.journal import Journal


def tip(number: int, mark: str = "a") -> Tip:
    return Tip(number, mark * 64)


@pytest.fixture
def enrolled(journal: Journal) -> Journal:
    """A journal with ann, who has reported nothing yet."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN))
    return journal


def ann(journal: Journal) -> Client:
    return present(journal.client(ANN))


def said(journal: Journal) -> list[tuple[str, dict[str, object]]]:
    return [(each.kind, dict(each.details)) for each in journal.audit() if each.kind.startswith("ledger_")]


def test_the_newest_end_is_kept(enrolled: Journal) -> None:
    """Calls come in any order; nobody is made up by what is reported of him."""
    assert ann(enrolled).reported == Tip()
    enrolled.note_ledgers({ANN: tip(4)})
    enrolled.note_ledgers({ANN: tip(3), BOB: tip(9)})
    enrolled.note_ledgers({})
    assert ann(enrolled).reported == tip(4) and enrolled.client(BOB) is None
    assert not enrolled.show_ledger(BOB, ShownLedger(tip(1)), 5.0)


def test_what_was_told_is_shown_again(enrolled: Journal) -> None:
    """The first that is shown counts, and then one that has the entry that was reported."""
    assert not enrolled.show_ledger(ANN, ShownLedger(tip(2)), 5.0) and ann(enrolled).reported == tip(2)
    assert not enrolled.show_ledger(ANN, ShownLedger(tip(7, "b"), tip(2)), 6.0)
    assert ann(enrolled).reported == tip(7, "b") and not said(enrolled)


@pytest.mark.parametrize(("shown", "now"), [(Tip(9, ""), 3), (tip(9, "c"), 12)], ids=["shorter", "another"])
def test_a_ledger_that_differs_is_said_once(enrolled: Journal, shown: Tip, now: int) -> None:
    """What was reported stays, whatever comes meanwhile, until the ledger fits again."""
    enrolled.note_ledgers({ANN: tip(9)})
    assert enrolled.show_ledger(ANN, ShownLedger(tip(now, "d"), shown), 5.0)
    assert not enrolled.show_ledger(ANN, ShownLedger(tip(now + 1, "e"), shown), 6.0)
    enrolled.note_ledgers({ANN: tip(40, "f")})
    assert (ann(enrolled).reported, ann(enrolled).ledger_now) == (tip(9), now + 1)
    assert said(enrolled) == [("ledger_differs", {"reported": 9, "hash": tip(9).hash, "entries": now})]
    assert not enrolled.show_ledger(ANN, ShownLedger(tip(11), tip(9)), 7.0)
    assert (ann(enrolled).reported, ann(enrolled).ledger_now) == (tip(11), None) and said(enrolled)[-1][0] == "ledger_fits"


def test_an_owner_goes_on_without_it(enrolled: Journal) -> None:
    """From then on the ledger that there is counts."""
    enrolled.note_ledgers({ANN: tip(9)})
    enrolled.show_ledger(ANN, ShownLedger(tip(3, "d"), Tip(9, "")), 5.0)
    assert not enrolled.show_ledger(ANN, ShownLedger(tip(5, "d"), Tip(9, ""), accepted=True), 6.0)
    assert (ann(enrolled).reported, ann(enrolled).ledger_now) == (tip(5, "d"), None)
    assert said(enrolled)[-1] == ("ledger_accepted", {"reported": 9, "hash": tip(9).hash, "entries": 5})


def test_what_was_told_since_is_not_compared(enrolled: Journal) -> None:
    """With an entry that an agent was asked for before; nor is what shows nothing."""
    enrolled.note_ledgers({ANN: tip(9)})
    for shown in (ShownLedger(tip(3, "d"), Tip(8, "")), ShownLedger(tip(3, "d")), ShownLedger()):
        assert not enrolled.show_ledger(ANN, shown, 5.0)
    assert ann(enrolled).reported == tip(9) and not said(enrolled)


def test_a_name_that_is_enrolled_anew_has_told_nothing(enrolled: Journal) -> None:
    """Its ledger is another one."""
    enrolled.note_ledgers({ANN: tip(9)})
    enrolled.revoke(ANN, "left", 10.0)
    enrolled.add_invite(invite("again"))
    assert enrolled.enrol("again", client(ANN)) and ann(enrolled) == client(ANN)


# One suite for every journal: how often sites said that they charged their budgets, at most, and under the same name anew.


def test_the_highest_number_stays(enrolled: Journal) -> None:
    """With the time when it was told; nobody is made up by it."""
    assert (ann(enrolled).charged, ann(enrolled).charged_at) == (None, None)
    enrolled.note_ledgers({}, {ANN: (0, 3.0)})
    assert (ann(enrolled).charged, ann(enrolled).charged_at) == (0, 3.0)
    enrolled.note_ledgers({ANN: tip(4)}, {ANN: (7, 5.0), BOB: (9, 5.0)})
    enrolled.note_ledgers({}, {ANN: (7, 8.0)})
    enrolled.note_ledgers({}, {ANN: (6, 9.0)})
    assert (ann(enrolled).charged, ann(enrolled).charged_at, ann(enrolled).reported) == (7, 5.0, tip(4))
    assert enrolled.client(BOB) is None


def test_an_owner_who_goes_on_begins_anew(enrolled: Journal) -> None:
    """A ledger that lacks entries, and whose owner accepted that, has fewer charges."""
    enrolled.note_ledgers({ANN: tip(9)}, {ANN: (7, 5.0)})
    enrolled.show_ledger(ANN, ShownLedger(tip(3, "b"), tip(9, "c")), 6.0)
    assert ann(enrolled).charged == 7
    enrolled.show_ledger(ANN, ShownLedger(tip(4, "b"), tip(9, "c"), accepted=True), 7.0)
    assert ann(enrolled).charged == 0 and ann(enrolled).ledger_now is None


@pytest.mark.parametrize("charged", [True, False])
def test_a_name_that_enrols_anew(enrolled: Journal, charged: bool) -> None:
    """What was known of the ledger of a site with a budget stays: an empty home begins no budget by accident."""
    enrolled.note_ledgers({ANN: tip(9)}, {ANN: (7, 5.0)} if charged else {})
    enrolled.revoke(ANN, "its home was lost", 6.0)
    enrolled.add_invite(replace(invite(), token_hash="another"))
    assert enrolled.enrol("another", client(ANN))
    assert (ann(enrolled).charged, ann(enrolled).reported == tip(9)) == ((7, True) if charged else (None, False))
