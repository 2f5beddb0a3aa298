"""How many transactions go on side by side, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tideline_server.store.database import transactions
from tideline_server.store.database.transactions import ABREAST, Store, open_store

LONG = 30.0


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open database of either kind."""
    opened = open_store(tmp_path / "journal.db" if request.param == "sqlite" else request.getfixturevalue("address"))
    yield opened
    opened.close()


def test_only_a_few_go_on_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for one to end; none is left out."""
    monkeypatch.setattr(transactions, "MOMENT_SECONDS", LONG)
    here, most, lock, full = 0, 0, threading.Lock(), threading.Event()

    def read(number: int) -> int:
        nonlocal here, most
        with store.reading():
            with lock:
                here += 1
                most = max(most, here)
                if here == ABREAST:
                    full.set()
            assert full.wait(LONG)
            with lock:
                here -= 1
        return number

    with ThreadPoolExecutor(4 * ABREAST) as threads:
        assert list(threads.map(read, range(4 * ABREAST))) == list(range(4 * ABREAST))
    assert most == ABREAST


def test_those_that_stand_still_hold_up_nobody_for_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may go on wait for something else: another passes them after a moment, to read and to write."""
    monkeypatch.setattr(transactions, "MOMENT_SECONDS", 0.01)

    def one(connection: Connection) -> object:
        return connection.exec_driver_sql("SELECT 1").scalar()

    with ExitStack() as still:
        for _ in range(ABREAST):
            still.enter_context(store.reading())
        with store.reading() as connection:
            assert one(connection) == 1
        assert store.write(one) == 1
