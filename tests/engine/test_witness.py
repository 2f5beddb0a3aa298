"""The witness: a coordinator that compares its journal with the records beside the parts, and with what agents remember."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.engine.present import present
from tests.enrolling import keys_of
from tideline.archive.records import MemoryRecords
from tideline.core.errors import ChainBroken, Refused, StorageFull, Unreachable
from tideline.engine.audit.entries import HOUR, MOST, Refusals
from tideline.engine.audit.log import (
    UNREADABLE,
    AuditEvent,
    Entry,
    Tip,
    canonical,
    chained,
    check_next,
    ends_at,
    follow,
    line_of,
    read_line,
)
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
    assert theirs.witness.seen.seq > ours.witness.seen.seq and not Coordinator(backup, records).found


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


# The chain: whatever is changed in it, taken out, put in or swapped is found, and where.
TEXTS = some.text(some.characters(codec="utf-8"), max_size=8)
DATA = some.dictionaries(
    TEXTS, some.none() | some.booleans() | some.integers() | TEXTS | some.lists(some.integers(), max_size=2), max_size=3
)
EVENTS = some.builds(AuditEvent, TEXTS, some.floats(allow_nan=False, allow_infinity=False), TEXTS, TEXTS, TEXTS, DATA)
CHAINS = some.lists(EVENTS, min_size=1, max_size=6).map(lambda events: chained(Tip(), events))


def walked(lines: list[str]) -> Tip:
    """Follow an export."""
    last = Tip()
    for number, line in enumerate(lines, 1):
        entry = read_line(number, line)
        check_next(last, entry)
        last = Tip(entry.seq, entry.hash)
    return last


def place(lines: list[str]) -> object:
    """The entry that is named as wrong."""
    with pytest.raises(ChainBroken) as told:
        walked(lines)
    return told.value.context["entry"]


def test_the_canonical_text_is_what_the_manual_says() -> None:
    """Names sorted, no spaces, ASCII; the hash is of the one before and of it. Anybody can work it out again."""
    [entry] = chained(Tip(), [AuditEvent("approved", 5.5, "alice", "ann", details={"b": [1, "é"], "a": None})])
    said = b'{"at":5.5,"by":"alice","client":"ann","details":{"a":null,"b":[1,"\\u00e9"]},"kind":"approved","run":"","seq":1}'
    assert canonical(entry) == said
    assert (
        entry.hash
        == hashlib.sha256(bytes(32) + said).hexdigest()
        == "74a87945d381ac284eca7d19e73943a001c12ae1dc509fdd37337bb0df171f51"
    )


@given(CHAINS)
def test_a_chain_that_nobody_touched_is_whole(chain: list[Entry]) -> None:
    """Also after it went through a file, and through JSON that sorts otherwise."""
    tip = follow(Tip(), chain)
    assert walked([line_of(entry) for entry in chain]) == tip == Tip(len(chain), chain[-1].hash)
    again = [replace(e, details=json.loads(json.dumps(e.details))) for e in chain]
    assert follow(Tip(), again) == tip
    ends_at(tip, tip)


@given(CHAINS, some.data())
def test_any_flipped_bit_is_found(chain: list[Entry], data: some.DataObject) -> None:
    """In any byte of any entry of an export, and the entry is named."""
    lines = [line_of(entry) for entry in chain]
    at = data.draw(some.integers(0, len(lines) - 1))
    byte = data.draw(some.integers(0, len(lines[at]) - 1))
    flipped = chr(ord(lines[at][byte]) ^ (1 << data.draw(some.integers(0, 6))))
    lines[at] = lines[at][:byte] + flipped + lines[at][byte + 1 :]
    assert place(lines) == at + 1


@given(CHAINS, some.data())
def test_an_entry_that_is_taken_out_is_found(chain: list[Entry], data: some.DataObject) -> None:
    """By its number; the last ones by the tip."""
    lines, tip = [line_of(entry) for entry in chain], follow(Tip(), chain)
    at = data.draw(some.integers(0, len(lines) - 1))
    del lines[at]
    if at < len(lines):
        assert place(lines) == at + 1
        return
    with pytest.raises(ChainBroken) as told:
        ends_at(walked(lines), tip)
    assert told.value.context["entry"] == at + 1


@given(CHAINS, EVENTS, some.data())
def test_an_entry_that_is_put_in_is_found(chain: list[Entry], event: AuditEvent, data: some.DataObject) -> None:
    """Also one whose own number and hash fit: then it is the next that does not follow, or the tip."""
    at = data.draw(some.integers(0, len(chain)))
    before = Tip() if at == 0 else Tip(chain[at - 1].seq, chain[at - 1].hash)
    [forged] = chained(before, [event])
    forgery = [*chain[:at], forged, *chain[at:]]
    tip = follow(Tip(), chain)
    with pytest.raises(ChainBroken) as told:
        ends_at(follow(Tip(), forgery), tip)
    assert told.value.context["entry"] in (at + 1, at + 2)


@given(some.lists(EVENTS, min_size=2, max_size=6).map(lambda events: chained(Tip(), events)), some.data())
def test_entries_that_are_swapped_are_found(chain: list[Entry], data: some.DataObject) -> None:
    """At the first of them."""
    lines = [line_of(entry) for entry in chain]
    one = data.draw(some.integers(0, len(lines) - 2))
    other = data.draw(some.integers(one + 1, len(lines) - 1))
    lines[one], lines[other] = lines[other], lines[one]
    assert place(lines) == one + 1


@pytest.mark.parametrize("line", ["", "{", "[]", "null", '{"seq":1}', '"text"', "[" * 100_000, '{"seq": 1, "kind": 2}'])
def test_lines_that_are_no_entries(line: str) -> None:
    """Each is refused with its number, none with a traceback."""
    with pytest.raises(ChainBroken) as told:
        read_line(7, line)
    assert told.value.context["entry"] == 7


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "1" * 5000], ids=lambda number: str(number)[:9]
)
@pytest.mark.parametrize("place", ["at", "details"])
def test_numbers_that_no_log_has(number: str, place: str) -> None:
    """Wherever one stands in a line, the line is refused with its number; so is an entry that was read elsewhere."""
    [entry] = chained(Tip(), [AuditEvent("test", 5.5, details={"x": 7.5})])
    line = line_of(entry).replace("5.5" if place == "at" else "7.5", number)
    with pytest.raises(ChainBroken) as told:
        check_next(Tip(), read_line(1, line))
    assert told.value.context["entry"] == 1


BROKEN: list[dict[str, Any]] = [{"at": float("nan")}, {"details": {"x": float("inf")}}, {"details": {"x": {1}}}, {"hash": "x"}]


@pytest.mark.parametrize("changes", BROKEN)
def test_an_entry_that_has_no_hash_is_none(changes: dict[str, Any]) -> None:
    """It is named like any other that was changed."""
    [entry] = chained(Tip(), [AuditEvent("test", 5.5)])
    with pytest.raises(ChainBroken, match="Entry 1 is not as it was written") as told:
        check_next(Tip(), replace(entry, **changes))
    assert told.value.context["entry"] == 1


def test_what_could_not_be_read_is_said() -> None:
    """Even where a hash follows from it: no log tells such a thing."""
    [entry] = chained(Tip(), [AuditEvent("test", 5.5, details={UNREADABLE: {"details": "[1]"}})])
    with pytest.raises(ChainBroken, match=r"Entry 1 is not as it was written and cannot be read: .*\[1\]"):
        check_next(Tip(), entry)


def test_a_stranger_cannot_fill_the_log() -> None:
    """The same refusal once an hour, and so many of all; what is left out is counted in the next one."""
    clock, journal = ManualClock(), MemoryJournal()
    door = Refusals(journal, clock, "grpc")
    for _ in range(3):
        for turn in range(MOST + 40):
            event = door.seen(f"name{turn}", "10.0.0.1", "who are you")
            if event:
                door.write(event)
    assert len(journal.audit()) == 1 + MOST
    assert journal.audit()[1].client == "name0" and journal.audit()[1].details["port"] == "grpc"
    clock.advance(HOUR + 1)
    event = door.seen("../etc", "10.0.0.1", "who are you")
    assert event is not None and event.details["untold"] == 3 * 40 and event.client == "" and event.details["claimed"] == "../etc"


def test_a_refusal_needs_no_journal() -> None:
    """One that cannot be written is counted, and told later."""

    class Away(MemoryJournal):
        def record(self, events: object) -> None:
            raise Unreachable("The store is away")

    door = Refusals(Away(), ManualClock(), "http")
    event = present(door.seen("", "10.0.0.1", "wrong key"))
    door.write(event)
    later = door.seen("", "10.0.0.2", "wrong key")
    assert later is not None and later.details["untold"] == 1
