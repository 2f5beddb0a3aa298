"""Postgres beneath the journal: it survives kills and cut lines, writers go side by side, and it says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from journal_names import ANN, OTHER, RUN
from journal_values import advance, answer, began, files, first, push, run_row, together, two_rounds_old, visible
from journal_wear import read_beside_a_writer, survive_kills
from relay import relayed
from sqlalchemy import Connection, text
from test_journal_lives import MOVES, Life, Move, known_parts

from tests.budgets import examples
from tests.postgres import OTHERS, own_schema, run, with_options
from tideline.core.errors import FederationError, StorageFull, Unreachable
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.store import SqlJournal
from tideline_server.store.database.transactions import open_store

pytestmark = pytest.mark.nightly(job="postgres")


@pytest.fixture
def journal(address: str) -> Iterator[SqlJournal]:
    """A store with a run that is two rounds old."""
    opened = SqlJournal(address)
    two_rounds_old(opened)
    yield opened
    opened.close()


@pytest.fixture
def apart() -> Iterator[str]:
    """The URL of an empty schema that a test may spoil."""
    with own_schema() as url:
        yield url


@contextmanager
def holding(url: str, statement: str) -> Iterator[None]:
    """A stranger's open transaction."""
    with psycopg.connect(url) as stranger:
        stranger.execute(statement.encode())
        yield
        stranger.rollback()


def waiting(url: str) -> int:
    """The backend of a journal that waits for a lock, once there is one."""
    query = (
        "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted"
        " AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)"
    )
    while not (found := run(url, query)):
        pass
    return int(str(found[0][0]))


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[FederationError]]:
    """A call in a thread of its own, and what it raised."""
    raised: list[FederationError] = []

    def play() -> None:
        try:
            call()
        except FederationError as error:
            raised.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    return thread, raised


@contextmanager
def caused(words: str, kind: type[FederationError] = Unreachable) -> Iterator[None]:
    """An error of a kind, behind which stands another with these words. Those are for the log, and not its own."""
    with pytest.raises(kind) as told:
        yield
    assert type(told.value) is kind and not re.search(words, str(told.value))
    behind: BaseException | None = told.value
    while behind is not None and not re.search(words, str(behind)):
        behind = behind.__cause__
    assert behind is not None


def notes(journal: SqlJournal) -> list[str]:
    """The kinds of the run's events, whose numbers have no gap."""
    told = journal.events(RUN)
    assert [e.seq for e in told] == list(range(1, len(told) + 1))
    return [e.kind for e in told]


# A life as a whole


@given(MOVES)
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_life_is_the_same(schema: str, moves: list[Move]) -> None:
    """Every answer along the way and everything visible at the end are those of the journal in memory."""
    moved = "runs, drafts, rosters, leases, listings, rounds, orders, round_totals, site_totals, events, parts, members, refs"
    moved += ", pushed, sealed, invites, clients, spent_by_run, spent_by_day"
    run(schema, f"TRUNCATE {moved}")
    stored = SqlJournal(schema)
    try:
        one, two = Life(MemoryJournal()), Life(stored)
        for at, move in enumerate(moves):
            assert one.play(move) == two.play(move), (at, move)
        assert visible(one.journal) == visible(two.journal)
        assert known_parts(one.journal) == known_parts(two.journal)
    finally:
        stored.close()


def test_a_store_is_closed_and_opened_again(journal: SqlJournal, address: str) -> None:
    """All that was visible is there; a closed journal answers nobody."""
    before = visible(journal)
    journal.close()
    with pytest.raises(Unreachable, match="closed"):
        journal.run_ids()
    again = SqlJournal(address)
    assert visible(again) == before
    again.close()


def test_words_come_back(journal: SqlJournal) -> None:
    """Any letter is kept; a NUL, which no text of Postgres can hold, is replaced where it is no plain data."""
    kind, data = "kind \u00e9\u4e16\U0001f30a", {"why": "a\x00b \u00e9", "many": [1e-300, 2**53]}
    journal.event(RUN, kind, data, 1.0)
    journal.event(RUN, "nul\x00", {}, 1.0)
    told = journal.events(RUN)[-2:]
    assert (told[0].kind, dict(told[0].data)) == (kind, data) and told[1].kind == "nul\ufffd"


# Several at once


def test_two_journals_see_each_others_writes(journal: SqlJournal, address: str) -> None:
    """Whatever either has read and remembered before, what the other wrote since is there."""
    other = SqlJournal(address)
    assert visible(other) == visible(journal) and other.advance(advance(1, files("m3"), files("s3")))
    assert visible(other) == visible(journal) and journal.advance(advance(2, files("m4"), files("s4")))
    assert not other.advance(advance(2)) and visible(other) == visible(journal)
    other.close()


def test_a_reader_sees_one_moment(journal: SqlJournal, address: str) -> None:
    """Within a reading transaction nothing changes, and nothing can be written."""
    count = text("SELECT count(*) FROM events")
    store = open_store(address)
    with store.reading() as connection:
        before = connection.scalar(count)
        journal.event(RUN, "meanwhile", {}, 1.0)
        assert connection.scalar(count) == before
    with store.reading() as connection:
        assert connection.scalar(count) == (before or 0) + 1
    with caused("read-only"), store.reading() as connection:
        connection.execute(text("DELETE FROM events"))
    store.close()


def test_readers_go_on_beside_a_writer(journal: SqlJournal) -> None:
    """Readers in several threads see whole rounds only, never fewer than an earlier look at the run told."""
    read_beside_a_writer(journal)


NOTER = """
import sys
from tideline.core.run import RunId
from tideline_server.store import SqlJournal
journal = SqlJournal(sys.argv[1])
for at in range(60):
    journal.event(RunId("run-a"), f"{sys.argv[2]} {at}", {}, 1.0)
journal.close()
"""


@pytest.mark.processes
def test_writers_of_two_processes_lose_nothing(journal: SqlJournal, address: str) -> None:
    """The events of both are there, numbered without a gap, each process's in its order."""
    command = [sys.executable, "-W", "error", "-c", NOTER, address]
    writers = [subprocess.Popen([*command, name]) for name in ("x", "y")]
    assert [writer.wait() for writer in writers] == [0, 0]
    told = notes(journal)
    for name in ("x", "y"):
        assert [kind for kind in told if kind.startswith(name)] == [f"{name} {at}" for at in range(60)]


def test_one_of_two_journals_closes_a_round(journal: SqlJournal, address: str) -> None:
    """Of two that close the same round at the same moment, each with connections of its own, exactly one writes it."""
    other = SqlJournal(address)
    for cursor in range(1, 12):
        won = together(lambda at=cursor: journal.advance(advance(at)), lambda at=cursor: other.advance(advance(at)))
        assert sorted(won, key=bool) == [False, True]
    assert len(journal.rounds(RUN)) == 13
    other.close()


# Kills and cut lines


@pytest.mark.processes
def test_a_killed_process_leaves_what_it_committed(address: str) -> None:
    """A writer is killed three times amid its rounds: each acknowledged one is there, whole, and the run goes on."""
    survive_kills(address)


@pytest.mark.processes
def test_a_writer_killed_in_mid_transaction(journal: SqlJournal, address: str) -> None:
    """kill -9 of a process that has locked its run: nothing of its transaction is there, and the run is free."""
    with holding(address, "LOCK TABLE events"):
        writer = subprocess.Popen([sys.executable, "-c", NOTER, address, "killed"])
        waiting(address)
        writer.kill()
        writer.wait()
    journal.event(RUN, "after", {}, 1.0)
    assert notes(journal)[-2:] == ["closed", "after"]


def test_a_connection_cut_in_mid_transaction(journal: SqlJournal, address: str) -> None:
    """The writer hears Unreachable, nothing is written, and the next call has a connection again."""
    before = visible(journal)
    with holding(address, "LOCK TABLE events"):
        thread, raised = in_background(lambda: journal.advance(advance(1, files("m3"), files("s3"))))
        run(address, f"SELECT pg_terminate_backend({waiting(address)})")
        thread.join()
    assert [type(error) for error in raised] == [Unreachable] and visible(journal) == before
    assert journal.advance(advance(1, files("m3"), files("s3")))


def test_idle_connections_that_were_cut_are_not_noticed(journal: SqlJournal, address: str) -> None:
    """A server that was started again, say: the pool looks before it hands a connection out."""
    before = visible(journal)
    assert run(address, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS}")
    assert visible(journal) == before


def test_a_commit_whose_answer_is_lost(journal: SqlJournal, address: str) -> None:
    """It is Unreachable though it was done; done again, each write leaves what is there and says so."""
    with relayed(address) as (relay, url):
        far = SqlJournal(url)
        for again, told in (
            (lambda: far.advance(advance(1, files("m3"), files("s3"))), False),
            (lambda: answer(far, first(ANN, 2)), OrderStatus.CANCELLED),
            (lambda: far.set_status(RUN, OPEN, Status.STALLED, "", 50.0), False),
            (lambda: push(far, files("p")), None),
        ):
            relay.cutting = True
            with pytest.raises(Unreachable):
                again()
            relay.cutting = False
            written = visible(journal)
            assert again() == told and visible(journal) == written
        far.close()
    assert [r.cursor for r in journal.rounds(RUN)] == [JOIN, 0, 1]
    assert notes(journal)[-3:] == ["closed", "answered", "stalled"]


# What the database may answer


def spoil(url: str, body: str, deferred: bool = False) -> None:
    """Let the database do something else when an event is written."""
    kind = "CONSTRAINT TRIGGER spoil AFTER" if deferred else "TRIGGER spoil BEFORE"
    run(
        url,
        "CREATE SEQUENCE tries",
        f"CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$",
        f"CREATE {kind} INSERT ON events {'DEFERRABLE INITIALLY DEFERRED' if deferred else ''}"
        " FOR EACH ROW EXECUTE FUNCTION spoil()",
    )


def raising(state: str, times: int) -> str:
    """Fail so many times. A sequence counts what is undone too."""
    return f"IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'spoiled' USING ERRCODE = '{state}'; END IF;"


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_transaction_that_gave_way_is_done_again(apart: str, state: str) -> None:
    """After a serialization failure or a deadlock nobody notices anything, even where orders are given as an iterator."""
    journal = SqlJournal(apart)
    spoil(apart, raising(state, 2))
    journal.create(iter([run_row()]), iter([]))
    assert journal.run(RUN) == run_row() and notes(journal) == ["created"]
    journal.close()


@pytest.mark.parametrize(
    ("state", "kind"),
    [("40001", Unreachable), ("53100", StorageFull), ("57P01", Unreachable), ("55P03", Unreachable), ("58030", Unreachable)],
)
def test_what_the_database_says_is_told_as_ours(apart: str, state: str, kind: type[Exception]) -> None:
    """The error of the port, nothing written, and a journal that works once the trouble is over."""
    journal = SqlJournal(apart)
    spoil(apart, raising(state, 10**6))
    with caused("spoiled", kind):
        journal.create([run_row()], [])
    run(apart, "DROP TRIGGER spoil ON events")
    assert journal.run_ids() == ()
    journal.create([run_row()], [])
    journal.close()


def test_a_server_that_dies_in_a_commit(apart: str) -> None:
    """The line breaks while the commit is under way: Unreachable, and here nothing was written."""
    journal = SqlJournal(apart)
    spoil(apart, "IF nextval('tries') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;", deferred=True)
    with pytest.raises(Unreachable):
        journal.create([run_row()], [])
    assert journal.run_ids() == ()
    journal.create([run_row()], [])
    journal.close()


def test_nobody_waits_for_ever(address: str, journal: SqlJournal) -> None:
    """A writer that does not get its run in time is told so; other runs and readers do not wait at all."""
    hasty = SqlJournal(with_options(address, "-clock_timeout=100ms"))
    began(journal, OTHER)
    with holding(address, f"SELECT FROM runs WHERE id = '{RUN}' FOR UPDATE"):
        assert hasty.set_status(OTHER, OPEN, Status.STALLED, "not in the way", 2.0)
        with caused("lock timeout"):
            hasty.event(RUN, "late", {}, 1.0)
        assert visible(hasty) == visible(journal)
    hasty.event(RUN, "in time", {}, 1.0)
    assert notes(journal)[-1] == "in time"
    hasty.close()


def test_a_write_is_on_the_disk_before_it_is_acknowledged(address: str) -> None:
    """Whatever the database or the URL says of synchronous commits."""
    store = open_store(with_options(address, "-csynchronous_commit=off"))
    assert store.write(lambda connection: connection.scalar(text("SHOW synchronous_commit"))) == "on"
    assert store.write(lambda connection: connection.scalar(text("SHOW transaction_isolation"))) == "read committed"
    with store.reading() as connection:
        assert connection.scalar(text("SHOW transaction_isolation")) == "repeatable read"
        assert connection.scalar(text("SHOW transaction_read_only")) == "on"
    store.close()


def test_the_server_ends_a_transaction_that_is_frozen(address: str) -> None:
    """After ten seconds, or what the URL says; its next statement finds the store unreachable, and what it wrote is undone."""
    for url, told in ((address, "10s"), (with_options(address, "-c idle_in_transaction_session_timeout=70s"), "70s")):
        with closing(open_store(url)) as store, store.reading() as connection:
            assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == told
    with closing(open_store(address)) as store:
        pids = list[int]()

        def frozen(connection: Connection) -> None:
            connection.execute(text("INSERT INTO marker VALUES (1, 'left')"))
            pids.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 1"))
            while run(address, f"SELECT 1 FROM pg_stat_activity WHERE pid = {pids[-1]}"):
                pass
            connection.execute(text("SELECT 1"))

        # The server says why and hangs up; a client that writes meanwhile may read only the latter.
        with caused("idle-in-transaction timeout|server closed the connection"):
            store.write(frozen)
    assert len(pids) >= 1 and run(address, "SELECT 1 FROM marker") == []
