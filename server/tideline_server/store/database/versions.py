"""A store and the code agree on the tables: an empty database gets them, an older store is migrated.

It happens in one writing transaction: of several coordinators that start at once, one migrates and the others find it done.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, String, column, inspect, select, table

from tideline_server.store.database.errors import StoreRefused
from tideline_server.store.schema import audit_tip

MIGRATIONS = Path(__file__).parent.parent / "migrations"
revisions = table("alembic_version", column("version_num", String))


def agree(connection: Connection, name: str) -> None:
    """Bring the store that `connection` writes to the newest revision.

    Raises StoreRefused for a database of something else, and for a store of a revision that is not known here.
    """
    stands = revision(connection, name)
    if stands not in (None, *known()):
        raise StoreRefused(
            f"The store {name} has schema revision {stands}; this Tideline knows revisions up to {newest()}",
            "Run the Tideline that wrote it or a newer one, or name another database to begin a new store",
            found=stands,
            needed=newest(),
        )
    if stands != newest():
        command.upgrade(configured(connection), "head")


def revision(connection: Connection, name: str) -> str | None:
    """The store's revision, None for an empty database. Raises StoreRefused for a database of something else."""
    found = inspect(connection).get_table_names()
    if not found:
        return None
    if not {revisions.name, audit_tip.name} <= set(found):
        todo = "Name a database of Tideline's own, an empty one, or a file that is not there yet"
        raise StoreRefused(f"{name} is a database of something else", todo, path=name)
    return connection.scalar(select(revisions.c.version_num))


@cache
def known() -> tuple[str, ...]:
    """Every revision, the oldest first."""
    return tuple(reversed([script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()]))


def newest() -> str:
    """The revision that the code needs."""
    return known()[-1]


def configured(connection: Connection) -> Config:
    """What Alembic needs: where the migrations lie, and the transaction that they run in."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
