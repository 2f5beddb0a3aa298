"""Writers that wait for each other share a transaction: what one raises is its own, and what ends it is told to all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import IntegrityError

from tests.engine.present import present
from tests.ports.journal_names import ANN, BOB, RUN
from tests.ports.journal_values import advance, began, files
from tideline.core.errors import NotFound, StorageFull, Unreachable
from tideline.core.run import Member, Role
from tideline.engine.model.runs import JOIN, Status
from tideline_server.store.database import group, transactions
from tideline_server.store.database.transactions import ABREAST, Store, open_store
from tideline_server.store.journal import SqlJournal

LONG = 120.0
PUT = text("insert into marker (id, digest) values (:id, 'x')")
Work = Callable[[Connection], object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "journal.db")
    yield opened
    opened.close()


def put(number: int) -> Work:
    return lambda connection: connection.execute(PUT, {"id": number}) and number


def failing(number: int, error: Exception) -> Work:
    """Work that writes, and then raises."""

    def work(connection: Connection) -> None:
        put(number)(connection)
        raise error

    return work


@contextmanager
def occupied(store: Store, threads: ThreadPoolExecutor) -> Iterator[threading.Event]:
    """Keep a write under way until the event is set, at the end of the block at the latest: other writes wait behind it."""
    goes, may = threading.Event(), threading.Event()

    def first(connection: Connection) -> None:
        goes.set()
        assert may.wait(LONG)

    before = threads.submit(store.write, first)
    assert goes.wait(LONG)
    try:
        yield may
    finally:
        may.set()
    before.result()


def together(store: Store, works: list[Work]) -> tuple[list[Future[object]], int]:
    """What comes of works that all wait behind one; and how many transactions were committed, that one's among them."""
    commits = [0]
    event.listen(store._engine, "commit", lambda connection: commits.__setitem__(0, commits[0] + 1))
    with ThreadPoolExecutor(len(works) + 1) as threads, occupied(store, threads):
        futures = [threads.submit(store.write, work) for work in works]
        while len(present(store._group)._waiting) < len(works):
            threading.Event().wait(0.001)
    return futures, commits[0]


def known(store: Store) -> list[int]:
    with store.reading() as connection:
        return list(connection.scalars(text("select id from marker order by id")))


def test_many_writes_are_one_transaction(store: Store) -> None:
    futures, commits = together(store, [put(n) for n in range(20)])
    assert [each.result() for each in futures] == list(range(20)) == known(store) and commits == 2


def test_no_more_than_a_number_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MOST", 8)
    futures, commits = together(store, [put(n) for n in range(20)])
    assert [each.result() for each in futures] == list(range(20)) == known(store) and commits == 4


def test_what_one_raises_is_its_own(store: Store) -> None:
    """Its writes are undone, and those of the others are there; a database's error comes as if it had been alone."""
    futures, _ = together(store, [put(1), failing(2, NotFound("It is not there")), put(3), put(3), put(4)])
    with pytest.raises(NotFound):
        futures[1].result()
    broken = [each for each in (futures[2], futures[3]) if each.exception()]
    assert len(broken) == 1 and isinstance(broken[0].exception(), IntegrityError) and known(store) == [1, 3, 4]


def test_a_commit_that_fails_is_told_to_all(store: Store) -> None:
    """Nothing was written, and each writer hears of it; the next write goes on."""

    def refuse(connection: Connection) -> None:
        if connection.scalar(text("select count(*) from marker")):
            raise StorageFull("No room in the store", "Free disk space")

    event.listen(store._engine, "commit", refuse)
    futures, _ = together(store, [put(1), put(2)])
    event.remove(store._engine, "commit", refuse)
    assert [type(each.exception()) for each in futures] == [StorageFull, StorageFull]
    assert futures[0].exception() is not futures[1].exception() and known(store) == []
    store.write(put(3))
    assert known(store) == [3]


def test_a_transaction_that_the_database_ends_is_undone_as_a_whole(store: Store) -> None:
    """As a full disk does it: what came before in the same transaction is gone, so nobody is told that it is there."""

    def ends(connection: Connection) -> None:
        connection.connection.driver_connection.execute("rollback")  # type: ignore[union-attr]
        raise StorageFull("No room in the store", "Free disk space")

    futures, _ = together(store, [put(1), ends, put(2)])
    done = {n for n, each in zip((1, 0, 2), futures, strict=True) if not each.exception()}
    assert set(known(store)) == done  # whoever came after it, if anybody did, was not told of a success either
    assert isinstance(futures[1].exception(), StorageFull) and 1 not in known(store)


def test_a_writer_that_waits_too_long_gives_up(store: Store) -> None:
    present(store._group)._seconds = 0.01
    with ThreadPoolExecutor(1) as threads, occupied(store, threads), pytest.raises(Unreachable, match="other writes wait"):
        store.write(put(1))
    store.write(put(2))
    assert known(store) == [2]


class Interrupted(threading.Event):
    """An event whose waiter is interrupted, as the main thread is by Ctrl-C: before it has its turn, or when it has it."""

    late = False

    def wait(self, timeout: float | None = None) -> bool:
        if self.late:
            super().wait(timeout)
        raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True])
def test_a_writer_that_is_interrupted_holds_up_nobody(store: Store, late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Interrupted, "late", late)
            patched.setattr(group, "new_turn", Interrupted)
            store.write(put(1))

    with ThreadPoolExecutor(2) as threads, occupied(store, threads) as may:
        second = threads.submit(interrupted)
        while late and not store._group._waiting:  # type: ignore[union-attr]
            threading.Event().wait(0.001)
        if late:
            may.set()
        with pytest.raises(KeyboardInterrupt):
            second.result(LONG)
    store._group._seconds = 1.0  # type: ignore[union-attr]
    store.write(put(2))
    assert known(store) == ([1, 2] if late else [2])


def test_an_error_keeps_its_cause(store: Store) -> None:
    def work(connection: Connection) -> None:
        raise StorageFull("No room") from ValueError("why")

    with pytest.raises(StorageFull) as raised:
        store.write(work)
    assert isinstance(raised.value.__cause__, ValueError)


# How many transactions go on side by side, and who waits for whom.


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open database of either kind."""
    opened = open_store(tmp_path / "journal.db" if request.param == "sqlite" else request.getfixturevalue("address"))
    yield opened
    opened.close()


def test_only_a_few_go_on_at_once(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for one to end; none is left out."""
    monkeypatch.setattr(transactions, "MOMENT_SECONDS", LONG)
    here, most, lock, full = 0, 0, threading.Lock(), threading.Event()

    def read(number: int) -> int:
        nonlocal here, most
        with opened.reading():
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


def test_those_that_stand_still_hold_up_nobody_for_long(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may go on wait for something else: another passes them after a moment, to read and to write."""
    monkeypatch.setattr(transactions, "MOMENT_SECONDS", 0.01)

    def one(connection: Connection) -> object:
        return connection.exec_driver_sql("SELECT 1").scalar()

    with ExitStack() as still:
        for _ in range(ABREAST):
            still.enter_context(opened.reading())
        with opened.reading() as connection:
            assert one(connection) == 1
        assert opened.write(one) == 1


# What a transaction wrote that was undone is remembered by nobody, though others have read it amid the transaction.


def test_members_of_a_commit_that_failed(tmp_path: Path) -> None:
    """A join that closes shares its transaction with a change of status, and the disk is full. It closes with others later."""
    journal = SqlJournal(tmp_path / "journal.db")
    began(journal)
    store, full = journal._store, [True]

    def refuse(connection: Connection) -> None:
        if full[0] and connection.scalar(text("select count(*) from rosters")):
            raise StorageFull("No room in the store", "Free disk space")

    def behind(number: int) -> None:
        while len(present(store._group)._waiting) < number:
            threading.Event().wait(0.001)

    one, both = (tuple(Member(name, Role.SOURCE, True) for name in names) for names in ((ANN,), (ANN, BOB)))
    event.listen(store._engine, "commit", refuse)
    with ThreadPoolExecutor(3) as threads, occupied(store, threads) as may:
        closing = threads.submit(journal.advance, advance(JOIN, files("m"), files("s"), members=one))
        behind(1)
        beside = threads.submit(journal.set_status, RUN, (Status.STALLED,), Status.FAILED, "", 9.0)
        behind(2)
        may.set()
        for each in (closing, beside):
            with pytest.raises(StorageFull):
                each.result()
    full[0] = False
    assert journal.advance(advance(JOIN, files("m"), files("s"), members=both))
    assert present(journal.run(RUN)).members == both
    journal.close()
