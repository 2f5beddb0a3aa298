"""Small files that are read twice: the second time nothing is checked again, as long as the bytes are what they were.

Every site of a simulation gets the same message, and a coordinator reads each reply when it comes and when it is folded.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast
from weakref import ref

from torch import Tensor

from tideline.archive.checks import Rules
from tideline.archive.parts import SMALL_BYTES, Parts
from tideline.archive.reader import Reader
from tideline.archive.watching import WATCHED, watching
from tideline.archive.wire.packing import Packing
from tideline.core.record import Record, Value, is_record, specs
from tideline.core.run import Digest

R = TypeVar("R", bound=Record)
ORDER_BYTES = 1 << 20  # of an order that is remembered
# Of all replies that are remembered, and how many: of a small one the record takes more than the file.
CHECKED_BYTES, CHECKED = 1 << 25, 2048


@dataclass(frozen=True)
class Reading(Generic[R]):
    """A record over the bytes of its file.

    reply: what a reply to it is held to, if it is an order. alone: whether it lies over this file alone.
    """

    value: R
    reply: Rules
    view: memoryview
    alone: bool


def read(kind: type[R], digest: Digest, parts: Parts, rules: Rules) -> Reading[R]:
    """Read a record of a type. Raises as `decode` does."""
    reader = Reader(digest, parts, rules)
    value = reader.root(kind)
    reply = rules.of_reply(reader.checks.bound, value)
    return Reading(value=value, reply=reply, view=reader.view, alone=not reader.header.parts and not reader.unpacked)


class Orders:
    """The order that was read last in this process, whoever it was for. Any number of threads: it is put as a whole."""

    def __init__(self) -> None:
        self._last: tuple[tuple[type[Record], Digest, Mapping[str, int], Packing | None], Reading[Record]] | None = None

    def read(
        self, kind: type[R], digest: Digest, parts: Parts, sizes: Mapping[str, int], packing: Packing | None = None
    ) -> tuple[R, Rules]:
        """As `decode_order`. Tensors of two readers may lie over the same bytes; if one writes to them, the next reads anew."""
        last, key = self._last, (kind, digest, sizes, packing)
        if last is None or last[0] != key or bytes(last[1].view) != bytes(parts.view(digest)):
            last = key, read(kind, digest, parts, Rules(sizes, packing=packing))
            self._last = last if last[1].alone and len(last[1].view) <= ORDER_BYTES else None
        return cast(R, again(last[1].value)), last[1].reply


def again(value: Value) -> Value:
    """A value for another reader: records, mappings and tensors of its own, over the same bytes."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {name: again(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(again, value))
    kind: type[Record] = type(value)  # type: ignore[assignment]
    return kind(**{spec.name: again(getattr(value, spec.name)) for spec in specs(kind)}) if is_record(kind) else value


class Checked:
    """Small replies that were checked and wait for their fold, the last of them. Any number of threads.

    The rules are not held: they hold the order, and perhaps its file open, and a reply may never be folded here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[type[Record], Digest], tuple[Record, int, ref[Rules]]] = {}
        self._bytes = 0
        self._looked_at: dict[tuple[type[Record], Digest], ref[Rules]] = {}

    def check(self, kind: type[Record], digest: Digest, parts: Parts, rules: Rules) -> Record:
        """Read a reply, and remember it. Raises as `decode` does."""
        with watching(at_end=False):  # whoever folds it reads it again
            reading = read(kind, digest, parts, rules)
        with self._lock:
            self._looked_at[kind, digest] = ref(rules)
            if len(self._looked_at) > CHECKED:
                del self._looked_at[next(iter(self._looked_at))]
        if reading.alone and len(reading.view) <= SMALL_BYTES:
            with self._lock:
                self._out(kind, digest)
                self._known[kind, digest] = reading.value, len(reading.view), ref(rules)
                self._bytes += len(reading.view)
                while self._bytes > CHECKED_BYTES or len(self._known) > CHECKED:
                    self._out(*next(iter(self._known)))
        return reading.value

    def take(self, kind: type[R], digest: Digest, parts: Parts, rules: Rules) -> R:
        """A reply that was checked by the same rules, handed out once, or read now. Raises as `decode` does.

        The numbers of a large one that was checked are not looked at again: its bytes are held to the same name.
        """
        with self._lock:
            known, looked_at = self._out(kind, digest), self._looked_at.pop((kind, digest), None)
        if known is not None and known[2]() is rules:
            return cast(R, known[0])
        if looked_at is not None and looked_at() is rules and WATCHED.get() is not None:
            return read(kind, digest, parts, replace(rules, numbers=False)).value
        return read(kind, digest, parts, rules).value

    def _out(self, kind: type[Record], digest: Digest) -> tuple[Record, int, ref[Rules]] | None:
        known = self._known.pop((kind, digest), None)
        self._bytes -= known[1] if known else 0
        return known
