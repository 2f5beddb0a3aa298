"""How much there is of everything, counted by the database."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Column, Connection, func, select

from tideline.engine.model.accounts import Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import Status, Tally
from tideline_server.store.schema import audit_tip, clients, orders, parts, runs

ASKED = select(func.count()).select_from(orders).where(orders.c.status == OrderStatus.OPEN)


def tally(connection: Connection) -> Tally:
    """Counts, each of one statement."""
    return Tally(
        by(connection, runs.c.status, Status),
        by(connection, clients.c.standing, Standing),
        connection.scalar(ASKED) or 0,
        connection.scalar(select(func.count()).select_from(parts)) or 0,
        connection.scalar(select(audit_tip.c.seq)) or 0,
    )


def by(connection: Connection, column: Column[str], words: type[StrEnum]) -> dict[str, int]:
    """How many rows have each of these words."""
    rows = connection.execute(select(column, func.count().label("many")).group_by(column))
    found = {str(row[0]): int(row.many) for row in rows}
    return {word.value: found.get(word.value, 0) for word in words}
