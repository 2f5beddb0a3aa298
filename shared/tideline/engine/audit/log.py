"""The audit log: what was done, each entry tied to the one before by a hash, so that none can be changed or taken out unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tideline.core.errors import ChainBroken
from tideline.core.settings import EMPTY

START = "0" * 64  # stands for the hash before the first entry
BEGUN = "log_begun"  # the first entry of a database; what was done before is not recorded
UNREADABLE = "unreadable"  # in `details`: what stands in the place of an entry and cannot be read, by field; written by nobody
MOST_WORDS = 500  # characters of what is wrong with an entry
BACKUP = "Keep a copy of the database as it is, and compare it with a backup from before"


@dataclass(frozen=True)
class AuditEvent:
    """Something that was done. by: the API key's name, or nothing; details: plain data of its kind (docs/audit.md)."""

    kind: str
    at: float
    by: str = ""
    client: str = ""
    run: str = ""
    details: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class Entry(AuditEvent):
    """A event in its place, counted from 1. hash: SHA-256 of the hash before, as bytes, and of the entry's canonical text."""

    seq: int = 0
    hash: str = ""


@dataclass(frozen=True)
class Mention:
    """What an entry is about, without the rest of it."""

    kind: str
    client: str = ""
    run: str = ""


@dataclass(frozen=True)
class Tip:
    """The last entry of a chain; 0 of one that is empty."""

    seq: int = 0
    hash: str = START


@dataclass(frozen=True)
class About:
    """Which entries are looked for. Empty: any."""

    run: str = ""
    client: str = ""
    kind: str = ""
    since: float | None = None

    def fits(self, entry: Entry) -> bool:
        named = all(mine in ("", theirs) for mine, theirs in self._pairs(entry))
        return named and (self.since is None or entry.at >= self.since)

    def _pairs(self, entry: Entry) -> Iterable[tuple[str, str]]:
        return ((self.run, entry.run), (self.client, entry.client), (self.kind, entry.kind))


ALL = About()


def canonical(entry: Entry) -> bytes:
    """An entry without its hash, as the bytes that are hashed: JSON with sorted names, no spaces, ASCII alone."""
    plain_entry = asdict(entry)
    del plain_entry["hash"]
    return json.dumps(plain_entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def hash_after(before: str, entry: Entry) -> str:
    return hashlib.sha256(bytes.fromhex(before) + canonical(entry)).hexdigest()


def chained(tip: Tip, events: Iterable[AuditEvent]) -> list[Entry]:
    """The deeds as the entries that follow a tip."""
    made: list[Entry] = []
    for event in events:
        entry = Entry(
            kind=event.kind,
            at=float(event.at),
            by=event.by,
            client=event.client,
            run=event.run,
            details=plain(event.details),
            seq=tip.seq + 1,
        )
        entry = Entry(**{**vars(entry), "hash": hash_after(tip.hash, entry)})
        made.append(entry)
        tip = Tip(entry.seq, entry.hash)
    return made


def plain(details: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(details, default=dict))
    return found


def follow(tip: Tip, entries: Iterable[Entry]) -> Tip:
    """The last of entries that follow a tip. Raises ChainBroken with the number of the first that does not."""
    for entry in entries:
        check_next(tip, entry)
        tip = Tip(entry.seq, entry.hash)
    return tip


def check_next(tip: Tip, entry: Entry) -> None:
    wanted = tip.seq + 1
    if entry.seq != wanted:
        raise broken(wanted, f"is not where it belongs: entry {entry.seq} stands there", found=entry.seq)
    if UNREADABLE in entry.details:
        raise broken(wanted, f"is not as it was written and cannot be read: {entry.details[UNREADABLE]}", found=entry.hash)
    made = made_of(tip.hash, entry)
    if made != entry.hash:
        what = f"is not as it was written: its hash is {entry.hash[:12]}, and {made[:12] or 'none'} follows from what it says"
        raise broken(wanted, what, found=entry.hash, expected=made)


def made_of(before: str, entry: Entry) -> str:
    """The hash behind this one; nothing for an entry that no log can hold, such as one with a number that is none."""
    try:
        return hash_after(before, entry)
    except (ValueError, TypeError, RecursionError):
        return ""


def broken(entry: int, what: str, **context: object) -> ChainBroken:
    return ChainBroken(f"Entry {entry} {what[:MOST_WORDS]}", BACKUP, entry=entry, **context)


def ends_at(last: Tip, tip: Tip) -> None:
    """Raises ChainBroken unless a chain that was followed to `last` is whole up to its tip."""
    if last != tip:
        wrong = last.seq if last.seq == tip.seq else min(last.seq, tip.seq) + 1
        what = f"The log ends with entry {last.seq}, and its tip tells of entry {tip.seq} with hash {tip.hash[:12]}"
        raise ChainBroken(what, BACKUP, entry=wrong, found=last.hash, expected=tip.hash)


def line_of(entry: Entry) -> str:
    return json.dumps(asdict(entry), sort_keys=True, separators=(",", ":"), allow_nan=False)


def entry_of(row: Mapping[str, Any]) -> Entry:
    """An entry from plain data, whatever its hash. Raises TypeError, KeyError, ValueError and OverflowError for what is none."""
    texts = {name: row[name] for name in ("kind", "by", "client", "run", "hash")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("not a text")
    seq, at = row["seq"], row["at"]
    if type(seq) is not int or type(at) not in (int, float) or not isinstance(row["details"], Mapping):
        raise ValueError("not an entry")
    if len(row) != len(texts) + 3:
        raise ValueError("not an entry")
    return Entry(
        kind=texts["kind"],
        at=float(at),
        by=texts["by"],
        client=texts["client"],
        run=texts["run"],
        details=dict(row["details"]),
        seq=seq,
        hash=texts["hash"],
    )


def read_line(number: int, line: str) -> Entry:
    """The entry of a line of an export. Raises ChainBroken for a line that was not written by `line_of`."""
    try:
        entry = entry_of(json.loads(line))
        if line_of(entry) == line:
            return entry
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass
    raise ChainBroken(f"Line {number} is no entry of an audit log", "Export the log again", entry=number)
