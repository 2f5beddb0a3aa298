"""Keys of the people's door."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

from sqlalchemy import Connection, Insert, Row, or_, select, update

from tideline.engine.model.accounts import ApiKey, KeyRole
from tideline_server.store.database.dialect import INSERTS
from tideline_server.store.schema import GOOD, api_keys

EVERY = select(api_keys).order_by(api_keys.c.created, api_keys.c.id)


def key_of(row: Row[Any]) -> ApiKey:
    """A key from its columns."""
    return ApiKey(**{**row._mapping, "role": KeyRole(row.role)})


def add(connection: Connection, key: ApiKey) -> bool:
    """Write a key; False where its id is known, or its name is that of a key that is good."""
    statement = INSERTS[connection.dialect.name](api_keys).on_conflict_do_nothing()
    wanted = asdict(key) | {"role": key.role.value}
    return connection.execute(cast(Insert, statement).returning(api_keys.c.id), wanted).one_or_none() is not None


def every(connection: Connection) -> tuple[ApiKey, ...]:
    """All keys, the oldest first."""
    return tuple(map(key_of, connection.execute(EVERY)))


def revoke(connection: Connection, name: str, now: float) -> bool:
    """Revoke the key of a name; False where none is good."""
    found = update(api_keys).where(api_keys.c.name == name, GOOD).values(revoked=now).returning(api_keys.c.id)
    return connection.execute(found).one_or_none() is not None


def used(connection: Connection, key_id: str, now: float) -> None:
    """Note that a key was used. A later time that is known stays."""
    earlier = or_(api_keys.c.last_used.is_(None), api_keys.c.last_used < now)
    connection.execute(update(api_keys).where(api_keys.c.id == key_id, earlier).values(last_used=now))
