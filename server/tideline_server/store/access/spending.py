"""What steps spend on computing: sums by day of each site in each project, which stay, and by run, which go with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, select

from tideline.core.run import ClientId, RunId
from tideline.engine.model.access.spending import Month, Spending, day_of, spending_of
from tideline.engine.model.orders import OrderRow, Reply
from tideline_server.store.database.dialect import add_up
from tideline_server.store.database.prepared import prepared
from tideline_server.store.runs import project_of
from tideline_server.store.schema import spent_by_day, spent_by_run

SUMS = ("gpu", "cpu", "reported", "unreported")
OF_RUN = prepared(
    select(spent_by_run.c.client, *(spent_by_run.c[name] for name in SUMS))
    .where(spent_by_run.c.run == bindparam("of"))
    .order_by(spent_by_run.c.client)
)


def summing(by: ColumnElement[Any]) -> Select[Any]:
    """The sums of projects over some days; of each group of rows, in its order."""
    sums = [func.sum(spent_by_day.c[name]).label(name) for name in SUMS]
    days = spent_by_day.c.day >= bindparam("first"), spent_by_day.c.day < bindparam("end")
    own = spent_by_day.c.project.in_(bindparam("of", expanding=True))
    return select(by, *sums).where(own, *days).group_by(by).order_by(by)


BY_PROJECT, BY_SITE, BY_DAY = (summing(spent_by_day.c[name]) for name in ("project", "client", "day"))


def add(connection: Connection, order: OrderRow, reply: Reply, now: float) -> None:
    """Count what a reply says of its step, on this day."""
    sums = vars(spending_of(reply.spent))
    add_up(connection, spent_by_run, {"run": order.run, "client": order.client, **sums}, SUMS)
    project = project_of(connection, order.run)
    add_up(connection, spent_by_day, {"project": project, "day": day_of(now), "client": order.client, **sums}, SUMS)


def of_run(connection: Connection, run: RunId) -> Mapping[ClientId, Spending]:
    return {ClientId(row.client): sums_of(row) for row in connection.execute(OF_RUN, {"of": run})}


def in_month(connection: Connection, projects: Collection[str], month: Month) -> Mapping[str, Spending]:
    rows = connection.execute(BY_PROJECT, between(projects, month)) if projects else ()
    return dict.fromkeys(projects, Spending()) | {row.project: sums_of(row) for row in rows}


def by_site(connection: Connection, project: str, month: Month) -> Mapping[ClientId, Spending]:
    rows = connection.execute(BY_SITE, between([project], month))
    return {ClientId(row.client): sums_of(row) for row in rows}


def by_day(connection: Connection, project: str, month: Month) -> Mapping[int, Spending]:
    return {row.day: sums_of(row) for row in connection.execute(BY_DAY, between([project], month))}


def between(projects: Collection[str], month: Month) -> Mapping[str, list[str] | int]:
    return {"of": list(projects), "first": month.first, "end": month.end}


def sums_of(row: Row[Any]) -> Spending:
    return Spending(float(row.gpu), float(row.cpu), int(row.reported), int(row.unreported))
