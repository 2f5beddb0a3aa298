"""A database as its operator sees it while no coordinator runs: at which revision it stands, and taken back to an older one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from tideline_server.store.database import dialect
from tideline_server.store.database.address import StoreAway, StoreRefused, read_address, shown
from tideline_server.store.database.revisions import Upgrade, newest, revision, take_back, written

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """A store's name without a password, its revision (None: empty), the newest known here, and what brought it there."""

    name: str
    revision: str | None
    newest: str
    upgrades: Sequence[Upgrade]


def standing(where: Path | str) -> Standing:
    """How a store stands; nothing is written. Raises StoreRefused, StoreAway."""
    return within(where, seen)


def downgrade(where: Path | str, target: str) -> Standing:
    """Take a store back, completely or not at all. Raises StoreAway, StoreRefused: also while a coordinator uses it."""

    def work(connection: Connection, name: str) -> Standing:
        if others := dialect.kind_of(connection.engine.url).others(connection):
            what = f"{others} connections of coordinators to {name} are open"
            raise StoreRefused(what, "Stop every coordinator of this database first", path=name)
        take_back(connection, name, target)
        return seen(connection, name)

    return within(where, work)


def seen(connection: Connection, name: str) -> Standing:
    """How a store stands."""
    return Standing(name, revision(connection, name), newest(), written(connection))


def within(where: Path | str, work: Callable[[Connection, str], T]) -> T:
    """Do something in one transaction of a database that is there."""
    url = read_address(where)
    kind, name = dialect.kind_of(url), shown(url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        raise StoreRefused(f"There is no database {name}", "Name the coordinator's home, or its database", path=name)
    engine = kind.engine_at(url)
    try:
        with engine.execution_options(**kind.writing).begin() as connection:
            kind.check(connection, name)
            return work(connection, name)
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        refusal = StoreAway if kind.away(error) else StoreRefused
        raise refusal(f"The store {name} cannot be changed: {reason}", kind.advice(error), path=name) from error
    finally:
        engine.dispose()
