"""The database beneath the journal: it survives a kill, refuses what it does not know, and says what is wrong."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_values import ANN, RUN, advance, answer, began, digest, files, push, run_row, visible

from tideline.core.errors import FederationError, Refused, Unreachable
from tideline.core.run import OrderId
from tideline.engine.rows import JOIN, Status
from tideline_server.store import SqlJournal, StoreRefused

WRITER = Path(__file__).with_name("journal_writer.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store will be."""
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqlJournal]:
    """A store with a run that is two rounds old."""
    opened = SqlJournal(path)
    began(opened)
    opened.advance(advance(JOIN, files("m"), files("s")))
    push(opened, files("r"))
    answer(opened, OrderId(f"{RUN}/0/{ANN}/1"), files("r"))
    opened.advance(advance(0, files("m2"), files("s2")))
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


@pytest.mark.processes
def test_a_killed_process_leaves_what_it_committed(path: Path) -> None:
    """A writer is killed three times amid its rounds: each acknowledged one is there, whole, and the run goes on."""
    acknowledged = 0
    for until in (5, 40, 43):
        with subprocess.Popen([sys.executable, str(WRITER), str(path)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            while acknowledged < until:
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        check(path, acknowledged)


def check(path: Path, acknowledged: int) -> None:
    """The store holds at least the acknowledged rounds, and nothing half."""
    journal = SqlJournal(path)
    run = journal.run(RUN)
    assert run is not None and run.cursor >= acknowledged
    assert [r.cursor for r in journal.rounds(RUN)] == list(range(JOIN, run.cursor))
    assert len(journal.orders(RUN, run.cursor)) == 3
    assert [e.seq for e in journal.events(RUN)] == list(range(1, len(journal.events(RUN)) + 1))
    assert [e.kind for e in journal.events(RUN)].count("closed") == run.cursor + 1
    sent = journal.orders(RUN, run.cursor)[0].files
    assert journal.held(sent, RUN, ANN, 50.0) == {d for d, _ in sent}
    journal.close()


def test_another_schema_version_is_refused(journal: SqlJournal, path: Path) -> None:
    """The message says which version was found, which is needed and what to do; the file is not touched."""
    journal.close()
    change(path, "UPDATE meta SET value = '99' WHERE name = 'schema'")
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match=r"version 99; this Tideline needs version 1\. Run the Tideline that wrote it") as told:
        SqlJournal(path)
    assert isinstance(told.value, Refused)
    assert (told.value.context["found"], told.value.context["needed"]) == ("99", 1)
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
    """A stranger's table called meta is no store."""
    change(path, "CREATE TABLE meta (other TEXT)")
    with pytest.raises(StoreRefused, match="cannot be opened"):
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
        journal.runs()
    with pytest.raises(FederationError):
        journal.event(RUN, "note", {}, 1.0)


def test_two_openings_at_once_make_one_store(path: Path) -> None:
    """Whoever comes second finds the tables that the first has made."""
    gate, opened = threading.Barrier(4), list[SqlJournal]()

    def play() -> None:
        gate.wait()
        opened.append(SqlJournal(path))

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    began(opened[0])
    assert [each.run(RUN) for each in opened] == [run_row()] * 4
    won = [each.advance(advance(JOIN)) for each in opened]
    assert won == [True, False, False, False]
    for each in opened:
        each.close()


def test_readers_go_on_beside_a_writer(journal: SqlJournal) -> None:
    """Readers in several threads see whole rounds only, never fewer than an earlier look at the run told."""
    done, wrong = threading.Event(), list[tuple[int, int, int]]()

    def read() -> None:
        while not done.is_set():
            before, rounds, after = journal.run(RUN), journal.rounds(RUN), journal.run(RUN)
            assert before is not None and after is not None
            if not before.cursor <= len(rounds) - 1 <= after.cursor or rounds[-1].cursor != len(rounds) - 2:
                wrong.append((before.cursor, len(rounds), after.cursor))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for cursor in range(1, 60):
        assert journal.advance(advance(cursor, files(("m", cursor)), files(("s", cursor))))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_a_transaction_that_raises_writes_nothing(journal: SqlJournal) -> None:
    """The second of two new runs is known already: neither the first nor any event is written."""
    before = visible(journal)
    with pytest.raises(Exception, match="UNIQUE"):
        journal.create([run_row("new"), run_row(RUN)], [])  # type: ignore[arg-type]
    assert visible(journal) == before


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
    journal.settle(RUN, (Status.RUNNING,), Status.CANCELLED, "", 9.0)
    journal.close()
