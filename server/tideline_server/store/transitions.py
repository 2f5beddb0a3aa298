"""What one transaction writes when a run moves: it begins, closes a round, gets an answer, ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from tideline.core.run import ClientId, Digest, RunId
from tideline.core.settings import Plain
from tideline.engine.model.accounts import Client
from tideline.engine.model.experiment import WEIGHTS_CURSOR, initial_weights_of, weights_missing
from tideline.engine.model.orders import OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import FINAL, RunRow, Status, reaches
from tideline.engine.model.transitions import (
    advanced,
    answered,
    closed_event,
    late_event,
    reply_event,
    revoked_reply,
    with_author,
)
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.journal import Advance
from tideline_server.store import envelopes, leases, orders, parts, runs, totals
from tideline_server.store.access.projects import admit_runs
from tideline_server.store.listings import Listed, digests_in, interned
from tideline_server.store.parts import Claim


def create(
    connection: Connection, new: Sequence[RunRow], asked: Iterable[OrderRow], by: str, here: Callable[[Digest], bool]
) -> None:
    """Write new runs and their first orders. Raises ConfigRefused if a run's initial weights are not here, and Refused where a
    quota of runs is reached.
    """
    admit_runs(connection, new)
    begin_from(connection, new, here)
    for run in new:
        runs.write(connection, run)
        leases.begin(connection, run.id)
        runs.note(connection, run.id, "created", with_author({"method": run.method}, by), run.created)
    first = tuple(asked)
    for created in sorted({order.created for order in first}):
        offer(connection, [order for order in first if order.created == created], created)
    totals.begin(connection, first)


def begin_from(connection: Connection, new: Sequence[RunRow], here: Callable[[Digest], bool]) -> None:
    """Refer to the initial weights of new runs. When that reference ends, they wait for another run as after an upload."""
    claims = [Claim("start", run.id, WEIGHTS_CURSOR, files) for run in new if (files := initial_weights_of(run))]
    for digest in sorted({digest for claim in claims for digest, _ in claim.files}):
        if not parts.present(connection, [digest], here):
            raise weights_missing(digest)
    if claims:
        now = max(run.created for run in new)
        parts.lay(connection, claims, now)
        parts.refer(connection, claims, interned(connection, [claim.files for claim in claims], held=True))
        parts.touch(connection, digests_in(claim.files for claim in claims), now)


def offer(connection: Connection, new: Sequence[OrderRow], now: float, *more: Claim) -> Listed:
    """Write new orders, with references to what they send and those in `more`."""
    claims = [*more, *(Claim(kind="order", run=o.run, cursor=o.cursor, files=o.files, owner=o.id, client=o.client) for o in new)]
    parts.lay(connection, claims, now)
    known = interned(connection, [claim.files for claim in claims], held=True)
    orders.write(connection, new, known)
    parts.refer(connection, claims, known)
    return known


def offer_new(connection: Connection, asked: Iterable[OrderRow], now: float) -> list[OrderRow]:
    """Write and return the orders that are not known yet."""
    new = [order for order in asked if orders.bare(connection, order.id) is None]
    offer(connection, new, now)
    totals.count(connection, new)
    return new


def set_status(connection: Connection, row: RunRow, status: Status, details: Mapping[str, Plain], now: float) -> None:
    """Write a run's new status and cause, and an event with all details."""
    ended = now if status in FINAL else None
    runs.rewrite(connection, replace(row, status=status, cause=str(details["cause"]), ended=ended))
    runs.note(connection, row.id, status.value, details, now)
    if status in FINAL:
        end(connection, row.id, row.cursor)


def advance(connection: Connection, row: RunRow, step: Advance) -> list[ClientId]:
    """Close a round and offer the next orders. Gives the clients that answered too late."""
    now, closed = step.closed.closed, step.closed
    orders.close(connection, step.run, step.from_cursor, OrderStatus.EXPIRED)
    named = envelopes.find(connection, step.run, step.sealed) if step.sealed else ()
    envelopes.need(connection, step.run, closed.next_cursor, named)
    held = [("state", closed.next_cursor, closed.state), ("sealed", closed.next_cursor, ciphers(named))]
    held += [(parts.BEST, step.from_cursor, step.best_state)]
    known = offer(connection, step.orders, now, *(Claim(kind, step.run, at, files) for kind, at, files in held))
    runs.write_round(connection, closed, known)
    runs.rewrite(connection, advanced(row, step))
    if step.members is not None:
        runs.write_members(connection, step.run, step.members)
    parts.trim(connection, step.run, step.retain_from)
    if step.best_state:
        parts.replace_best(connection, step.run, step.from_cursor)
    envelopes.trim(connection, step.run, step.retain_from)
    late = leave_out(connection, step, now)
    totals.close(connection, step.run, step.from_cursor)
    totals.begin(connection, step.orders)
    runs.note(connection, step.run, "closed", closed_event(step), now)
    if step.status in FINAL:
        runs.note(connection, step.run, step.status.value, {"cause": ""}, now)
        end(connection, step.run, step.cursor)
    return late


def leave_out(connection: Connection, step: Advance, now: float) -> list[ClientId]:
    """Mark as late the answers that came while the round was folded without them. Gives their clients."""
    found = orders.answered_beside(connection, step.run, step.from_cursor, step.closed.folded)
    for row in found:
        orders.expire(connection, row.id)
        parts.leave(connection, row)
        runs.note(connection, step.run, "late", late_event(row), now)
    return [row.client for row in found]


def end(connection: Connection, run: RunId, cursor: int) -> None:
    """Cancel a final run's open orders, which are at its cursor, and keep only its last state and the best."""
    orders.close(connection, run, cursor, OrderStatus.CANCELLED)
    totals.give_up(connection, run, cursor)
    parts.release(connection, run)
    envelopes.trim(connection, run, None)


def answer(connection: Connection, row: OrderRow, reply: Reply, now: float) -> None:
    """Write the reply that `row` has. A late one keeps nothing alive."""
    accepted = row.status is OrderStatus.ANSWERED
    sealed_files = ciphers(reply.sealed)
    named = [("reply", reply.files), ("sealed", sealed_files)] if accepted else []
    claims = [
        Claim(kind=kind, run=row.run, cursor=row.cursor, files=files, owner=row.id, client=row.client) for kind, files in named
    ]
    parts.lay(connection, claims, now)
    known = interned(connection, [reply.files, sealed_files], held=accepted)
    orders.note_answer(connection, row, known)
    totals.reply(connection, row)
    parts.drop_pushed(connection, row.run, row.client)
    parts.refer(connection, claims, known)
    envelopes.write(connection, row.run, row.cursor, reply.sealed if accepted else ())
    kind = "late" if row.status is OrderStatus.EXPIRED else row.status.value
    runs.note(connection, row.run, kind, reply_event(row, reply), now)


def lock_open_runs(connection: Connection, client: ClientId) -> None:
    """Lock the runs with an open order for a client until this transaction ends."""
    for run in orders.runs_asking(connection, client):
        runs.lock(connection, run)


def end_orders_of(connection: Connection, client: Client, now: float) -> list[tuple[OrderRow, Reply]]:
    """Fail a revoked client's open orders that reach it: these as they are then, and what stands in for their replies."""
    lock_open_runs(connection, client.name)  # one may have come since the first look
    ended = []
    for row in orders.all_open_of(connection, client.name):
        if not reaches(row.cursor, runs.project_of(connection, row.run), client.projects):
            continue
        reply = revoked_reply(row, client)
        ended.append((answered(row, reply, OrderStatus.FAILED, now, 0, 0), reply))
        answer(connection, *ended[-1], now)
    return ended


def reissue(connection: Connection, again: Iterable[OrderRow]) -> list[OrderRow]:
    """Write and return the orders of open exchanges that are not known yet and whose run has not ended."""
    new = []
    for order in again:
        runs.lock(connection, order.run)
        if runs.open_at(connection, order.run) == order.cursor:
            new += offer_new(connection, [order], order.created)
    return new
