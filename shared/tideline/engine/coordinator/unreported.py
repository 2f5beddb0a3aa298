"""What agents have pushed and not reported yet: how much a reply may bring, and a client in all, and what goes with its order."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from tideline.archive.errors import TooLarge, Undeclared
from tideline.core.asked.world import World
from tideline.core.errors import TooMany
from tideline.core.privacy import Clause, Exposure
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.model.orders import Arrivals, OrderRow
from tideline.engine.model.runs import JOIN, RunRow

GB = 10**9
SLACK_BYTES = 64 << 20  # for headers, numbers, and a step that was begun again
TIMES = 4  # that the declared bytes may come: a step that is begun again gives other bytes
NUMBER_BYTES = 8  # the widest number
MOST_PARTS = 1 << 14  # of one order: twice what a root may name
CHECK_SECONDS = 5.0  # between two looks at whether orders have ended
LIKE = "like "


@dataclass(frozen=True)
class Allowance:
    """Bytes of a reply whose contract does not bound them, and of all that one client has pushed and not reported."""

    reply: int = 4 * GB
    client: int = 32 * GB


def most_bytes(run: RunRow, row: OrderRow, otherwise: int) -> int:
    """An upper bound on the bytes of an order's reply, with slack. otherwise: where the contract bounds none."""
    fact = run.fact(row.cursor)
    own = [c for c in run.contract if (c.phase, c.step) == (fact.phase, fact.step) and not c.field.startswith("metrics.")]
    sent = sum(size for _, size in row.files)
    sizes = [bytes_of(clause, run.spec.world, sent) for clause in own]
    known = [size for size in sizes if size is not None]
    return otherwise if len(known) < len(sizes) else TIMES * sum(known) + SLACK_BYTES


def bytes_of(clause: Clause, world: World, sent: int) -> int | None:
    """At most so many bytes come for a clause; None if nobody knows. sent: the bytes of the order's message."""
    if clause.dims.startswith(LIKE):
        return sent
    words = clause.dims.split()
    if ".*" in clause.field or (not words and clause.exposure not in (Exposure.COUNT, Exposure.METRIC)):
        return None
    sizes = [int(word) if word.isdigit() else world.sizes.get(word) for word in words]
    known = [size for size in sizes if size is not None]
    return None if len(known) < len(sizes) else NUMBER_BYTES * prod(known)


@dataclass
class Pushed:
    """What was announced for an order: the bytes of each part. whole: those that are here."""

    run: RunId
    client: ClientId
    parts: dict[Digest, int] = field(default_factory=dict)
    whole: set[Digest] = field(default_factory=set)

    @property
    def bytes(self) -> int:
        """All of them."""
        return sum(self.parts.values())


class Unreported:
    """What was pushed here for open orders. Any number of threads. It ends with the process; files that are left go in a day."""

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self._lock = threading.Lock()
        self._pushed: dict[OrderId, Pushed] = {}
        self._looked = 0.0

    def announce(self, run: RunRow, row: OrderRow, arrivals: Arrivals) -> None:
        """Note what a push brings. Raises Undeclared at a join, TooLarge beyond the contract, TooMany beyond the client's."""
        if row.cursor == JOIN:
            raise Undeclared("The answer to a join brings no files", "Report it without pushing")
        most = most_bytes(run, row, self.allowance.reply)
        with self._lock:
            known = self._pushed.get(row.id) or Pushed(row.run, row.client)
            parts = known.parts | {digest: size for digest, size, _ in arrivals}
            if (total := sum(parts.values())) > most or len(parts) > MOST_PARTS:
                what = f"{total} bytes in {len(parts)} parts are pushed for order {row.id[:8]}; its reply may have {most} bytes"
                raise TooLarge(
                    what, "Send what the contract declares; the coordinator's --reply-limit bounds what it leaves open"
                )
            others = sum(each.bytes for order, each in self._pushed.items() if each.client == row.client and order != row.id)
            if others + total > self.allowance.client:
                what = f"{row.client} has pushed {others} bytes that it has not reported; it may have {self.allowance.client}"
                raise TooMany(what, "Report what was pushed; the coordinator's --unreported-limit sets the limit")
            known.parts = parts
            self._pushed[row.id] = known

    def came(self, order: OrderId, digests: Iterable[Digest]) -> None:
        """Parts of an order are whole."""
        with self._lock:
            if (pushed := self._pushed.get(order)) is not None:
                pushed.whole.update(digests)

    def over(self, order: OrderId) -> Pushed | None:
        """An order has ended: what was pushed for it."""
        with self._lock:
            return self._pushed.pop(order, None)

    def overdue(self, now: float) -> bool:
        """Whether it is time to look for orders that have ended. Asks nobody."""
        return bool(self._pushed) and not 0.0 <= now - self._looked < CHECK_SECONDS

    def orders(self, now: float) -> Sequence[OrderId]:
        """The orders for which something was pushed; they are looked at now."""
        with self._lock:
            self._looked = now
            return tuple(self._pushed)
