"""A run's entries that have left the log's database for the archive's files: found there, and held to where the database begins.

A hash stands for all entries before it. So a chain of files that ends in the database's base is as it was written,
wherever the reading began.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tideline.core.errors import ChainBroken, Unreachable
from tideline.core.run import RunId
from tideline.core.settings import Plain
from tideline.dossier.excerpt import Linked
from tideline.engine.audit.archived import MEND, Span, chain_in, missing
from tideline.engine.audit.log import Entry, Tip, read_line

SLACK_SECONDS = 86400.0  # by which clocks of several coordinators may have differed
NO_FOLDER = (
    "this coordinator was started without --audit-archive, so it does not know where the files are: ask its admin for those up to"
    " entry {}, and look at them with tideline audit verify"
)


class Files(Protocol):
    """Where the archive's files lie. Raises OSError."""

    def spans(self) -> Sequence[Span]: ...

    def read(self, span: Span) -> bytes: ...


@dataclass(frozen=True)
class Archived:
    """What of a run is looked for in the archive. base: the last entry that left the database. why: it cannot be; empty: it can.

    spans, begin: the files that are read, and the entry behind which the reading begins.
    """

    base: Tip
    spans: tuple[Span, ...] = ()
    begin: Tip = Tip()
    why: str = ""

    @property
    def read(self) -> bool:
        return self.base.seq > 0 and not self.why

    def entries(self, files: Files | None, run: RunId) -> Iterator[Linked]:
        """The run's entries. Raises ChainBroken at what is not as it was written, naming the file; Unreachable."""
        if files is None or not self.read:
            return
        last = self.begin
        for entry in chain_in(self.spans, lambda span: content(files, span), self.base.seq, self.begin):
            if entry.run == run:
                yield Linked(last.hash, entry)
            last = Tip(entry.seq, entry.hash)
        if last != self.base:
            what = f"The archive's entry {last.seq} is not the one that left the database"
            raise ChainBroken(what, MEND, entry=last.seq)


def find(files: Files | None, created: float, base: Tip) -> Archived:
    """Which files have what was done since a run was created. Raises ChainBroken for a damaged one, Unreachable."""
    if not base.seq:
        return Archived(base)
    if files is None:
        return Archived(base, why=NO_FOLDER.format(base.seq))
    try:
        spans = tuple(span for span in files.spans() if span.first <= base.seq)
    except OSError as cause:
        return Archived(base, why=f"its folder cannot be read: {cause.strerror}")
    chosen, begin = since(files, sorted(spans), created)
    lacking = gap(chosen, begin.seq, base.seq)
    if lacking is not None:
        return Archived(base, why=f"{lacking.what[:1].lower()}{lacking.what[1:]}")
    return Archived(base, chosen, begin)


def since(files: Files, spans: Sequence[Span], created: float) -> tuple[tuple[Span, ...], Tip]:
    """The files from the one on that begins before a run was created, and the entry behind which to begin."""
    for at in reversed(range(len(spans))):
        first = first_of(spans[at], content(files, spans[at]))
        if first.seq > 1 and first.at <= created - SLACK_SECONDS:
            return tuple(spans[at:]), Tip(first.seq, first.hash)
    return tuple(spans), Tip()


def first_of(span: Span, read: bytes) -> Entry:
    """A file's first entry, as it stands there. Raises ChainBroken, which names the file."""
    line = read.partition(b"\n")[0].decode("ascii", "backslashreplace")
    try:
        found = read_line(span.first, line)
        if found.seq != span.first:
            raise ChainBroken(f"It begins with entry {found.seq}", entry=span.first)
        return found
    except ChainBroken as error:
        what = f"The archive's file {span.name} is damaged. {error.what}"
        raise ChainBroken(what, MEND, **{**error.context, "file": span.name}) from None


def gap(spans: Sequence[Span], begin: int, end: int) -> ChainBroken | None:
    """What no file has between two entries."""
    reached = begin
    while reached < end:
        last = max((span.last for span in spans if span.first <= reached + 1), default=0)
        if last <= reached:
            after = min((span.first for span in spans if span.first > reached + 1), default=end + 1)
            return missing(reached + 1, after - 1)
        reached = last
    return None


def content(files: Files, span: Span) -> bytes:
    try:
        return files.read(span)
    except OSError as cause:
        what = f"The audit log's archive cannot be read: {span.name}: {cause.strerror}"
        raise Unreachable(what, "Let the coordinator's user read it, and ask again") from None


def archived_part(found: Archived) -> dict[str, Plain] | None:
    """What heads.json tells of it; None of a log that has no archive."""
    base = found.base
    return {"seq": base.seq, "hash": base.hash, "read": found.read, "why": found.why} if base.seq else None
