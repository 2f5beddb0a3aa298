"""One suite for every journal: entries that stand in an archive leave the audit log, and nothing else does."""

from __future__ import annotations

from journal_values import ANN, client, invite

from tideline.engine.audit.log import AuditEvent, Tip, follow
from tideline.engine.ports.journal import Journal

TOLD = AuditEvent("audit_archived", 9.0, details={"last": 2})


def filled(journal: Journal) -> list[Tip]:
    """A log of four entries: the last after each."""
    journal.add_invite(invite(), "alice", 1.0)
    journal.enrol("token", client())
    journal.revoke(ANN, "left", 5.0, "bob")
    return [Tip(entry.seq, entry.hash) for entry in journal.audit()]


def test_entries_go_up_to_one(journal: Journal) -> None:
    """The log goes on behind it, with an entry that says so; the witness is as it was."""
    tips, mark = filled(journal), journal.witness_mark()
    assert journal.audit_base() == Tip()
    assert journal.trim_audit(Tip(), tips[1], TOLD)
    assert journal.audit_base() == tips[1]
    left = journal.audit()
    assert [entry.seq for entry in left] == [3, 4, 5] and left[-1].kind == TOLD.kind
    assert follow(tips[1], left) == journal.audit_tip()
    assert journal.witness_mark() == mark
    journal.record([AuditEvent("test", 10.0)])
    assert follow(tips[1], journal.audit()) == journal.audit_tip()


def test_who_comes_second_takes_nothing(journal: Journal) -> None:
    """Nor does who knows another entry than the one that is there, or would take the last."""
    tips = filled(journal)
    before = journal.audit()
    assert not journal.trim_audit(tips[0], tips[1], TOLD)
    assert not journal.trim_audit(Tip(), Tip(2, "0" * 64), TOLD)
    assert not journal.trim_audit(Tip(), Tip(99, tips[1].hash), TOLD)
    assert not journal.trim_audit(Tip(), tips[-1], TOLD)
    assert journal.audit() == before
    assert journal.trim_audit(Tip(), tips[1], TOLD)
    assert not journal.trim_audit(Tip(), tips[1], TOLD)
    assert journal.trim_audit(tips[1], tips[2], TOLD)
    assert journal.audit_base() == tips[2]
