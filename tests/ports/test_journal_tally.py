"""One suite for every journal: how much there is."""

from __future__ import annotations

from journal_values import ANN, BOB, RUN, answer, began, client, files, first, invite, push

from tideline.engine.model.accounts import Standing
from tideline.engine.model.runs import OPEN, Status, Tally
from tideline.engine.ports.journal import Journal


def test_an_empty_journal_has_nothing(journal: Journal) -> None:
    """Every word is there; the audit log has its beginning."""
    assert journal.tally() == Tally({s.value: 0 for s in Status}, {s.value: 0 for s in Standing}, 0, 0, 1)


def test_what_there_is_is_counted(journal: Journal) -> None:
    """Runs by status, clients by standing, open orders, parts, entries."""
    for name in (ANN, BOB):
        journal.add_invite(invite(name))
        journal.enrol(name, client(name))
    journal.revoke(BOB, "left", 1.0)
    began(journal)
    push(journal, files("r", "q"))
    answer(journal, first(), files("r"))
    told = journal.tally()
    assert {k: v for k, v in told.runs.items() if v} == {"waiting": 1}
    assert {k: v for k, v in told.clients.items() if v} == {"approved": 1, "revoked": 1}
    assert (told.orders, told.parts, told.entries) == (2, 2, journal.audit_tip().seq)
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 2.0)
    assert journal.tally().orders == 0 and journal.tally().runs["cancelled"] == 1
