"""Fixtures of the ports' suites: each suite runs over every adapter of its port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tideline.engine.memory import MemoryJournal
from tideline.engine.ports import Journal
from tideline_server.store import SqlJournal


@pytest.fixture(params=["memory", "sql"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    """Each journal, empty."""
    if request.param == "memory":
        yield MemoryJournal()
        return
    stored = SqlJournal(tmp_path / "journal.db")
    yield stored
    stored.close()
