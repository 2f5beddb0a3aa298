"""The excerpt of the audit log: the entries about one run, each with the hash before it, so that each can be computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from tideline.core.errors import ChainBroken, DossierBroken
from tideline.core.run import RunId
from tideline.core.settings import Plain
from tideline.dossier.container import AGAIN
from tideline.dossier.layout import AUDIT
from tideline.dossier.words import moment
from tideline.engine.audit.entries import SIGNER_INTRODUCED
from tideline.engine.audit.log import START, About, Entry, Tip, check_next, entry_of
from tideline.engine.ports.journal import Journal

BEFORE = "before"
PAGE = 1000  # entries that are read at once
DENSE = 10  # entries of the log for each one that is looked for, up to which all of them are read


@dataclass(frozen=True)
class Linked:
    """An entry with the hash of the one before it."""

    before: str
    entry: Entry

    @property
    def row(self) -> dict[str, Any]:
        return {BEFORE: self.before, **asdict(self.entry)}


def linked(journal: Journal, entries: Iterator[Entry]) -> Iterator[Linked]:
    """Entries with what each follows. Raises ChainBroken at one that does not follow from the log as it is."""
    base, last = journal.audit_base(), Tip()
    while page := list(islice(entries, PAGE)):
        beside = {last.seq, *(entry.seq for entry in page)}
        known = hashes_of(journal, sorted({entry.seq - 1 for entry in page} - beside), base)
        for entry in page:
            before = last if last.seq == entry.seq - 1 else Tip(entry.seq - 1, known[entry.seq - 1])
            check_next(before, entry)
            last = Tip(entry.seq, entry.hash)
            yield Linked(before.hash, entry)


def hashes_of(journal: Journal, wanted: Sequence[int], base: Tip) -> Mapping[int, str]:
    """The hashes of entries by their numbers. base: the last one of the archive, behind which the database begins."""
    found = {0: START, base.seq: base.hash}
    left = [seq for seq in wanted if seq not in found]
    if left and left[-1] - left[0] < DENSE * len(left):  # other runs between: a read of all of them is quicker
        after = left[0] - 1
        while after < left[-1] and (page := journal.audit(after, PAGE)):
            found.update((entry.seq, entry.hash) for entry in page)
            after = page[-1].seq
    for seq in left:
        if seq not in found:
            found.update((entry.seq, entry.hash) for entry in journal.audit(seq - 1, 1))
    return {seq: found.get(seq, START) for seq in wanted}


def entries_about(journal: Journal, run: RunId, last: int) -> Iterator[Entry]:
    """The entries about a run up to a number."""
    after, about = 0, About(run=run)
    while page := [entry for entry in journal.audit(after, PAGE, about) if entry.seq <= last]:
        yield from page
        after = page[-1].seq


def introduced(journal: Journal, fingerprint: str) -> Entry | None:
    """The entry that tells of a key: the last one, if it was told twice."""
    found = journal.audit(about=About(kind=SIGNER_INTRODUCED))
    return next((entry for entry in reversed(found) if entry.details.get("fingerprint") == fingerprint), None)


def heads(journal: Journal, head: Entry | None, first: Linked | None, last: Linked | None) -> dict[str, Plain]:
    """Where the chain begins, which entries the excerpt begins and ends with, and where the chain ended when it was made."""
    begins = journal.audit(0, 1)
    return {
        "begins": place_of(begins[0]) if begins else None,
        "excerpt_first": None if first is None else place_of(first.entry),
        "excerpt_last": None if last is None else place_of(last.entry),
        "head": None if head is None else place_of(head),
    }


def place_of(entry: Entry) -> dict[str, Plain]:
    return {"seq": entry.seq, "hash": entry.hash, "at": entry.at, "utc": moment(entry.at)}


def read_linked(number: int, line: bytes) -> Linked:
    """An entry of an excerpt whose hash was computed again. Raises DossierBroken."""
    try:
        row = json.loads(line)
        before = row.pop(BEFORE)
        entry = entry_of(row)
        if not isinstance(before, str) or len(bytes.fromhex(before)) != len(START) // 2:
            raise ValueError("no hash")
        check_next(Tip(entry.seq - 1, before), entry)
    except ChainBroken as error:
        raise DossierBroken(
            f"{AUDIT}, line {number}: {error.what}", AGAIN, member=AUDIT, entry=error.context.get("entry")
        ) from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError):
        raise DossierBroken(f"{AUDIT}, line {number}: no entry of an audit log", AGAIN, member=AUDIT) from None
    return Linked(before, entry)


def in_order(previous: Linked | None, found: Linked) -> None:
    """Raises DossierBroken unless an entry of an excerpt stands behind the one before it, and follows it where it is the next."""
    if previous is None:
        return
    gap = found.entry.seq - previous.entry.seq
    if gap < 1 or (gap == 1 and found.before != previous.entry.hash):
        what = f"{AUDIT}: entry {found.entry.seq} does not follow entry {previous.entry.seq}"
        raise DossierBroken(what, AGAIN, member=AUDIT, entry=found.entry.seq)
