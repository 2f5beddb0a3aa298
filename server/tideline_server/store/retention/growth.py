"""How much a database holds of what grows for ever without a rule. It may take long: it counts rows."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from tideline.engine.model.deletion import Growth
from tideline_server.store.audit import tip
from tideline_server.store.database.dialect import SIZE
from tideline_server.store.retention.audit import base
from tideline_server.store.schema import events


def measure(connection: Connection) -> Growth:
    return Growth(
        bytes=SIZE[connection.dialect.name](connection),
        events=connection.scalar(select(func.count()).select_from(events)) or 0,
        archived=(archived := base(connection).seq),
        entries=tip(connection).seq - archived,
    )
