"""The database beneath the journal: it survives a kill, refuses what it does not know, and says what is wrong."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from journal_names import ANN, BOB, RUN
from journal_values import advance, digest, files, order_row, run_row, two_rounds_old, visible
from journal_wear import read_beside_a_writer, survive_kills
from sqlalchemy import Connection, Executable, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from benchmarks.crowd import Crowd, fill, parts
from tideline.core.errors import FederationError, Refused, Unreachable
from tideline.engine.model.runs import JOIN, Status
from tideline_server.store import SqlJournal, StoreRefused, listings, orders, runs, totals
from tideline_server.store import parts as part_rows
from tideline_server.store.database.prepared import MOST_LISTED, STATEMENTS, Straight, directly, prepared
from tideline_server.store.database.revisions import newest
from tideline_server.store.database.transactions import Store, open_store
from tideline_server.store.runs import weight
from tideline_server.store.schema import events, store_marker
from tideline_server.store.schema import listings as listings_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store will be."""
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqlJournal]:
    """A store with a run that is two rounds old."""
    opened = SqlJournal(path)
    two_rounds_old(opened)
    yield opened
    opened.close()


def test_a_store_is_closed_and_opened_again(journal: SqlJournal, path: Path) -> None:
    """All that was visible is there, and one file remains."""
    before = visible(journal)
    journal.close()
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    again = SqlJournal(path)
    assert visible(again) == before
    assert again.held(files("r", "m"), RUN, ANN, 50.0) == {digest("r"), digest("m")}
    again.close()


def test_a_copy_of_the_files_of_an_open_store_is_whole(journal: SqlJournal, path: Path) -> None:
    """What a power cut leaves is what was committed."""
    before = visible(journal)
    other = path.parent / "copy"
    other.mkdir()
    for file in path.parent.glob("journal.db*"):
        shutil.copy(file, other / file.name)
    copied = SqlJournal(other / path.name)
    assert visible(copied) == before
    copied.close()


@pytest.mark.nightly(job="services")
@pytest.mark.processes
def test_a_killed_process_leaves_what_it_committed(path: Path) -> None:
    """A writer is killed three times amid its rounds: each acknowledged one is there, whole, and the run goes on."""
    survive_kills(path)


def test_a_newer_store_is_refused(journal: SqlJournal, path: Path) -> None:
    """The message says what was found, what is known and what to do; the file is not touched."""
    journal.close()
    change(path, "UPDATE alembic_version SET version_num = '0099'")
    before = path.read_bytes()
    words = rf"revision 0099; this Tideline knows revisions up to {newest()}\. Run the Tideline that wrote it"
    with pytest.raises(StoreRefused, match=words) as told:
        SqlJournal(path)
    assert isinstance(told.value, Refused)
    assert (told.value.context["found"], told.value.context["needed"]) == ("0099", newest())
    assert path.read_bytes() == before


def change(path: Path, statement: str) -> None:
    """Change a database behind the journal's back."""
    raw = sqlite3.connect(path)
    with raw:
        raw.execute(statement)
    raw.close()


def test_another_programs_database_is_refused(path: Path) -> None:
    """A database with tables, but not ours, is left as it is."""
    change(path, "CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="a database of something else"):
        SqlJournal(path)
    assert path.read_bytes() == before


def test_a_table_of_the_same_name_is_not_enough(path: Path) -> None:
    """A stranger's table called audit_tip is no store."""
    change(path, "CREATE TABLE audit_tip (other TEXT)")
    with pytest.raises(StoreRefused, match="a database of something else"):
        SqlJournal(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """The reason is in the message, and the file is not touched."""
    path.write_text("these are notes, not a database, and they are longer than a header\n" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="not a database"):
        SqlJournal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/journal.db", "."])
def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path, place: str) -> None:
    """A missing folder, or a folder where a file should be."""
    with pytest.raises(StoreRefused, match="unable to open database file"):
        SqlJournal(tmp_path / place)


def test_a_closed_store_answers_nobody(journal: SqlJournal) -> None:
    """Late callers hear that it is closed; closing twice is as good as once."""
    journal.close()
    journal.close()
    with pytest.raises(Unreachable, match="closed"):
        journal.run_ids()
    with pytest.raises(FederationError):
        journal.event(RUN, "note", {}, 1.0)


@pytest.mark.nightly(job="services")
def test_readers_go_on_beside_a_writer(journal: SqlJournal) -> None:
    """Readers in several threads see whole rounds only, never fewer than an earlier look at the run told."""
    read_beside_a_writer(journal)


def test_a_transaction_that_raises_writes_nothing(journal: SqlJournal) -> None:
    """The second of two new runs is known already: neither the first nor any event is written."""
    before = visible(journal)
    with pytest.raises(Exception, match="UNIQUE"):
        journal.create([run_row("new"), run_row(RUN)], [])  # type: ignore[arg-type]
    assert visible(journal) == before


def test_what_is_undone_is_not_remembered(journal: SqlJournal) -> None:
    """Files whose listing was undone come back as they were sent, though others took the listing's number meanwhile."""
    mine, yours = order_row(1, BOB, files("mine"), attempt=2), order_row(1, BOB, files("yours"), attempt=3)
    with pytest.raises(Exception, match="UNIQUE"):
        journal.create([], [mine, mine])
    journal.create([], [yours])
    journal.create([], [mine])
    assert [o.files for o in journal.open_orders(BOB)][:2] == [mine.files, yours.files]


def test_a_large_plan_is_not_written_again_with_each_round(path: Path) -> None:
    """What a round adds to the file does not grow with the plan."""
    journal = SqlJournal(path)
    plan = run_row().plan * 2000
    journal.create([run_row(plan=plan)], [])
    grown = sum(p.stat().st_size for p in path.parent.iterdir())
    for cursor in range(JOIN, 3):
        journal.advance(advance(cursor))
    assert sum(p.stat().st_size for p in path.parent.iterdir()) - grown < 500_000
    run = journal.run(RUN)
    assert run is not None and run.plan == plan
    journal.set_status(RUN, (Status.RUNNING,), Status.CANCELLED, "", 9.0)
    journal.close()


def test_a_remembered_round_weighs_its_files_and_its_tables() -> None:
    """So that a method with much to tell does not fill a coordinator's memory."""
    assert weight(advance(1, state=files("a", "b")).closed) == 2 + 3 * 2 + 1
    assert weight(advance(3, state=files("a")).closed) == 1


# Statements that go straight to SQLite's driver: they mean what they mean on SQLAlchemy's own way.
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
            assert straight == plain and [row._mapping for row in straight] == [row._mapping for row in plain]


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
