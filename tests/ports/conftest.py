"""Fixtures of the ports' suites: each suite runs over every adapter of its port."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from tests.postgres import needed, own_schema, run
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.parts.s3 import RETRY
from tideline_server.store import SqlJournal
from tideline_server.store.database.address import read_address
from tideline_server.store.schema import metadata

# In an order that references allow; quicker than TRUNCATE, as the tables are small. The audit log goes back to its first entry,
# which its triggers let only a superuser do.
KEPT = ("meta", "audit", "audit_tip", "audit_base", "witness_secret")
EMPTY = (
    "SET session_replication_role = replica",
    "DELETE FROM audit",
    "INSERT INTO audit SELECT * FROM first_entry",
    "UPDATE audit_base SET seq = 0, hash = repeat('0', 64)",
    "SET session_replication_role = origin",
    "UPDATE audit_tip SET (seq, hash) = (SELECT seq, hash FROM audit)",
    *(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables) if table.name not in KEPT),
)


@pytest.fixture(scope="session", autouse=True)
def quick_retries() -> Iterator[None]:
    """Ask a bucket that fails again at once: the product waits for a tenth of a second first, and then for longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RETRY, "backoff", {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=2)})  # type: ignore[typeddict-item]
        yield


@pytest.fixture(scope="session")
def schema() -> Iterator[str]:
    """A schema that the migrations have filled, for all tests of the session."""
    with own_schema() as url:
        SqlJournal(url).close()
        run(url, "CREATE TABLE first_entry AS SELECT * FROM audit")
        yield url


@pytest.fixture
def address(schema: str) -> str:
    """The URL of an empty store in Postgres."""
    run(schema, *EMPTY)
    return schema


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty file that the migrations have filled; whoever needs one takes a copy."""
    made = tmp_path_factory.mktemp("migrated") / "journal.db"
    SqlJournal(made).close()
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def empty_where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'journal.db'}"
        return
    with own_schema() as url:
        yield url


@pytest.fixture
def where(empty_where: str) -> str:
    """The URL of a database; a module whose tests need a filled one says so."""
    return empty_where


@pytest.fixture
def engine(where: str) -> Iterator[Engine]:
    """The database behind the store's back."""
    database = create_engine(read_address(where))
    yield database
    database.dispose()


@pytest.fixture
def migrated_where(empty_where: str, migrated: Path) -> str:
    """The URL of a database that the migrations have filled, or will once it is opened."""
    if empty_where.startswith("sqlite"):
        shutil.copy(migrated, empty_where.removeprefix("sqlite:///"))
    return empty_where


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    """Each journal, empty."""
    if request.param == "memory":
        yield MemoryJournal()
        return
    if request.param == "postgres":
        needed()
    if request.param == "sqlite":
        where = shutil.copy(request.getfixturevalue("migrated"), tmp_path / "journal.db")
    else:
        where = request.getfixturevalue("address")
    stored = SqlJournal(where)
    yield stored
    stored.close()
