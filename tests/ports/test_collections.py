"""Collections beside other writers: however one is stopped, frozen or killed, no part is lost that somebody refers to."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bucket_values import opened
from journal_names import ANN, OTHER, RUN
from journal_values import JOIN, advance, began, digest, files, first, push, reply, run_row
from stores import SHARED, laid, place, store

from tests.postgres import needed, renamed, run
from tests.s3 import Server
from tideline.archive.parts import Aside, MemoryParts, Parts
from tideline.core.errors import ConfigRefused, Unreachable
from tideline.core.run import Digest
from tideline.engine.coordinator.part_store import GRACE_SECONDS, PartStore
from tideline.engine.model.experiment import UPLOADER
from tideline.engine.model.orders import Files, OrderStatus
from tideline.engine.ports.journal import MOST_DROPPED, Journal
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.store import SqlJournal

BYTES = b"what both runs send"
FROZEN = "frozen"  # the name of the connections of a coordinator that stops in the middle
IDLE = f"application_name = '{FROZEN}' AND state = 'idle in transaction'"
END = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {IDLE}"
PATIENCE = 120.0
COLLECTOR = Path(__file__).parent / "collector.py"


class Hooked:
    """A store; something happens before its batches take parts, after, and before they bring them back or destroy them."""

    def __init__(self, parts: Parts, **hooks: Callable[[], object]) -> None:
        self._parts, self._hooks = parts, hooks
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts, name)

    def aside(self) -> Aside:
        return HookedAside(self, self._parts.aside())

    def hook(self, name: str) -> None:
        """It happens."""
        self._hooks.get(name, lambda: None)()


class HookedAside:
    """One of its batches."""

    def __init__(self, parts: Hooked, batch: Aside) -> None:
        self._parts, self._batch, self._taken = parts, batch, False

    def take(self, digests: Collection[Digest]) -> None:
        self._parts.sizes.append(len(digests))
        self._taken = True
        self._parts.hook("before")
        self._batch.take(digests)
        self._parts.hook("after")

    def back(self) -> None:
        if self._taken:
            self._parts.hook("back")
        self._batch.back()

    def destroy(self) -> None:
        self._parts.hook("destroy")
        self._batch.destroy()


class Killed(BaseException):
    """The end of a process: nothing of ours runs after it."""


def killed() -> None:
    """The process ends here."""
    raise Killed


class Gate:
    """A place at which a thread is held."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def pass_by(self) -> None:
        """Wait for the gate to open."""
        self.reached.set()
        self.open.wait(PATIENCE)


def room(parts: Any, journal: Journal, now: float = 1e6) -> PartStore:
    """A coordinator's part store, long after everything was written."""
    return PartStore(parts, journal, ManualClock(now))


def let_go(journal: Journal, parts: Parts, content: bytes = BYTES) -> Files:
    """A part that run A has sent, and needs no longer."""
    sent = ((parts.put([content]), len(content)),)
    began(journal)
    began(journal, OTHER)
    assert journal.advance(advance(JOIN, (), (), OTHER)) and journal.advance(advance(JOIN, sent))
    assert journal.advance(advance(0, retain_from=1))
    return sent


def whole(parts: Parts, sent: Files, content: bytes = BYTES) -> bool:
    """Whether a part can be read."""
    return bytes(parts.view(sent[0][0])) == content


@pytest.fixture(params=SHARED)
def kind(request: pytest.FixtureRequest) -> str:
    """Where parts lie."""
    return str(request.param)


@pytest.fixture
def shelves(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Parts, Parts]:
    """The stores of two coordinators over the same parts."""
    return store(kind, request, tmp_path / "one"), store(kind, request, tmp_path / "two")


@pytest.fixture
def journals(address: str) -> Iterator[tuple[SqlJournal, SqlJournal]]:
    """The journals of two coordinators on one database; the connections of the first have a name of their own."""
    needed()
    with closing(SqlJournal(address)) as two, closing(SqlJournal(renamed(address, FROZEN))) as one:
        yield one, two


@pytest.mark.parametrize("dies", [False, True], ids=["wakes", "dies"])
@pytest.mark.parametrize("stopped", ["before", "after"])
def test_a_frozen_collector_takes_nothing_that_is_needed(
    journals: tuple[SqlJournal, SqlJournal], address: str, shelves: tuple[Parts, Parts], stopped: str, dies: bool
) -> None:
    """Its transaction is ended, another refers to the part, and then it wakes and goes on where it was, or dies of it.

    That the server ends such transactions after a while is seen in `test_postgres.py`.
    """
    (one, two), (mine, theirs) = journals, shelves
    sent, gate, ends = let_go(two, mine), Gate(), list[BaseException]()
    hooks = {stopped: gate.pass_by} | ({"back": killed} if dies else {})

    def collect() -> None:
        try:
            room(Hooked(mine, **hooks), one).collect()
        except (Unreachable, Killed) as error:
            ends.append(error)

    frozen = threading.Thread(target=collect)
    frozen.start()
    assert gate.reached.wait(PATIENCE) and run(address, END) == [(True,)]
    assert two.advance(advance(0, (), sent, OTHER), theirs.has), "once what was frozen has ended"
    assert stopped == "after" or whole(theirs, sent)
    gate.open.set()
    frozen.join(PATIENCE)
    assert [type(end) for end in ends] == [Killed if dies else Unreachable] and whole(theirs, sent)
    assert room(theirs, two).collect() == 0 and whole(theirs, sent)
    theirs.recover(1e12)
    assert whole(theirs, sent) and laid(theirs) == 0


def test_one_who_needs_the_part_while_it_is_dropped(
    journals: tuple[SqlJournal, SqlJournal], shelves: tuple[Parts, Parts]
) -> None:
    """He saw it there; the collection commits first; he finds it aside, brings it back, and it is not destroyed."""
    (_, two), (mine, theirs) = journals, shelves
    sent, gate = let_go(two, mine), Gate()
    collector = threading.Thread(target=room(Hooked(mine, destroy=gate.pass_by), two).collect)
    collector.start()
    assert gate.reached.wait(PATIENCE) and two.advance(advance(0, (), sent, OTHER), theirs.has)
    gate.open.set()
    collector.join(PATIENCE)
    assert whole(theirs, sent)


@pytest.mark.parametrize("stopped", ["after", "destroy"])
def test_a_run_that_names_weights_while_they_are_dropped(
    journals: tuple[SqlJournal, SqlJournal], shelves: tuple[Parts, Parts], stopped: str
) -> None:
    """Whether the collection has committed or not, the run is refused and not written; uploaded again, they stay with it."""
    (_, two), (mine, theirs) = journals, shelves
    sent, gate = ((mine.put([BYTES]), len(BYTES)),), Gate()
    row = run_row()
    row = replace(row, spec=replace(row.spec, initial_weights=sent[0][0], initial_weights_bytes=len(BYTES)))
    two.add_parts([sent[0][0]], *UPLOADER, 5.0)
    collector = threading.Thread(target=room(Hooked(mine, **{stopped: gate.pass_by}), two).collect)
    collector.start()
    assert gate.reached.wait(PATIENCE)
    ends = list[BaseException]()

    def start() -> None:
        try:
            two.create([row], [], "", theirs.has)
        except ConfigRefused as error:
            ends.append(error)

    starting = threading.Thread(target=start)
    starting.start()  # it waits for the part's row, where the collection has not committed
    gate.open.set()
    for each in (starting, collector):
        each.join(PATIENCE)
    assert [type(end) for end in ends] == [ConfigRefused] and two.run_ids() == () and not theirs.has(sent[0][0])
    theirs.put([BYTES])
    two.add_parts([sent[0][0]], *UPLOADER, 1e6)
    two.create([row], [], "", theirs.has)
    assert room(theirs, two, 1e9).collect() == 0 and whole(theirs, sent)


def test_one_who_needs_the_part_when_it_is_destroyed(
    journals: tuple[SqlJournal, SqlJournal], shelves: tuple[Parts, Parts]
) -> None:
    """His write is refused, and nothing of it stands."""
    (_, two), (mine, theirs) = journals, shelves
    sent = let_go(two, mine)
    assert room(mine, two).collect() == 1
    with pytest.raises(Unreachable, match="collected while the round was closed"):
        two.advance(advance(0, (), sent, OTHER), theirs.has)
    theirs.put([BYTES])
    assert two.advance(advance(0, (), sent, OTHER), theirs.has)


PAIRS = pytest.mark.parametrize(("database", "kind"), [("sqlite", "folder"), ("postgres", "bucket")])


@pytest.fixture
def wrecked(
    database: str, kind: str, point: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[SqlJournal, Parts, Files]]:
    """What a collector left that was killed, and the part that it had in its hands."""
    where = str(tmp_path / "journal.db") if database == "sqlite" else request.getfixturevalue("address")
    journal, parts = SqlJournal(Path(where) if database == "sqlite" else where), store(kind, request, tmp_path / "one")
    sent = let_go(journal, parts)
    told = (where, place(kind, request, tmp_path), str(tmp_path / "two"), point)
    assert subprocess.run([sys.executable, str(COLLECTOR), *told], timeout=PATIENCE).returncode == -9
    assert laid(parts) == 1
    yield journal, parts, sent
    journal.close()


@pytest.mark.processes
@PAIRS
@pytest.mark.parametrize("point", ["move"])
def test_killed_between_move_and_commit(wrecked: tuple[SqlJournal, Parts, Files]) -> None:
    """The row stands, and so does the part: a reply that names it is accepted, and nothing is lost; later it goes."""
    journal, parts, sent = wrecked
    push(journal, sent, now=1e6)
    assert journal.held(sent, RUN, ANN, 1e6) == {sent[0][0]}
    order = first(cursor=1)
    assert journal.answer(order, reply(order, sent), OrderStatus.ANSWERED, 1e6, 1, 2, parts.has) is OrderStatus.ANSWERED
    assert whole(parts, sent) and room(parts, journal).collect() == 0
    journal.advance(advance(1, retain_from=2))
    assert room(parts, journal).collect() == 1
    room(parts, journal, time.time() + 2 * GRACE_SECONDS).sweep()
    assert (list(parts.digests()), laid(parts)) == ([], 0)


@pytest.mark.processes
@PAIRS
@pytest.mark.parametrize("point", ["commit"])
def test_killed_between_commit_and_destroy(wrecked: tuple[SqlJournal, Parts, Files]) -> None:
    """The row is gone; who needs the part finds it aside."""
    journal, parts, sent = wrecked
    assert journal.collect(1e6) == () and journal.advance(advance(0, (), sent, OTHER), parts.has)
    assert whole(parts, sent)


@pytest.fixture(params=["memory", *SHARED])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Parts:
    """Each store."""
    return store(request.param, request, tmp_path / "one")


def test_a_sweep_knows_what_lies_aside(journal: Journal, parts: Parts) -> None:
    """After an hour: what the journal knows is brought back, and what it does not know is destroyed. Before, nothing happens."""
    sent = let_go(journal, parts)
    assert journal.advance(advance(0, (), sent, OTHER))
    unknown = parts.put([b"nobody's"])
    parts.aside().take([sent[0][0], unknown])
    if laid(parts) and hasattr(parts, "folder"):
        room(parts, journal, time.time()).sweep()
        assert laid(parts) == 2
    swept = room(parts, journal, time.time() + GRACE_SECONDS + 60.0).sweep()
    assert swept.found == 1 and parts.has(sent[0][0]) and laid(parts) == 0
    room(parts, journal, time.time() + 2 * GRACE_SECONDS + 60.0).sweep()
    assert list(parts.digests()) == [sent[0][0]] and whole(parts, sent)


def test_a_collection_is_many_transactions(journal: Journal) -> None:
    """Each drops a few parts, so that what is locked meanwhile is soon free; others write between."""
    began(journal)
    began(journal, OTHER)
    parts, turns = MemoryParts(), list[bool]()
    between = Hooked(parts, destroy=lambda: turns.append(journal.advance(advance(JOIN + len(turns), (), (), OTHER))))
    litter = [parts.put([b"%d" % at]) for at in range(2 * MOST_DROPPED + 10)]
    journal.add_parts(litter, RUN, ANN, 15.0)
    assert room(between, journal).collect() == len(litter)
    assert (between.sizes, turns) == ([MOST_DROPPED, MOST_DROPPED, 10, *between.sizes[3:]], [True] * len(turns))
    assert len(turns) >= 3 and list(parts.digests()) == []


def test_what_is_brought_back_after_a_lost_commit_is_known(journal: Journal, parts: Parts) -> None:
    """Nobody knows whether it was done: then the rows are gone, the bytes are back, and a later collection takes them."""
    sent = let_go(journal, parts)

    class Lost:
        """A journal whose answers do not come."""

        def __getattr__(self, name: str) -> Any:
            return getattr(journal, name)

        def collect(self, *given: Any) -> None:
            journal.collect(*given)
            raise Unreachable("The line broke")

    with pytest.raises(Unreachable):
        room(parts, Lost()).collect()  # type: ignore[arg-type]
    assert whole(parts, sent) and laid(parts) == 0 and room(parts, journal).collect() == 0
    assert room(parts, journal, 1e6 + 2 * GRACE_SECONDS).collect() == 1 and list(parts.digests()) == []


def test_what_a_try_took_that_was_undone_is_brought_back(journal: Journal, parts: Parts) -> None:
    """The database undoes a try, somebody refers to the part, and the next try finds nothing to drop."""
    sent = let_go(journal, parts)

    class GaveWay:
        """A journal whose first try is undone."""

        def __getattr__(self, name: str) -> Any:
            return getattr(journal, name)

        def collect(self, before: float, drop: Callable[[Collection[Digest]], object], most: int) -> tuple[Digest, ...]:
            drop([sent[0][0]])
            journal.advance(advance(0, (), sent, OTHER), parts.has)
            return journal.collect(before, drop, most)

    assert room(parts, GaveWay()).collect() == 0  # type: ignore[arg-type]
    assert list(parts.digests()) == [sent[0][0]] and whole(parts, sent) and laid(parts) == 0


def test_an_advance_with_new_parts_asks_the_bucket_nothing(journal: Journal, s3: Server, bucket: str, tmp_path: Path) -> None:
    """However many: their writer has just put them there. Asked about are those that were dropped lately."""
    parts = opened(bucket, tmp_path / "home")
    sent = let_go(journal, parts)
    assert room(parts, journal).collect() == 1
    parts.put([BYTES])
    s3.asked.clear()
    assert journal.advance(advance(0, files(*range(200)), files(*range(200, 400)), OTHER), parts.has)
    assert s3.asked == []
    assert journal.advance(advance(1, files(*range(200)), (*files(*range(200, 400)), *sent), OTHER), parts.has)
    assert [asked.split()[0] for asked in s3.asked] == ["HEAD"] and sent[0][0] in s3.asked[0]


def test_a_waiting_part_is_found_behind_many_that_are_needed(journal: Journal) -> None:
    """Those that were pushed again though somebody refers to them are looked at, and take nobody's place."""
    began(journal)
    needed_by_all = tuple(sorted(files(*range(3 * MOST_DROPPED))))
    journal.advance(advance(JOIN, needed_by_all))
    last = (Digest("b3-" + "f" * 64), 1)
    push(journal, (*needed_by_all, last), now=15.0)
    assert journal.collect(1e6) == (last[0],)


def test_a_part_that_was_let_go_is_found_behind_many_that_are_needed(journal: Journal) -> None:
    """One run lets go of many parts that another needs, and of one that nobody does."""
    began(journal)
    began(journal, OTHER)
    many = files(*range(1100))
    journal.advance(advance(JOIN, many))
    journal.advance(advance(JOIN, many, (), OTHER))
    journal.advance(advance(0, files("last"), retain_from=1))
    journal.advance(advance(1, retain_from=2))
    assert journal.collect(0.0) == (digest("last"),) and journal.collect(0.0) == ()
