"""The chain: whatever is changed in it, taken out, put in or swapped is found, and where."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tideline.core.errors import ChainBroken, Unreachable
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
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal

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
    event = door.seen("", "10.0.0.1", "wrong key")
    assert event is not None
    door.write(event)
    later = door.seen("", "10.0.0.2", "wrong key")
    assert later is not None and later.details["untold"] == 1
