"""Orders and their replies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, exists, insert, select, update

from tideline.core.run import ClientId, OrderId, RunId
from tideline.engine.model.accounts import Standing
from tideline.engine.model.orders import Failure, Files, Hold, OrderRow, OrderStatus
from tideline.engine.model.runs import reaches
from tideline.engine.model.said.stages import STAGES, stages_in
from tideline.engine.model.totals import OrderLine, OrderTimes
from tideline_server.store import envelopes
from tideline_server.store.database.prepared import prepared
from tideline_server.store.listings import Library, Listed, in_batches
from tideline_server.store.schema import MISSED, clients, orders, runs

ANSWER = ("status", "reply", "metrics", "facts", "failure", "answered", "progress", "bytes_down", "bytes_up")
STATUSES = {status.value: status for status in OrderStatus}
ONE = prepared(select(orders).where(orders.c.id == bindparam("order")))
OF_RUN = select(orders).where(orders.c.run == bindparam("of")).order_by(orders.c.cursor, orders.c.client, orders.c.attempt)
OF_ROUND = OF_RUN.where(orders.c.cursor == bindparam("at"))
IN_LINE = [each.name for each in fields(OrderLine)]
STATUS, FAILURE = map(IN_LINE.index, ("status", "failure"))
LINE = select(*(orders.c[name] for name in IN_LINE)).where(orders.c.run == bindparam("of"))
LINES = LINE.where(orders.c.cursor == bindparam("at")).order_by(orders.c.client, orders.c.attempt)
MISSING = LINE.where(MISSED).order_by(orders.c.cursor, orders.c.client, orders.c.attempt)
IN_TIME = ["facts" if each.name == STAGES else each.name for each in fields(OrderTimes)]
PLACES = (
    select(orders.c.cursor)
    .where(orders.c.run == bindparam("of"), orders.c.cursor <= bindparam("last"))
    .distinct()
    .order_by(orders.c.cursor.desc())
    .limit(bindparam("places"))
)
TIMES = (
    select(*(orders.c[name] for name in IN_TIME))
    .where(orders.c.run == bindparam("of"), orders.c.cursor.in_(bindparam("among", expanding=True)))
    .order_by(orders.c.cursor, orders.c.client, orders.c.attempt)
)
FURTHEST = 2**31 - 1  # behind every cursor
OPEN_OF = prepared(
    select(orders)
    .where(orders.c.client == bindparam("of"), orders.c.status == OrderStatus.OPEN)
    .order_by(orders.c.created, orders.c.id)
)
OPEN_AMONG = prepared(
    select(orders.c.id, orders.c.client).where(
        orders.c.id.in_(bindparam("names", expanding=True)), orders.c.status == OrderStatus.OPEN
    )
)
HELD_AMONG = prepared(
    select(orders.c.id, orders.c.client, orders.c.run, orders.c.held).where(
        orders.c.id.in_(bindparam("names", expanding=True)), orders.c.status == OrderStatus.OPEN
    )
)
ANSWERED = (
    select(orders.c.id, orders.c.client)
    .where(orders.c.run == bindparam("of"), orders.c.cursor == bindparam("at"), orders.c.status == OrderStatus.ANSWERED)
    .order_by(orders.c.client, orders.c.attempt)
)
BARRED = prepared(
    select(clients.c.name, clients.c.projects, runs.c.project, runs.c.cursor)
    .join(runs, runs.c.id == bindparam("of"))
    .where(
        clients.c.standing == Standing.REVOKED,
        exists().where(orders.c.client == clients.c.name, orders.c.status == OrderStatus.OPEN, orders.c.run == bindparam("of")),
    )
    .order_by(clients.c.name)
)
BEAT = prepared(
    update(orders).where(orders.c.id == bindparam("order")).values(progress=bindparam("share"), beat=bindparam("at"), held="")
)
HOLD = prepared(update(orders).where(orders.c.id == bindparam("order")).values(held=bindparam("why"), beat=bindparam("at")))
NOTE_ANSWER = prepared(update(orders).where(orders.c.id == bindparam("order")).values({name: bindparam(name) for name in ANSWER}))


def order_of(row: Row[Any], files: Mapping[int | None, Files]) -> OrderRow:
    columns = dict(row._mapping)
    columns |= {
        "files": files.get(columns.pop("message"), ()),
        "reply": files.get(row.reply, ()),
        "status": OrderStatus(row.status),
        "failure": Failure(**row.failure) if row.failure else None,
        "sealed": envelopes.from_plain(row.sealed),
    }
    return OrderRow(**columns)


def columns_of(order: OrderRow, known: Listed) -> dict[str, Any]:
    """An order's columns. `known`: the listings of its files and of its reply."""
    columns = dict(vars(order))
    columns |= {
        "message": known[columns.pop("files")],
        "reply": known[order.reply],
        "failure": asdict(order.failure) if order.failure else None,
        "sealed": envelopes.to_plain(order.sealed),
    }
    return columns


def find(connection: Connection, /, library: Library, what: Select[Any], **values: str | int) -> tuple[OrderRow, ...]:
    rows = connection.execute(what, values).all()
    files = library.files(connection, [listing for row in rows for listing in (row.message, row.reply)])
    return tuple(order_of(row, files) for row in rows)


def lines(connection: Connection, run: RunId, cursor: int) -> tuple[OrderLine, ...]:
    return tuple(map(line_of, connection.execute(LINES, {"of": run, "at": cursor})))


def recent(connection: Connection, run: RunId, places: int, last: int | None = None) -> tuple[OrderTimes, ...]:
    """The orders of a run's last exchanges, at most so many, by places of the index of rounds."""
    asked = connection.scalars(PLACES, {"of": run, "last": FURTHEST if last is None else last, "places": places}).all()
    return tuple(map(times_of, connection.execute(TIMES, {"of": run, "among": list(asked)})))


def times_of(row: Row[Any]) -> OrderTimes:
    failure = Failure(**row.failure) if row.failure else None
    columns = dict(row._mapping)
    stages = stages_in(columns.pop("facts") or {})
    return OrderTimes(**columns | {"status": STATUSES[row.status], "failure": failure, "stages": stages})


def missed(connection: Connection, run: RunId) -> tuple[OrderLine, ...]:
    return tuple(map(line_of, connection.execute(MISSING, {"of": run})))


def line_of(row: Row[Any]) -> OrderLine:
    """An order in one line. By position, which is quicker: a round may have thousands."""
    columns = list(row)
    columns[STATUS] = STATUSES[columns[STATUS]]
    columns[FAILURE] = Failure(**columns[FAILURE]) if columns[FAILURE] else None
    return OrderLine(*columns)


def barred(connection: Connection, run: RunId) -> tuple[ClientId, ...]:
    rows = connection.execute(BARRED, {"of": run}).all()
    return tuple(ClientId(row.name) for row in rows if reaches(row.cursor, row.project, row.projects))


def bare(connection: Connection, order: OrderId) -> OrderRow | None:
    row = connection.execute(ONE, {"order": order}).one_or_none()
    return order_of(row, {}) if row else None


def all_open_of(connection: Connection, client: ClientId) -> list[OrderRow]:
    return [order_of(row, {}) for row in connection.execute(OPEN_OF, {"of": client}).all()]


def runs_asking(connection: Connection, client: ClientId) -> list[RunId]:
    """The runs with an open order for a client, sorted, so that two who lock them never deadlock."""
    mine = (orders.c.client == client) & (orders.c.status == OrderStatus.OPEN)
    return list(connection.scalars(select(orders.c.run).where(mine).distinct().order_by(orders.c.run)))


def write(connection: Connection, new: Iterable[OrderRow], known: Listed) -> None:
    """Write new orders. Raises IntegrityError for a known one."""
    rows = [columns_of(order, known) for order in new]
    if rows:
        connection.execute(insert(orders), rows)


def note_answer(connection: Connection, row: OrderRow, known: Listed) -> None:
    """Write an order's reply, and nothing of what it asked for."""
    columns = columns_of(row, {row.files: None} | dict(known))
    connection.execute(NOTE_ANSWER, {"order": row.id} | {name: columns[name] for name in ANSWER})


def close(connection: Connection, run: RunId, cursor: int, status: OrderStatus) -> None:
    """End the open orders of an exchange."""
    here = (orders.c.run == run) & (orders.c.cursor == cursor)
    connection.execute(update(orders).where(here, orders.c.status == OrderStatus.OPEN).values(status=status))


def answered_beside(connection: Connection, run: RunId, cursor: int, folded: Collection[ClientId]) -> list[OrderRow]:
    """The round's answered orders whose clients were not folded, bare."""
    known = set(folded)
    rows = connection.execute(ANSWERED, {"of": run, "at": cursor}).all()
    found = [bare(connection, OrderId(row.id)) for row in rows if row.client not in known]
    return [order for order in found if order is not None]


def expire(connection: Connection, order: OrderId) -> None:
    connection.execute(update(orders).where(orders.c.id == order).values(status=OrderStatus.EXPIRED))


def hold(
    connection: Connection, client: ClientId, held: Mapping[OrderId, Hold], now: float
) -> tuple[tuple[OrderId, ...], list[tuple[OrderId, RunId]]]:
    """Note why a client lets open orders wait. Gives those that are not open, or not its own; and those, with their runs, for
    which its owner's approval is awaited from now on.
    """
    rows = {row.id: row for row in in_batches(connection, HELD_AMONG, "names", sorted(held)) if row.client == client}
    own = [{"order": order, "why": why.value, "at": now} for order, why in sorted(held.items()) if order in rows]
    if own:
        connection.execute(HOLD, own)
    new = [o for o, row in sorted(rows.items()) if held[o] is Hold.APPROVAL and row.held != Hold.APPROVAL.value]
    return tuple(order for order in held if order not in rows), [(order, RunId(rows[order].run)) for order in new]


def beat(
    connection: Connection, reported: Mapping[ClientId, Mapping[OrderId, float]], now: float
) -> dict[ClientId, tuple[OrderId, ...]]:
    """Note progress on clients' open orders. Gives those of each that are not open, or not its own."""
    named = sorted({order for progress in reported.values() for order in progress})
    whose = {row.id: row.client for row in in_batches(connection, OPEN_AMONG, "names", named)}
    rows = [
        {"order": order, "share": share, "at": now}
        for client, progress in reported.items()
        for order, share in progress.items()
        if whose.get(order) == client
    ]
    if rows:
        connection.execute(BEAT, sorted(rows, key=lambda row: str(row["order"])))
    gone = {client: tuple(order for order in progress if whose.get(order) != client) for client, progress in reported.items()}
    return {client: orders for client, orders in gone.items() if orders}
