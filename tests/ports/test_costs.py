"""What an order costs a journal does not grow with its run: work is counted in steps of the database, and of Python in memory."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import Engine, event

from benchmarks.crowd import Crowd, answer, fill, parts
from tideline.algorithms import METHODS
from tideline.archive.parts import MemoryParts
from tideline.core.run import ClientId, OrderId
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.scheduler import Scheduler
from tideline.engine.model.accounts import Client, Invite
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.adapters import ManualClock, QuietBell
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.store import SqlJournal

SMALL, LONG, WIDE = Crowd(10, 10), Crowd(100, 100), Crowd(10_000, 1)  # 100 orders, and twice 10,000
MOST = 1.5  # times the work of the small run
LAST_EVENT = 2**31 - 1
LARGE = ("orders", "refs", "events", "rounds", "members", "listings", "parts", "site_totals", "round_totals", "audit", "clients")


@dataclass
class Work:
    """What a database was asked: its statements, and the steps of its virtual machine."""

    statements: list[str] = field(default_factory=list)
    steps: int = 0

    def step(self) -> int:
        self.steps += 1
        return 0


@contextmanager
def counted() -> Iterator[Work]:
    """Count the work of every connection that is opened within the block."""
    work = Work()

    def prepare(raw: sqlite3.Connection, record: object) -> None:
        raw.set_trace_callback(work.statements.append)
        raw.set_progress_handler(work.step, 1)

    event.listen(Engine, "connect", prepare)
    try:
        yield work
    finally:
        event.remove(Engine, "connect", prepare)


def peopled(journal: Journal, crowd: Crowd) -> None:
    """A run whose last round is open, with two sites enrolled, one of which was revoked and enrolled again."""
    for name in crowd.names[:2]:
        journal.add_invite(Invite(token_hash=name, name=name, labels={}, expires=9.0, used_by=""))
        keys = {"sign_key": "aa", "receive_key": "bb"}
        journal.enrol(name, Client(name=name, roles=("source",), labels={}, version="1", enrolled=1.0, seen=1.0, **keys))
    fill(journal, crowd, answered=False)


def calls(journal: Journal, crowd: Crowd) -> dict[str, Callable[[], Any]]:
    """What the coordinator does for one order. Each is called once before it is counted, for another site."""
    cursor = crowd.rounds - 1
    given = list(crowd.answers(cursor))
    store, clock = PartStore(MemoryParts(), journal, ManualClock()), ManualClock()
    compute = InlineCompute(store.parts, METHODS)
    scheduler = Scheduler(journal=journal, part_store=store, compute=compute, bell=QuietBell(), clock=clock)
    late = list(crowd.answers(cursor - 1))
    sent, (one, two) = parts(crowd.run, cursor), crowd.names[:2]
    return {
        "orders": lambda: journal.open_orders(one),
        "fetch": lambda: (journal.order(given[0][0].id), journal.run(crowd.run)),
        "beat": lambda: journal.beat(one, {given[0][0].id: 0.5, OrderId("unknown"): 0.5}, 9.0),
        "lives": lambda: journal.saw_all((one, two), 9.0),
        "held": lambda: journal.held((*sent, *parts("unknown")), crowd.run, one, 50.0),
        "answer": lambda: answer(journal, *given.pop()),
        "late answer": lambda: answer(journal, *late.pop()),
        "turn": lambda: scheduler.turn(crowd.run),
        "best": lambda: journal.round(crowd.run, crowd.rounds // 2),
        "watch": lambda: journal.events(crowd.run, LAST_EVENT),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the databases lie."""
    return tmp_path_factory.mktemp("costs")


@cache
def measured(folder: Path, crowd: Crowd) -> dict[str, Work]:
    """The work of each call, which is made once: an order is answered once."""
    path = folder / f"{crowd.members}.db"
    with closing(SqlJournal(path)) as journal:
        peopled(journal, crowd)
    found = {}
    with counted() as work, closing(SqlJournal(path)) as journal:
        for name, call in calls(journal, crowd).items():
            call()
            work.statements.clear()
            work.steps = 0
            call()
            found[name] = Work(list(work.statements), work.steps)
    return found


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("crowd", [LONG, WIDE], ids=["many rounds", "many members"])
def test_an_order_costs_a_database_the_same_in_any_run(folder: Path, crowd: Crowd) -> None:
    """The same statements, and at most half more steps, where 10,000 orders are there than where 100 are."""
    small, large = measured(folder, SMALL), measured(folder, crowd)
    assert all(work.steps > 10 for work in small.values()), {name: work.steps for name, work in small.items()}
    for name in small:
        assert len(large[name].statements) <= len(small[name].statements), name
        assert large[name].steps <= MOST * small[name].steps, (name, small[name].steps, large[name].steps)


@pytest.mark.parametrize(
    "crowd",
    [SMALL, *(pytest.param(crowd, marks=pytest.mark.nightly(job="services")) for crowd in (LONG, WIDE))],
    ids=["few of all", "many rounds", "many members"],
)
def test_no_statement_of_an_order_scans_a_large_table(folder: Path, crowd: Crowd) -> None:
    """Every table that grows with runs is entered by an index."""
    work = measured(folder, crowd)
    with closing(sqlite3.connect(folder / f"{crowd.members}.db")) as raw:
        plans = {
            text: plan(raw, text)
            for each in work.values()
            for text in each.statements
            if not text.startswith(("BEGIN", "COMMIT"))
        }
    assert sum(map(len, plans.values())) > 20 and any("SEARCH orders" in line for lines in plans.values() for line in lines)
    scans = [(line, text) for text, lines in plans.items() for line in lines if scans_large(line)]
    assert not scans, scans


def plan(raw: sqlite3.Connection, text: str) -> list[str]:
    """How SQLite would do a statement."""
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {text}")] if not text.startswith("--") else []


def scans_large(line: str) -> bool:
    """Whether a line of a plan reads a whole table that may be large, or a whole index of one."""
    found = re.match(r"SCAN (\w+)", line)
    return found is not None and found[1] in LARGE


def test_a_scan_is_noticed(folder: Path) -> None:
    """The searches above can fail."""
    measured(folder, SMALL)
    with closing(sqlite3.connect(folder / "10.db")) as raw:
        for text in ("SELECT * FROM orders WHERE seed = 3", "SELECT count(*) FROM refs", "UPDATE members SET digest = '' "):
            assert any(map(scans_large, plan(raw, text))), text


def opcodes(call: Callable[[], Any]) -> int:
    """How many instructions Python does in a call."""
    count = 0

    def trace(frame: FrameType, kind: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += kind == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def in_memory(crowd: Crowd) -> dict[str, int]:
    """The work of each call on a journal in memory."""
    journal = MemoryJournal()
    peopled(journal, crowd)
    found = {}
    for name, call in calls(journal, crowd).items():
        call()
        found[name] = opcodes(call)
    return found


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("crowd", [LONG, WIDE], ids=["many rounds", "many members"])
def test_an_order_costs_a_simulation_the_same_in_any_run(crowd: Crowd) -> None:
    """At most half more instructions where 10,000 orders are there than where 100 are."""
    small, large = in_memory(SMALL), in_memory(crowd)
    assert all(small.values())
    assert {name for name in small if large[name] > MOST * small[name]} == set(), (small, large)


def test_a_crowd_is_what_it_says() -> None:
    """So many orders, and one round open, in which everybody is asked."""
    journal = MemoryJournal()
    fill(journal, SMALL)
    row = journal.run(SMALL.run)
    assert row is not None and len(journal.orders(SMALL.run)) == 110 and len(row.members) == 10
    standing = journal.standing(SMALL.run, SMALL.rounds - 1)
    assert (standing.open, standing.answered) == (10, 0)
    assert all(each.answered == 10 for at, each in journal.round_totals(SMALL.run).items() if at < SMALL.rounds - 1)
    assert journal.open_orders(ClientId("site-00003"))
