"""Statements that go straight to SQLite's driver: they mean what they mean on SQLAlchemy's own way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Executable, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from benchmarks.crowd import Crowd, fill, parts
from tideline_server.store import SqlJournal, listings, orders, runs, totals
from tideline_server.store import parts as part_rows
from tideline_server.store.database.prepared import MOST_LISTED, STATEMENTS, Straight, directly, prepared
from tideline_server.store.database.transactions import Store, open_store
from tideline_server.store.schema import events, store_marker
from tideline_server.store.schema import listings as listings_table

CROWD = Crowd(12, 2)
NAMES = [digest for at in range(-1, 12) for digest, _ in parts(CROWD.run, at)]
MINE = {"of": CROWD.run, "by": CROWD.names[0]}
ASKED: list[tuple[Executable, Mapping[str, Any]]] = [
    (orders.ONE, {"order": CROWD.orders(0)[0].id}),
    (orders.ONE, {"order": "unknown"}),
    (orders.OPEN_OF, {"of": CROWD.names[1]}),
    (orders.BARRED, {"of": CROWD.run}),
    (runs.ONE, {"of": CROWD.run}),
    (totals.ONE, {"of": CROWD.run, "at": 1}),
    *((part_rows.HELD, {"digests": NAMES[:many], **MINE}) for many in (0, 1, 2, MOST_LISTED, MOST_LISTED + 1)),
    *((part_rows.PRESENT, {"digests": NAMES[:many]}) for many in (0, 3, 20)),
    (listings.FILES, {"ids": [1, 2, 3]}),
    (orders.OPEN_AMONG, {"names": [order.id for order in CROWD.orders(1)[:4]]}),
]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """A connection within a transaction, in a store with a run."""
    journal = SqlJournal(tmp_path / "journal.db")
    fill(journal, CROWD)
    with journal._store._writers.begin() as made:
        yield made
    journal.close()


def test_a_row_is_read_as_sqlalchemy_reads_it(connection: Connection, subtests: pytest.Subtests) -> None:
    """Every column with its type: plain data, truth values, and what is none."""
    for at, (statement, values) in enumerate(ASKED):
        with subtests.test(at):
            assert id(statement) in STATEMENTS
            straight, plain = Straight(connection).execute(statement, values).all(), connection.execute(statement, values).all()
            assert straight == plain
            assert [row._mapping for row in straight] == [row._mapping for row in plain]


def test_a_row_is_written_as_sqlalchemy_writes_it(connection: Connection) -> None:
    """Plain data as JSON, none as none, and what the statement itself says."""
    row = {"run": "r", "at": 1.5, "kind": "k", "data": {"a": [1, None, "\u00e9"]}}
    Straight(connection).execute(runs.NOTE, {"of": "r"} | row)
    Straight(connection).execute(runs.NOTE, {"of": "r"} | row | {"data": None})
    found = connection.execute(select(events).where(events.c.run == "r").order_by(events.c.seq)).all()
    assert [dict(each._mapping) for each in found] == [row | {"seq": 1}, row | {"seq": 2, "data": None}]
    Straight(connection).execute(listings.SET_KEPT, {"ids": [1]})
    kept = select(listings_table.c.kept).where(listings_table.c.id == 1)
    assert connection.scalar(kept) is True


def test_many_rows_are_written_at_once(connection: Connection) -> None:
    """And the driver's errors are SQLAlchemy's, as the store translates those."""
    put = prepared(insert(store_marker))
    Straight(connection).execute(put, [{"id": 7, "digest": "a"}, {"id": 8, "digest": "b"}])
    assert connection.scalars(select(store_marker.c.id).order_by(store_marker.c.id)).all() == [7, 8]
    with pytest.raises(IntegrityError):
        Straight(connection).execute(put, {"id": 7, "digest": "c"})
    with pytest.raises(OperationalError):
        directly(connection, "SAVEPOINT")


def test_a_value_that_is_missing_is_told(connection: Connection) -> None:
    """It is not taken for none."""
    with pytest.raises(KeyError):
        Straight(connection).execute(orders.BEAT, {"order": "o", "at": 1.0})


def test_what_is_not_prepared_goes_sqlalchemys_way(tmp_path: Path) -> None:
    """All of it on one connection, in one transaction."""
    store: Store = open_store(tmp_path / "s.db")
    put = prepared(insert(store_marker))

    def work(connection: Connection) -> None:
        connection.execute(put, {"id": 1, "digest": "a"})
        connection.execute(text("update marker set digest = 'b'"))
        raise RuntimeError("undone")

    with pytest.raises(RuntimeError):
        store.write(work)
    with store.reading() as connection:
        assert connection.scalars(select(store_marker.c.digest)).all() == []
    store.close()
