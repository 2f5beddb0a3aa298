"""The audit log's archive: files of entries that left the database, each named by the first and the last one in it.

A file is an export's lines. Together the files and the database hold one chain. Files may overlap: who was killed between writing
one and taking its entries out of the database leaves it to the next, and two coordinators may write at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tideline.core.errors import ChainBroken
from tideline.engine.audit.log import AuditEvent, Entry, Tip, check_next, line_of, read_line

ARCHIVED = "audit_archived"  # the kind of the entry that tells of a file
NAME = re.compile(r"audit-(\d{12})-(\d{12})\.jsonl")
NOTHING = Tip()  # before the first entry
MEND = "Bring a good copy of the file back from a backup of the archive"


@dataclass(frozen=True, order=True)
class Span:
    """The first and the last entry of a file."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return f"audit-{self.first:012d}-{self.last:012d}.jsonl"


def spans_in(names: Iterable[str]) -> tuple[Span, ...]:
    """The files among these names, by their first entries; other names are left out."""
    found = (NAME.fullmatch(name) for name in names)
    return tuple(sorted(Span(int(each[1]), int(each[2])) for each in found if each is not None))


def content_of(entries: Iterable[Entry]) -> bytes:
    return "".join(line_of(entry) + "\n" for entry in entries).encode("ascii")


def entries_in(span: Span, content: bytes, before: Tip) -> Iterator[Entry]:
    """The entries of a file that follow an entry. Raises ChainBroken, which names the file, at the first that does not."""
    last = Tip()
    try:
        for number, line in enumerate(content.decode("ascii", "backslashreplace").split("\n")[:-1], span.first):
            entry = read_line(number, line)
            if entry.seq > before.seq:
                check_next(before, entry)
                before = Tip(entry.seq, entry.hash)
                yield entry
            last = Tip(entry.seq, entry.hash)
        if last.seq != span.last or not content.endswith(b"\n"):
            raise ChainBroken(f"It ends with entry {last.seq}", entry=last.seq + 1)
    except ChainBroken as error:
        what = f"The archive's file {span.name} is damaged. {error.what}"
        raise ChainBroken(what, MEND, **{**error.context, "file": span.name}) from None


def chain_in(
    spans: Iterable[Span], read: Callable[[Span], bytes], upto: int | None = None, behind: Tip = NOTHING
) -> Iterator[Entry]:
    """An archive's entries from the first one on, or from behind another, each once the chain is whole so far; all, or those up
    to a number.

    Raises ChainBroken, which says which entries no file has, or which file is damaged.
    """
    tip, left = behind, sorted(spans)
    while upto is None or tip.seq < upto:
        following = [span for span in left if span.last > tip.seq]
        if not following and upto is None:
            return
        at_hand = [span for span in following if span.first <= tip.seq + 1]
        if not at_hand:
            raise missing(tip.seq + 1, following[0].first - 1 if following else upto or 0)
        chosen = max(at_hand, key=lambda span: span.last)
        for entry in entries_in(chosen, read(chosen), tip):
            tip = Tip(entry.seq, entry.hash)
            if upto is None or entry.seq <= upto:
                yield entry


def missing(first: int, last: int) -> ChainBroken:
    """No file has these entries."""
    name = Span(first, last).name
    what = f"The archive lacks the entries {first} to {last}: there is no {name}, nor several files in its place"
    return ChainBroken(what, MEND, entry=first, file=name)


def archived(span: Span, last: Tip, content: bytes, rule: str, now: float) -> AuditEvent:
    """Entries went into a file and left the database."""
    details = {"first": span.first, "last": span.last, "hash": last.hash, "file": span.name}
    details |= {"digest": hashlib.sha256(content).hexdigest(), "bytes": len(content), "rule": rule}
    return AuditEvent(ARCHIVED, now, details=details)


def base_in(entry: Entry) -> Tip | None:
    """The last entry of the file that an entry tells of; None if it tells of none."""
    if entry.kind != ARCHIVED:
        return None
    return Tip(int(entry.details["last"]), str(entry.details["hash"]))
