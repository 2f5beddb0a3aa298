"""What left the site, read from its ledger as that grows: found by text, run and time, counted, and shown a page at a time.

Of each reply some 50 bytes stay in memory; what a page or an export shows of it is read from the ledger again.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path

from tideline.core.errors import ChainBroken, FederationError
from tideline.engine.audit.log import START, Entry, Tip
from tideline_agent.home.ledger import FILE, ORDER, REPLY, entry_in
from tideline_agent.home.ledger_head import remembered
from tideline_agent.home.words import brief_of
from tideline_agent.page.sent import Fields, Kind, Sent, fields_in, sent_at

DIGEST = re.compile(r"(b3-)?[0-9a-f]{4,64}|b3-[0-9a-f]{1,64}")  # a word that may be of a digest; others are looked for in names
MOST_STEPS = 10_000  # orders without a reply, of which it is remembered what they were
Sums = list[tuple[str, int, int]]


@dataclass(frozen=True)
class Search:
    """text: words that all occur. since and until: seconds from 1970; 0: any."""

    text: str = ""
    run: str = ""
    since: float = 0.0
    until: float = 0.0


@dataclass(frozen=True)
class Chain:
    """How the ledger stands: its last entry, or why it is not as it was written."""

    entries: int
    hash: str
    broken: str = ""
    todo: str = ""


@dataclass
class Rows:
    """The replies in the order of the ledger, a column each. kinds: by number; fields: those of all kinds, once."""

    offset: array[int] = field(default_factory=lambda: array("q"))
    entry: array[int] = field(default_factory=lambda: array("q"))
    at: array[float] = field(default_factory=lambda: array("d"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    round: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("q"))
    kinds: list[Kind] = field(default_factory=list)
    numbers: dict[Kind, int] = field(default_factory=dict)
    fields: dict[Fields, Fields] = field(default_factory=dict)

    def add(self, offset: int, entry: Entry, kind: Kind, number: int, size: int) -> None:
        known = self.numbers.get(kind)
        if known is None:
            known = self.numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        columns: Sequence[tuple[array[int], int]] = (
            (self.offset, offset),
            (self.entry, entry.seq),
            (self.bytes, size),
            (self.round, number),
            (self.kind, known),
        )
        for column, value in columns:
            column.append(value)
        self.at.append(entry.at)

    def sums(self, found: Sequence[int], of: Callable[[Kind, int], str]) -> Sums:
        """Replies and bytes, for each name; most bytes first. of: the name, by the kind of a reply and its bytes."""
        replies: Counter[tuple[int, bool]] = Counter()
        sizes: Counter[tuple[int, bool]] = Counter()
        for at in found:
            size = self.bytes[at]
            key = self.kind[at], size > 0
            replies[key] += 1
            sizes[key] += size
        named: dict[str, tuple[int, int]] = {}
        for key, count in replies.items():
            name = of(self.kinds[key[0]], int(key[1]))
            before = named.get(name, (0, 0))
            named[name] = before[0] + count, before[1] + sizes[key]
        return sorted(((name, *sums) for name, sums in named.items()), key=lambda each: -each[2])


@dataclass(frozen=True)
class Found:
    """What a search found, the newest first. Rows are read from the ledger where they are asked for."""

    home: Path
    rows: Rows
    at: Sequence[int]

    @property
    def bytes(self) -> int:
        return sum(self.rows.bytes[each] for each in self.at)

    def by_run(self) -> Sums:
        return self.rows.sums(self.at, lambda kind, size: kind.run)

    def by_exposure(self) -> Sums:
        return self.rows.sums(self.at, lambda kind, size: kind.exposure(size))

    def read(self, skip: int = 0, most: int | None = None) -> Iterator[Sent]:
        """Some of the rows. What became unreadable since it was counted has no digests: the chain tells."""
        chosen = self.at[skip:] if most is None else self.at[skip : skip + most]
        if not chosen:
            return
        with (self.home / FILE).open("rb") as file:
            for each in chosen:
                yield sent_at(file, self.rows.offset[each], self._known(each))

    def _known(self, each: int) -> Sent:
        rows = self.rows
        kind = rows.kinds[rows.kind[each]]
        return Sent(
            entry=rows.entry[each],
            at=rows.at[each],
            run=kind.run,
            step=kind.step,
            round=rows.round[each],
            fields=kind.fields,
            bytes=rows.bytes[each],
            digests=(),
            sizes=(),
        )


@dataclass
class Egress:
    """Any number of threads. What was read is not read again: a page that looks every second costs a look at the file's size."""

    home: Path
    _rows: Rows = field(default_factory=Rows)
    _steps: dict[str, tuple[str, int]] = field(default_factory=dict)
    _contracts: dict[tuple[str, str], Fields] = field(default_factory=dict)
    _tip: Tip = field(default_factory=lambda: Tip(0, START))
    _offset: int = 0
    _broken: ChainBroken | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def chain(self) -> Chain:
        with self._lock:
            self._read()
            broken = self._broken or self._cut()
            return Chain(self._tip.seq, self._tip.hash, broken.what if broken else "", broken.todo if broken else "")

    def verify(self) -> Chain:
        """Read everything from the beginning."""
        with self._lock:
            self._restart()
        return self.chain()

    def found(self, search: Search) -> Found:
        """What fits, the newest first."""
        with self._lock:
            self._read()
            return Found(self.home, self._rows, self._search(search))

    def size(self) -> int:
        with self._lock:
            self._read()
            return len(self._rows.offset)

    def _search(self, search: Search) -> Sequence[int]:
        rows = self._rows
        chosen: Sequence[int] = range(len(rows.offset) - 1, -1, -1)
        if search.run or search.since or search.until:
            since, until = search.since, search.until
            runs = [search.run in ("", kind.run) for kind in rows.kinds]
            chosen = [i for i in chosen if runs[rows.kind[i]] and since <= rows.at[i] and (not until or rows.at[i] < until)]
        for word in dict.fromkeys(search.text.lower().split()):
            named = [kind.has(word) for kind in rows.kinds]
            if all(named):
                continue
            digests = self._with_digest(word) if DIGEST.fullmatch(word) else frozenset[int]()
            numeric = word.isdecimal()
            chosen = [
                i for i in chosen if named[rows.kind[i]] or i in digests or (numeric and word in str(rows.entry[i]))
            ]  # fmt: skip
        return chosen

    def _with_digest(self, word: str) -> frozenset[int]:
        """The replies in whose line a word stands: it is looked for in the bytes of the file, and held to the digests."""
        try:
            with (self.home / FILE).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
                lines = set[int]()
                at = whole.find(word.encode())
                while 0 <= at < self._offset:
                    lines.add(bisect_right(self._rows.offset, at) - 1)
                    at = whole.find(word.encode(), whole.find(b"\n", at) + 1)
                known = Found(self.home, self._rows, sorted(each for each in lines if each >= 0))
                pairs = zip(known.at, known.read(), strict=True)
                return frozenset(each for each, sent in pairs if any(word in digest for digest in sent.digests))
        except (OSError, ValueError):  # gone, or empty: the chain tells
            return frozenset()

    def _read(self) -> None:
        path = self.home / FILE
        try:
            size = path.stat().st_size
            if size < self._offset:
                self._restart()
            if size == self._offset or self._broken:
                return
            with path.open("rb") as file:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._take(entry_in(path, line, self._tip), len(line))
        except ChainBroken as error:
            self._broken = error
        except OSError as error:
            self._broken = ChainBroken(f"{path} cannot be read: {error.strerror}", "Bring the file back")
        except (ValueError, TypeError, KeyError, IndexError, OverflowError):
            what = f"{path}: entry {self._tip.seq + 1} is not as this version writes it"
            self._broken = ChainBroken(what, "Check it: tideline site ledger verify")

    def _restart(self) -> None:
        self._rows, self._steps, self._tip, self._offset, self._broken = Rows(), {}, Tip(0, START), 0, None

    def _cut(self) -> ChainBroken | None:
        before = remembered(self.home)
        if self._tip.seq >= before.seq:
            return None
        what = f"The ledger ends with entry {self._tip.seq}, and it had {before.seq}"
        return ChainBroken(what, "Look who has had access to the agent's home: tideline site ledger verify")

    def _take(self, entry: Entry, size: int) -> None:
        if entry.kind == ORDER:
            self._steps[str(entry.details.get("order"))] = str(entry.details.get("step", "")), int(entry.details.get("round", 0))
            if len(self._steps) > MOST_STEPS:
                del self._steps[next(iter(self._steps))]
        elif entry.kind == REPLY:
            self._sent(entry)
        self._tip, self._offset = Tip(entry.seq, entry.hash), self._offset + size

    def _sent(self, entry: Entry) -> None:
        """A reply; of one that an older version wrote, what the run's order and contract say."""
        facts = entry.details
        step, number = self._steps.pop(str(facts.get("order")), ("", 0))
        step, number = str(facts.get("step", step)), int(facts.get("round", number))
        written = facts.get("fields")
        fields = self._by_contract(entry.run, step) if written is None else fields_in(written)
        kind = Kind(entry.run, step, self._rows.fields.setdefault(fields, fields))
        self._rows.add(self._offset, entry, kind, number, int(facts.get("bytes", 0)))

    def _by_contract(self, run: str, step: str) -> Fields:
        if (run, step) not in self._contracts:
            try:
                clauses = [each for each in brief_of(self.home, run).contract if f"{each.phase}/{each.step}" == step]
            except FederationError:
                clauses = []
            named = tuple((each.field, each.exposure.value, " and ".join(sorted(each.audience))) for each in clauses)
            self._contracts[(run, step)] = named
        return self._contracts[(run, step)]
