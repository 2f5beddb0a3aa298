"""A store and the code agree on the tables: an empty database gets them, an older store is brought up to date.

Everything happens in one writing transaction, so that of several coordinators that start at once one does it and the
others find it done. Stores that were made before there were migrations say in `meta` what they are.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, String, column, inspect, select, table

from tideline_server.store.database.errors import StoreRefused
from tideline_server.store.schema import meta

MIGRATIONS = Path(__file__).parent.parent / "migrations"
FIRST = "0001"
UNMIGRATED = {"1": FIRST}  # what `meta` says in a store without revisions, and the revision that it is
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
    if found and meta.name not in found:
        todo = "Name a database of Tideline's own, an empty one, or a file that is not there yet"
        raise StoreRefused(f"{name} is a database of something else", todo, path=name)
    if not found:
        return None
    if revisions.name in found:
        return connection.scalar(select(revisions.c.version_num))
    return adopted(connection)


def adopted(connection: Connection) -> str:
    """A store from before the migrations gets its revision written down."""
    version = str(connection.scalar(select(meta.c.value).where(meta.c.name == "schema")))
    if version in UNMIGRATED:
        command.stamp(configured(connection), UNMIGRATED[version])
    return UNMIGRATED.get(version, version)


@cache
def scripts() -> ScriptDirectory:
    """The migrations."""
    return ScriptDirectory(str(MIGRATIONS))


@cache
def known() -> tuple[str, ...]:
    """Every revision, the oldest first."""
    return tuple(reversed([script.revision for script in scripts().walk_revisions()]))


def newest() -> str:
    """The revision that the code needs."""
    return known()[-1]


def configured(connection: Connection) -> Config:
    """What Alembic needs: where the migrations lie, and the transaction that they run in."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
