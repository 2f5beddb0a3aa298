"""Totals of exchanges and of sites, kept as replies come (engine.model.totals says what each is)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, exists, select, update

from tideline.core.run import ClientId, RunId
from tideline.core.settings import plain
from tideline.engine.model import totals
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN
from tideline.engine.model.totals import RoundTotals, Scores, SiteTotals
from tideline_server.store.database.dialect import upsert
from tideline_server.store.database.prepared import prepared
from tideline_server.store.listings import in_batches
from tideline_server.store.orders import lines
from tideline_server.store.schema import orders, round_totals, runs, site_totals

COUNTS = ("open", "answered", "failed", "bytes_down", "bytes_up", "scored", "accuracy")
SITE = ("bytes_down", "bytes_up", "metrics", "answered", "scored", "last")
OF_RUN = select(*(round_totals.c[name] for name in ("cursor", *COUNTS))).where(round_totals.c.run == bindparam("of"))
ONE = prepared(OF_RUN.where(round_totals.c.cursor == bindparam("at")))
SCORES = (
    select(round_totals.c.cursor, round_totals.c.scores)
    .where(round_totals.c.run == bindparam("of"), round_totals.c.scored > 0)
    .order_by(round_totals.c.cursor)
)
SITES = (
    select(site_totals.c.client, *(site_totals.c[name] for name in SITE))
    .where(site_totals.c.run == bindparam("of"))
    .order_by(site_totals.c.client)
)
SOME_SITES = SITES.where(site_totals.c.client.in_(bindparam("names", expanding=True)))
LAST = select(site_totals.c.client, site_totals.c.last).where(
    site_totals.c.run == bindparam("of"), site_totals.c.client.in_(bindparam("names", expanding=True))
)
OPEN_CURSOR = select(runs.c.cursor).where(runs.c.id == bindparam("of")).scalar_subquery()
LATELY = select(orders.c.client, orders.c.cursor.label("last")).where(
    orders.c.run == bindparam("of"),
    orders.c.client.in_(bindparam("names", expanding=True)),
    orders.c.cursor == OPEN_CURSOR,
    orders.c.answered.is_not(None),
    orders.c.failure.is_(None),
)

HERE = (round_totals.c.run == bindparam("of")) & (round_totals.c.cursor == bindparam("at"))
NEWER = exists().where(
    orders.c.run == bindparam("of"),
    orders.c.client == bindparam("by"),
    orders.c.cursor == bindparam("at"),
    orders.c.attempt > bindparam("attempt"),
)
STANDS = case((NEWER, 0), else_=1)  # of a client, the newest order tells how it stands
REPLY = prepared(
    update(round_totals)
    .where(HERE)
    .values(
        open=round_totals.c.open - STANDS * bindparam("moves"),
        answered=round_totals.c.answered + STANDS * bindparam("right"),
        failed=round_totals.c.failed + STANDS * bindparam("wrong"),
        bytes_down=round_totals.c.bytes_down + bindparam("down"),
        bytes_up=round_totals.c.bytes_up + bindparam("up"),
    )
)
GIVE_UP = update(round_totals).where(HERE).values(failed=round_totals.c.failed + round_totals.c.open, open=0)
LATE = (
    update(site_totals)
    .where(site_totals.c.run == bindparam("of"), site_totals.c.client == bindparam("by"))
    .values(
        bytes_down=site_totals.c.bytes_down + bindparam("down"),
        bytes_up=site_totals.c.bytes_up + bindparam("up"),
        last=case((site_totals.c.last < bindparam("done"), bindparam("done")), else_=site_totals.c.last),
    )
)


def begin(connection: Connection, first: Iterable[OrderRow]) -> None:
    """Count new exchanges, which have these orders and no others."""
    exchanges: defaultdict[tuple[RunId, int], list[OrderRow]] = defaultdict(list)
    for order in first:
        exchanges[order.run, order.cursor].append(order)
    for (run, cursor), every in sorted(exchanges.items()):
        write(connection, run, cursor, totals.round_totals(every))


def count(connection: Connection, new: Iterable[OrderRow]) -> None:
    """Count the open exchanges to which orders were added."""
    for run, cursor in sorted({(order.run, order.cursor) for order in new}):
        write(connection, run, cursor, totals.round_totals(lines(connection, run, cursor)))


def write(connection: Connection, run: RunId, cursor: int, found: RoundTotals, scores: Scores = ()) -> None:
    row = {"run": run, "cursor": cursor, **vars(found), "scores": plain(scores) or None}
    upsert(connection, round_totals, [row], *COUNTS, "scores")


def reply(connection: Connection, row: OrderRow) -> None:
    """Count the reply that an order has got."""
    late, right = row.status is OrderStatus.EXPIRED, row.status is OrderStatus.ANSWERED
    here = {"of": row.run, "by": row.client, "down": row.bytes_down, "up": row.bytes_up}
    moves = {"moves": int(not late), "right": int(right), "wrong": int(not late and not right)}
    connection.execute(REPLY, {**here, **moves, "at": row.cursor, "attempt": row.attempt})
    if late:
        connection.execute(LATE, {**here, "done": row.cursor if totals.worked(row) else JOIN - 1})


def give_up(connection: Connection, run: RunId, cursor: int) -> None:
    """Nobody is awaited any more in an exchange."""
    connection.execute(GIVE_UP, {"of": run, "at": cursor})


def close(connection: Connection, run: RunId, cursor: int) -> None:
    """An exchange has closed: add what it came to."""
    every = lines(connection, run, cursor)
    own = totals.by_client(every)
    known = {ClientId(r.client): site_of(r) for r in in_batches(connection, SOME_SITES, "names", sorted(own), of=run)}
    rows = []
    for client, mine in sorted(own.items()):
        site = totals.with_orders(known.get(client, SiteTotals()), mine)
        rows.append({"run": run, "client": client, **vars(site), "metrics": dict(site.metrics)})
    upsert(connection, site_totals, rows, *SITE)
    if every:
        found = totals.scores(every)
        write(connection, run, cursor, totals.with_scores(totals.round_totals(every), found), found)


def standing(connection: Connection, run: RunId, cursor: int) -> RoundTotals:
    row = connection.execute(ONE, {"of": run, "at": cursor}).one_or_none()
    return RoundTotals() if row is None else RoundTotals(*row[1:])


def of_rounds(connection: Connection, run: RunId) -> Mapping[int, RoundTotals]:
    return {row.cursor: RoundTotals(*row[1:]) for row in connection.execute(OF_RUN, {"of": run})}


def of_sites(connection: Connection, run: RunId) -> Mapping[ClientId, SiteTotals]:
    return {ClientId(row.client): site_of(row) for row in connection.execute(SITES, {"of": run})}


def site_of(row: Row[Any]) -> SiteTotals:
    return SiteTotals(*row[1:])


def scores(connection: Connection, run: RunId) -> Mapping[int, Scores]:
    rows = connection.execute(SCORES, {"of": run})
    return {row.cursor: tuple((ClientId(client), accuracy) for client, accuracy in row.scores) for row in rows}


def last_answers(connection: Connection, run: RunId, clients: Collection[ClientId]) -> Mapping[ClientId, int]:
    """The cursor of each client's last reply, or JOIN - 1: of the closed exchanges, and of the open one."""
    found = dict.fromkeys(clients, JOIN - 1)
    for query in (LAST, LATELY):
        found |= {ClientId(row.client): row.last for row in in_batches(connection, query, "names", sorted(clients), of=run)}
    return found
