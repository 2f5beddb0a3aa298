"""One suite for every journal: ends of sites' ledgers, and those that are not as they were reported."""

from __future__ import annotations

import pytest
from journal_values import ANN, BOB, client, invite

from tideline.engine.audit.log import Tip
from tideline.engine.model.accounts import Client, ShownLedger
from tideline.engine.ports.journal import Journal


def tip(number: int, mark: str = "a") -> Tip:
    return Tip(number, mark * 64)


@pytest.fixture
def enrolled(journal: Journal) -> Journal:
    """With ann, who has reported nothing yet."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN))
    return journal


def ann(journal: Journal) -> Client:
    found = journal.client(ANN)
    assert found is not None
    return found


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
