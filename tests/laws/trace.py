"""What two runs of one experiment must have in common, wherever they ran."""

from __future__ import annotations

from typing import NamedTuple

from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.coordinator.scheduler import newest
from tideline.engine.model.orders import OrderRow
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.journal import Journal


class Asked(NamedTuple):
    """One order."""

    cursor: int
    client: ClientId
    step: str
    message: Digest | None
    seed: int


class Answered(NamedTuple):
    """One accepted reply."""

    cursor: int
    client: ClientId
    message: Digest | None


def asked(journal: Journal, run: RunId) -> list[Asked]:
    """Every order of a run, the last attempt of each client and exchange, in order of cursor and client."""
    row = journal.run(run)
    assert row is not None
    steps = {JOIN: "join"} | {i: fact.step for i, fact in enumerate(row.plan)}
    return [Asked(o.cursor, o.client, steps[o.cursor], o.message, o.seed) for o in latest(journal, run)]


def answered(journal: Journal, run: RunId) -> list[Answered]:
    """Every accepted reply of a run, in order of cursor and client."""
    return [Answered(o.cursor, o.client, o.reply[0][0] if o.reply else None) for o in latest(journal, run) if folded(o)]


def latest(journal: Journal, run: RunId) -> list[OrderRow]:
    """The last attempt of each client at each exchange."""
    orders = journal.orders(run)
    cursors = sorted({o.cursor for o in orders})
    return [o for cursor in cursors for o in newest(o for o in orders if o.cursor == cursor)]


def folded(order: OrderRow) -> bool:
    """Whether a reply to the order was accepted."""
    return order.status.value == "answered"
