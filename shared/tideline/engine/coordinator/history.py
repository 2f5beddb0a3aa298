"""Rounds as they are folded, now or once more, and orders as they are asked once more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tideline.core.run import ClientId, Digest
from tideline.engine.model.orders import OrderRow, new_order, order_id
from tideline.engine.model.runs import RoundRow, RunRow
from tideline.engine.model.totals import newest
from tideline.engine.ports.compute import BeginRequest, Checkpoint, CloseRequest, RecordedRound
from tideline.engine.ports.journal import Journal


def messages(asked: Iterable[OrderRow]) -> dict[ClientId, Digest]:
    """The root of what each client was sent; a join sends nothing."""
    return {o.client: m for o in asked if (m := o.message)}


def recorded(cursor: int, asked: Mapping[ClientId, Digest], answered: Iterable[OrderRow]) -> RecordedRound:
    """A round as it is folded, now or once more: with the replies of these orders."""
    replied = tuple(answered)
    replies, metrics = {o.client: o.reply[0][0] for o in replied}, {o.client: o.metrics for o in replied}
    return RecordedRound(cursor, asked, replies, metrics)


def as_folded(journal: Journal, run: RunRow, closed: RoundRow) -> RecordedRound:
    """A closed round with the replies that were folded."""
    orders, folded = newest(journal.orders(run.id, closed.cursor)), set(closed.folded)
    return recorded(closed.cursor, closed.asked, [o for o in orders if o.client in folded])


def since_checkpoint(journal: Journal, run: RunRow, rounds: Sequence[RoundRow]) -> tuple[Checkpoint, tuple[RecordedRound, ...]]:
    """The last state that was kept, and the rounds that were closed since. One of them has a state."""
    last = max(i for i, r in enumerate(rounds) if r.state)
    past = tuple(as_folded(journal, run, r) for r in rounds[last + 1 :])
    return Checkpoint(rounds[last].next_cursor, rounds[last].state[0][0]), past


def again(journal: Journal, run: RunRow, rounds: Sequence[RoundRow], asked: frozenset[ClientId]) -> CloseRequest:
    """The last of these rounds, to be closed once more, from a state before it. asked: who was asked next."""
    checkpoint, history = since_checkpoint(journal, run, rounds[:-1])
    return CloseRequest(
        spec=run.spec,
        roster=run.members,
        checkpoint=checkpoint,
        history=history,
        closing=as_folded(journal, run, rounds[-1]),
        with_checkpoint=True,
        available=asked,
    )


def begin_again(run: RunRow, asked: frozenset[ClientId]) -> BeginRequest:
    """A run's beginning once more. asked: who was asked first."""
    return BeginRequest(run.spec, run.members, True, asked)


def next_attempt(order: OrderRow, after: int, now: float) -> OrderRow:
    """The same order once more: same seed, new name. after: the cursor of the client's last reply."""
    attempt = order.attempt + 1
    row = new_order(order.run, order.cursor, order.client, order.files, order.seed, after, now)
    return replace(row, id=order_id(order.run, order.cursor, order.client, attempt), attempt=attempt, sealed=order.sealed)
