"""Sessions of users who signed in with a browser."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, or_, select, update

from tideline.engine.model.access.user_sessions import RETAINED_SECONDS, UserSession, listed
from tideline_server.store.database.dialect import INSERTS
from tideline_server.store.schema import user_sessions


def session_of(row: Row[Any]) -> UserSession:
    fields = {name: value for name, value in row._mapping.items() if name != "claimed"}
    return UserSession(**fields, values=tuple(row.claimed or ()))


def begin(connection: Connection, session: UserSession) -> bool:
    """Write a session. False if its sign-in has begun one already."""
    connection.execute(delete(user_sessions).where(user_sessions.c.expires < session.created - RETAINED_SECONDS))
    fields = {name: value for name, value in vars(session).items() if name != "values"} | {"claimed": list(session.values)}
    statement = INSERTS[connection.dialect.name](user_sessions).on_conflict_do_nothing().returning(user_sessions.c.id)
    return connection.execute(statement, fields).one_or_none() is not None


def find(connection: Connection, token_hash: str) -> UserSession | None:
    row = connection.execute(select(user_sessions).where(user_sessions.c.token_hash == token_hash)).one_or_none()
    return session_of(row) if row else None


def every(connection: Connection) -> tuple[UserSession, ...]:
    return listed(tuple(map(session_of, connection.execute(select(user_sessions)))))


def end(connection: Connection, session_id: str, now: float) -> bool:
    """End a session. False if there is none, or it has ended."""
    good = (user_sessions.c.id == session_id) & user_sessions.c.ended.is_(None)
    return connection.execute(update(user_sessions).where(good).values(ended=now)).rowcount == 1


def end_all(connection: Connection, now: float) -> None:
    """End every session: a database from a backup does not know which of them had ended."""
    connection.execute(update(user_sessions).where(user_sessions.c.ended.is_(None)).values(ended=now))


def use(connection: Connection, session_id: str, now: float) -> None:
    """Note when a session was used, unless a later time is known."""
    earlier = or_(user_sessions.c.last_used.is_(None), user_sessions.c.last_used < now)
    connection.execute(update(user_sessions).where(user_sessions.c.id == session_id, earlier).values(last_used=now))
