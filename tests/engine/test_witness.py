"""The witness: a coordinator that compares its journal with the records beside the parts, and with what agents remember."""

from __future__ import annotations

import copy

import pytest

from tests.enrolling import keys_of
from tideline.archive.records import MemoryRecords
from tideline.core.errors import Refused, StorageFull, Unreachable
from tideline.engine.audit.log import Tip, follow
from tideline.engine.audit.witness import Seen
from tideline.engine.coordinator.api_keys import ApiKeys
from tideline.engine.coordinator.enrolment import Applicant, Enrolment
from tideline.engine.coordinator.witness import Witness, sentence
from tideline.engine.model.accounts import KeyRole, Standing
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal


class Coordinator:
    """A journal, where its records lie, and who looks after both."""

    def __init__(self, journal: MemoryJournal, records: MemoryRecords) -> None:
        self.journal, self.records, self.clock = journal, records, ManualClock(1000.0)
        self.found: list[str] = []
        self.witness = Witness(journal, self.clock, lambda chain: records, lambda entry: self.found.append(sentence(entry)))
        self.witness.begin()
        self.enrolment = Enrolment(journal, self.clock, self.witness)
        self.api_keys = ApiKeys(journal, self.clock, [], self.witness)

    def enrol(self, name: str) -> None:
        """An agent comes by an invitation."""
        self.enrolment.admit(self.enrolment.invite(name, {}, 60.0), Applicant(name, ("source",), "1", keys_of(name)))

    def copy(self) -> MemoryJournal:
        """A backup of the journal."""
        made = MemoryJournal()
        for name in ("_invites", "_clients", "_keys", "_witness", "_entries", "_chain_id"):
            setattr(made, name, copy.copy(getattr(self.journal, name)))
        made._secret = self.journal._secret
        return made


@pytest.fixture
def ours() -> Coordinator:
    """One client, and a key of alice's."""
    made = Coordinator(MemoryJournal(), MemoryRecords())
    made.enrol("ann")
    made.api_keys.add("alice", KeyRole.ADMIN, None, "admin")
    return made


def test_each_is_there_before_it_is_acknowledged(ours: Coordinator) -> None:
    """A record beside the parts for each that the journal has."""
    ours.enrolment.revoke("ann", "left")
    ours.api_keys.revoke("alice")
    assert len(ours.records.held) == 3 and not ours.witness.behind
    assert all(entry.hash.encode() in ours.records.held[entry.seq] for entry in ours.journal.witness())


def test_a_store_without_room(ours: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revocation is in force and is not acknowledged; said again once there is room, it is."""

    class Full(MemoryRecords):
        def write(self, number: int, content: bytes) -> bool:
            raise StorageFull("No room", "Make some")

    other = Coordinator(ours.copy(), ours.records)
    other.witness._records = Full()
    with pytest.raises(StorageFull, match="cannot be written"):
        other.enrolment.revoke("ann", "left")
    assert other.witness.behind and other.enrolment.find("ann").standing is Standing.REVOKED
    other.witness._records = ours.records
    other.enrolment.revoke("ann", "left")
    assert not other.witness.behind and len(ours.records.held) == 2


def test_a_database_that_is_older(ours: Coordinator) -> None:
    """It catches up as it starts, and waits for an admin; it starts again and says so again; then nothing is left to say."""
    backup = ours.copy()
    ours.enrolment.revoke("ann", "left")
    ours.api_keys.revoke("alice")
    theirs = Coordinator(backup, ours.records)
    assert theirs.enrolment.find("ann").standing is Standing.REVOKED
    assert "older than its witness" in theirs.found[0] and theirs.witness.warnings() == (theirs.found[0],)
    assert not theirs.witness.closed and follow(Tip(), theirs.journal.witness()) == theirs.journal.witness_mark().tip
    again = Coordinator(backup, ours.records)
    assert again.witness.warnings() and len(again.found) == 1
    again.witness.confirm("admin")
    theirs.witness.turn()
    assert again.witness.warnings() == theirs.witness.warnings() == ()
    with pytest.raises(Refused):
        theirs.witness.confirm("admin")
    assert not Coordinator(backup, ours.records).found


def test_records_that_are_gone(ours: Coordinator) -> None:
    """A journal that has them all writes them again."""
    theirs = Coordinator(ours.copy(), MemoryRecords())
    assert theirs.records.held == ours.records.held and not theirs.found


def test_both_are_older_than_an_agent_remembers(ours: Coordinator) -> None:
    """Nobody is let in until an admin confirms; then that agent, and another with an older memory, change nothing."""
    backup, held = ours.copy(), dict(ours.records.held)
    ours.enrolment.revoke("ann", "left")
    older = ours.witness.seen
    ours.api_keys.revoke("alice")
    records = MemoryRecords()
    records.held = held
    theirs = Coordinator(backup, records)
    theirs.witness.shown(Seen())
    with pytest.raises(Unreachable, match="nobody knows who was revoked"):
        theirs.witness.shown(ours.witness.seen)
    with pytest.raises(Unreachable):
        theirs.api_keys.caller("tidekey_x")
    assert theirs.witness.closed and "nobody" not in theirs.found[0] and "is not known" in theirs.found[0]
    theirs.witness.confirm("admin")
    for each in (ours.witness.seen, older):
        theirs.witness.shown(each)
    assert theirs.witness.seen.seq > ours.witness.seen.seq
    assert not Coordinator(backup, records).found


def test_a_memory_of_another_branch(ours: Coordinator) -> None:
    """As many records as the agent remembers, and others: it is noticed by their hashes."""
    backup = ours.copy()
    ours.enrolment.revoke("ann", "left")
    theirs = Coordinator(backup, MemoryRecords())
    for name in ("bob", "cyd"):
        theirs.enrol(name)
    with pytest.raises(Unreachable):
        theirs.witness.shown(ours.witness.seen)
    theirs.witness.confirm("admin")
    theirs.witness.shown(ours.witness.seen)


def test_a_memory_that_was_made_up(ours: Coordinator) -> None:
    """It is passed over: an agent cannot have everybody shut out."""
    ours.witness.shown(Seen(99, "ab" * 32, "cd" * 32))
    assert not ours.witness.closed


def test_a_record_that_cannot_be_read(ours: Coordinator) -> None:
    """Who lacks it does not know who was revoked; who has it goes on."""
    backup = ours.copy()
    ours.enrolment.revoke("ann", "left")
    ours.api_keys.revoke("alice")
    ours.records.held[2] = b"{"
    theirs = Coordinator(backup, ours.records)
    assert theirs.witness.closed and theirs.api_keys.every()[0].revoked is not None
    theirs.witness.confirm("admin")
    theirs.enrolment.revoke("ann", "left")
    assert not theirs.witness.closed and not theirs.witness.behind


def test_a_damaged_record_of_ones_own(ours: Coordinator) -> None:
    """It contradicts nobody: the journal has what it said."""
    ours.enrolment.revoke("ann", "left")
    ours.records.held[1] = ours.records.held[2] = b"{"
    ours.enrol("bob")
    assert not Coordinator(ours.copy(), ours.records).found and not ours.found


def test_two_databases_side_by_side(ours: Coordinator) -> None:
    """Who goes on with the old one beside the restored one sees it at the first record that both write."""
    theirs = Coordinator(ours.copy(), ours.records)
    ours.enrolment.revoke("ann", "left")
    theirs.enrol("bob")
    assert theirs.found and theirs.enrolment.find("ann").standing is Standing.REVOKED
    assert not theirs.witness.behind
