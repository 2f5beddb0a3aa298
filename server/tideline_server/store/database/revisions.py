"""A store's schema revision: brought up to date, taken back, or refused. Each in the transaction that it is given."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, String, column, delete, inspect, select, table

from tideline import __version__
from tideline_server.store.database.address import StoreRefused
from tideline_server.store.schema import audit_tip, upgrades

MIGRATIONS = Path(__file__).parent.parent / "migrations"
OLDEST = "0005"  # that a store can be taken back to: of the version before the first release
BACKUP = "Restore the backup from before the upgrade (docs/upgrading.md)"
revisions = table("alembic_version", column("version_num", String))


@dataclass(frozen=True)
class Upgrade:
    """A revision, the version of Tideline that brought the store to it, and when: seconds since 1970."""

    revision: str
    version: str
    at: float


def agree(connection: Connection, name: str) -> None:
    """Bring a store to the newest revision. Raises StoreRefused for an unknown revision, or a database of something else."""
    stands = revision(connection, name)
    if stands not in (None, *known()):
        raise newer(connection, name, str(stands))
    if stands != newest():
        command.upgrade(configured(connection), "head")
        connection.execute(delete(upgrades).where(upgrades.c.revision == newest()))
        connection.execute(upgrades.insert().values(revision=newest(), version=__version__, at=time.time()))


def take_back(connection: Connection, name: str, target: str) -> None:
    """Take a store back to an older revision; what newer ones have added is lost. Raises StoreRefused."""
    stands = revision(connection, name)
    if stands is None:
        raise StoreRefused(f"{name} is empty", "Name the database that the coordinators use", path=name)
    if stands not in known():
        raise newer(connection, name, stands)
    if target not in known() or target > stands:
        what = f"{target!r} is no revision before {stands}, which the store {name} has"
        raise StoreRefused(what, f"Choose one of: {', '.join(each for each in known() if OLDEST <= each <= stands)}")
    if target < OLDEST:
        raise StoreRefused(f"A store is not taken back behind revision {OLDEST}", BACKUP, found=stands, needed=target)
    if target != stands:
        command.downgrade(configured(connection), target)
        if upgrades.name in inspect(connection).get_table_names():
            connection.execute(delete(upgrades).where(upgrades.c.revision > target))


def newer(connection: Connection, name: str, stands: str) -> StoreRefused:
    """The refusal of a store that another version wrote, with that version's name if the store has it."""
    there = written(connection)
    who = next((each.version for each in there if each.revision == stands), "")
    what = f"The store {name} has schema revision {stands}{f' of tideline {who}' if who else ''}; this Tideline "
    todo = "Run the Tideline that wrote it or a newer one, or name another database to begin a new store"
    if who:
        todo = (
            f"Install tideline {who} or newer. To go back to {__version__}: stop every coordinator, and with {who} run "
            f"`tideline database downgrade {newest()}`, or restore the backup from before the upgrade"
        )
    return StoreRefused(f"{what}knows revisions up to {newest()}", todo, found=stands, needed=newest())


def written(connection: Connection) -> Sequence[Upgrade]:
    """What brought the store to its revisions, the oldest first, as far as it has been noted."""
    if upgrades.name not in inspect(connection).get_table_names():
        return ()
    found = connection.execute(select(upgrades.c.revision, upgrades.c.version, upgrades.c.at).order_by(upgrades.c.revision))
    return [Upgrade(str(number), str(version), float(at)) for number, version, at in found]


def revision(connection: Connection, name: str) -> str | None:
    """The store's revision; None: the database is empty. Raises StoreRefused for a database of something else."""
    found = inspect(connection).get_table_names()
    if not found:
        return None
    if not {revisions.name, audit_tip.name} <= set(found):
        todo = "Name a database of Tideline's own, an empty one, or a file that is not there yet"
        raise StoreRefused(f"{name} is a database of something else", todo, path=name)
    return connection.scalar(select(revisions.c.version_num))


@cache
def known() -> tuple[str, ...]:
    return tuple(reversed([script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()]))


def newest() -> str:
    return known()[-1]


def configured(connection: Connection) -> Config:
    """What Alembic needs: where the migrations lie, and the transaction that they run in."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
