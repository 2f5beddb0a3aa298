"""Fixtures of the ports' suites: each suite runs over every adapter of its port."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import needed, own_schema, run
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.store import SqlJournal
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
