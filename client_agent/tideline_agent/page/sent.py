"""A reply that left, as the ledger tells it: its fields with exposure, readers, bytes and digests."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from tideline.core.privacy import Exposure

NOTHING = "nothing"  # of a reply without values, such as that to a join
UNKNOWN = "unknown"  # exposure of what left under a contract that is no longer here
RANK = {each.value: rank for rank, each in enumerate(Exposure)}
HEAD = ("entry", "at", "run", "step", "round", "fields", "exposure", "bytes", "digests", "sizes")
Fields = tuple[tuple[str, str, str], ...]  # each with its exposure and whom it may reach
Sizes = tuple[tuple[str, int, str], ...]  # (field, bytes, digest of the file in which it lies)


@dataclass(frozen=True)
class Kind:
    """What many replies have in common."""

    run: str
    step: str
    fields: Fields

    def exposure(self, size: int) -> str:
        """Of what tells most in a reply of so many bytes."""
        return exposure_of(self.fields, size)

    def has(self, word: str) -> bool:
        """Whether a word of small letters stands in it."""
        names = (self.run, self.step, *(name for each in self.fields for name in each))
        return any(word in each.lower() for each in names)


class Sent(NamedTuple):
    """A reply that left. at: seconds from 1970. sizes: of an older version's reply none is known."""

    entry: int
    at: float
    run: str
    step: str
    round: int
    fields: Fields
    bytes: int
    digests: tuple[str, ...]
    sizes: Sizes

    @property
    def exposure(self) -> str:
        """Of what tells most in it."""
        return exposure_of(self.fields, self.bytes)


def exposure_of(fields: Fields, size: int) -> str:
    named = (each[1] for each in fields)
    return max(named, key=lambda name: RANK.get(name, len(RANK)), default=UNKNOWN if size else NOTHING)


def fields_in(written: Iterable[Iterable[Any]]) -> Fields:
    """Fields of an entry. Raises TypeError, ValueError."""
    return tuple((str(a), str(b), str(c)) for a, b, c in written)


def sizes_in(written: Any, digests: tuple[str, ...]) -> Sizes:
    """Sizes of an entry; a field without a digest of its own lies in the reply's first file, whose digest stands for all of it.

    Raises TypeError, ValueError.
    """
    first = digests[0] if digests else ""
    return tuple((str(name), int(size), str(digest) or first) for name, size, digest in written or ())


def sent_at(file: IO[bytes], offset: int, known: Sent) -> Sent:
    """The reply whose line begins at an offset of the ledger; `known` alone where that line is another by now."""
    try:
        file.seek(offset)
        raw = json.loads(file.readline())
        digests = tuple(str(each[0]) for each in raw["details"].get("files", ()))
        sizes = sizes_in(raw["details"].get("sizes"), digests)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return known
    return known._replace(digests=digests, sizes=sizes) if raw.get("seq") == known.entry else known


def as_csv(rows: Iterable[Sent]) -> Iterator[str]:
    """Lines of a CSV. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    yield ",".join(HEAD) + "\r\n"
    for each in rows:
        out = io.StringIO()
        named = "; ".join(" ".join(one) for one in each.fields)
        sizes = "; ".join(f"{name} {size} {digest}" for name, size, digest in each.sizes)
        cells: tuple[str | int, ...] = (each.run, each.step, each.round, named, each.exposure, each.bytes)
        cells = (*cells, " ".join(each.digests), sizes)
        csv.writer(out).writerow([each.entry, f"{each.at:.3f}", *map(harmless, cells)])
        yield out.getvalue()


def harmless(cell: str | int) -> str | int:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def as_lines(rows: Iterable[Sent]) -> Iterator[str]:
    """The same as JSON, a line each."""
    for each in rows:
        yield json.dumps({**each._asdict(), "exposure": each.exposure}) + "\n"
