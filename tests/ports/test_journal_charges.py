"""One suite for every journal: how often sites said that they charged their budgets, at most, and under the same name anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from journal_values import ANN, BOB, client, invite

from tests.ports.test_journal_ledgers import ann, tip
from tideline.engine.model.accounts import ShownLedger
from tideline.engine.ports.journal import Journal


@pytest.fixture
def enrolled(journal: Journal) -> Journal:
    """With ann, who has told of no budget yet."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN))
    return journal


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
