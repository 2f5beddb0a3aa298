"""Fixtures of the ports' suites: each suite runs over every adapter of its port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import needed, own_schema, run
from tideline.engine.memory_journal import MemoryJournal
from tideline.engine.ports import Journal
from tideline_server.store import SqlJournal
from tideline_server.store.schema import metadata

# In an order that references allow; quicker than TRUNCATE, as the tables are small.
EMPTY = tuple(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables) if table.name != "meta")


@pytest.fixture(scope="session")
def schema() -> Iterator[str]:
    """A schema that the migrations have filled, for all tests of the session."""
    with own_schema() as url:
        SqlJournal(url).close()
        yield url


@pytest.fixture
def address(schema: str) -> str:
    """The URL of an empty store in Postgres."""
    run(schema, *EMPTY)
    return schema


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    """Each journal, empty."""
    if request.param == "memory":
        yield MemoryJournal()
        return
    if request.param == "postgres":
        needed()
    where = tmp_path / "journal.db" if request.param == "sqlite" else request.getfixturevalue("address")
    stored = SqlJournal(where)
    yield stored
    stored.close()
