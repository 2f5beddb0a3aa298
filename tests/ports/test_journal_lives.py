"""Random lives of two runs, lived in the dictionary and in the database: whatever happens, both tell the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from journal_names import ANN, OTHER, RUN, TEAM
from journal_values import advance, client, files, invite, joins, order_row, reply, run_row, visible

from tests.budgets import examples
from tests.engine.present import present
from tideline.core.errors import Overtaken
from tideline.core.run import Member, OrderId, Role
from tideline.engine.model.orders import Failure, OrderStatus
from tideline.engine.model.runs import FINAL, JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.store import SqlJournal

RAM = Path("/dev/shm")
SHELF = RAM if RAM.is_dir() else None  # many short lives: where there is a disk in memory, they are lived on it
Move = tuple[str, int, int, tuple[int, ...]]
RUNS = (RUN, OTHER)
STATUSES = (Status.STALLED, Status.RUNNING, Status.CANCELLED, Status.FAILED)
MEMBERS = (Member(ANN, Role.PEER, labelled=True),)


def pick(options: Any, at: int) -> Any:
    """One of the options."""
    return options[at % len(options)]


class Life:
    """Plays moves on a journal. What a move means depends on what the journal shows, and on nothing else."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.now = journal, 0.0
        self.known: dict[str, list[Any]] = {}
        journal.create([run_row(run) for run in RUNS], [order for run in RUNS for order in joins(run)])

    def play(self, move: Move) -> Any:
        """One move; what the journal answers."""
        name, a, b, names = move
        self.now += 1.0
        return getattr(self, name)(a, b, files(*names))

    def enrol(self, a: int, b: int, sent: Any) -> Any:
        """A token is written, maybe again, and used for a name that may be taken."""
        if b % 2:
            self.journal.add_invite(invite(str(a)))
        self.journal.saw(pick(TEAM, b), self.now, pick((None, "2"), a), pick((None, ("target",)), b), pick((None, "", "gpu"), a))
        self.journal.saw_all(TEAM[a % 3 :], self.now)
        return self.journal.enrol(str(a), client(pick(TEAM, b))), self.journal.invite(str(a)), self.journal.client(ANN)

    def advance(self, a: int, b: int, sent: Any) -> Any:
        """Close a round, sometimes one that is not the open one."""
        run = present(self.journal.run(pick(RUNS, a)))
        cursor = run.cursor + pick((0, 0, 0, -1), b)
        state = files(a % 6, b % 6) if b % 2 else ()
        orders = [order_row(cursor + 1, who, sent, run.id, created=self.now) for who in TEAM[b % 3 :]]
        trimmed: dict[str, Any] = {"orders": tuple(orders), "retain_from": cursor + 1 - b % 4}
        if b % 3 == 2:
            trimmed |= {"best": {"value": 0.5}, "best_state": files(b % 5, a % 4)}
        return self.journal.advance(advance(cursor, (), state, run.id, now=self.now, **trimmed))

    def end(self, a: int, b: int, sent: Any) -> Any:
        """Close the last round."""
        run = present(self.journal.run(pick(RUNS, a)))
        final = {
            "status": Status.COMPLETED,
            "state_digest": "s",
            "fingerprint": "cpu",
            "members": (Member(ANN, Role.PEER, labelled=True),),
        }
        return self.journal.advance(advance(run.cursor, (), sent, run.id, now=self.now, **final)) if b % 4 == 0 else None

    def set_status(self, a: int, b: int, sent: Any) -> Any:
        """Stall, go on, or, more seldom, end."""
        status = pick((*STATUSES, Status.STALLED, Status.RUNNING), b)
        among = OPEN if status in FINAL and a % 2 else (Status.STALLED,) if status is Status.RUNNING else OPEN
        return self.journal.set_status(pick(RUNS, a), among, status, f"cause {b}", self.now)

    def reopen(self, a: int, b: int, sent: Any) -> Any:
        """Go on with a run, stalled or not, with orders known or new."""
        run = present(self.journal.run(pick(RUNS, a)))
        again = order_row(run.cursor, pick(TEAM, b), sent, run.id, attempt=1 + a % 3, created=self.now)
        return self.journal.reopen(run.id, Status.RUNNING, f"cause {b}", self.now, 77.0 + b, [again])

    def order(self, a: int, b: int) -> OrderId:
        """One of the last orders of a run."""
        return OrderId(pick(self.journal.orders(pick(RUNS, a))[-7:], b).id)

    def answer(self, a: int, b: int, sent: Any) -> Any:
        """Answer an order with files that may be unknown."""
        order = self.order(a, b)
        return self.journal.answer(order, reply(order, sent), OrderStatus.ANSWERED, self.now, a, b)

    def fail(self, a: int, b: int, sent: Any) -> Any:
        """Answer an order with a failure."""
        order, failure = self.order(a, b), Failure("StepFailed", "it raised")
        return self.journal.answer(order, reply(order, failure=failure), OrderStatus.FAILED, self.now, a, b)

    def reissue(self, a: int, b: int, sent: Any) -> Any:
        """Offer an order again, known or new."""
        run = present(self.journal.run(pick(RUNS, a)))
        again = order_row(run.cursor, pick(TEAM, b), sent, run.id, attempt=1 + b % 3, created=self.now)
        return self.journal.reissue([again])

    def beat(self, a: int, b: int, sent: Any) -> Any:
        """A client tells of two orders."""
        return self.journal.beat(pick(TEAM, a), {self.order(a, b): 0.25, self.order(b, a): 0.5}, self.now)

    def push(self, a: int, b: int, sent: Any) -> Any:
        """A client pushes parts."""
        self.journal.add_parts([digest for digest, _ in sent], pick(RUNS, a), pick(TEAM, b), self.now)

    def held(self, a: int, b: int, sent: Any) -> Any:
        """A client asks for parts."""
        return self.journal.held(sent, pick(RUNS, a), pick(TEAM, b), self.now)

    def collect(self, a: int, b: int, sent: Any) -> Any:
        """Forget what is older than a while; a part touched within the last second need not be touched again."""
        return sorted(self.journal.collect(self.now - a - 1.0))

    def conduct(self, a: int, b: int, sent: Any) -> Any:
        """Two holders take, keep and leave what they know of, old or new, and write with the token that they have."""
        holder, run = f"holder {a % 2}", pick(RUNS, b)
        known = self.known.setdefault(holder, [])
        moves: list[Callable[[], Any]] = [
            self.journal.leases,
            lambda: known.append(self.journal.claim(self.journal.leases(), holder, 15.0)),
            lambda: known.append(self.journal.claim(pick([*known, ()], a), holder, 15.0)),
            lambda: self.journal.renew(pick([*known, ()], a)),
            lambda: self.journal.release(pick([*known, ()], a)),
            lambda: self.journal.set_status(run, OPEN, Status.STALLED, "told", self.now, a),
        ]
        try:
            return pick(moves, b)(), self.journal.leases(), self.journal.leases(run)
        except Overtaken as error:
            return error.what


NAMES = ("enrol", "advance", "end", "set_status", "answer", "fail", "reissue", "reopen", "beat", "push", "held", "collect")
WEIGHTED = (*NAMES, *("conduct",) * 3, *("advance", "reissue", "push", "held", "collect", "answer") * 2)
SMALL = st.integers(0, 11)
PARTS = st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple)
MOVES = st.lists(st.tuples(st.sampled_from(WEIGHTED), SMALL, SMALL, PARTS), min_size=5, max_size=40)


def known_parts(journal: Journal) -> list[frozenset[Any]]:
    """Who holds what. Asking touches, so it is asked of both."""
    return [journal.held(files(*range(6)), run, who, 500.0) for run in RUNS for who in TEAM]


@given(MOVES)
@settings(max_examples=examples(40))
def test_both_journals_live_the_same_life(moves: list[Move]) -> None:
    """Every answer along the way, everything visible at the end, every holder and the last collections are equal."""
    with tempfile.TemporaryDirectory(dir=SHELF) as folder:
        stored = SqlJournal(Path(folder) / "journal.db")
        try:
            one, two = Life(MemoryJournal()), Life(stored)
            for at, move in enumerate(moves):
                assert one.play(move) == two.play(move), (at, move)
            assert visible(one.journal) == visible(two.journal)
            assert sorted(one.journal.collect(0.0)) == sorted(two.journal.collect(0.0))
            assert known_parts(one.journal) == known_parts(two.journal)
            assert sorted(one.journal.collect(900.0)) == sorted(two.journal.collect(900.0))
            assert known_parts(one.journal) == known_parts(two.journal)
        finally:
            stored.close()


@given(MOVES)
@settings(max_examples=examples(16))
def test_a_life_goes_on_after_a_restart(moves: list[Move]) -> None:
    """A database that is closed and opened in the middle of a life shows the same, and goes on as if nothing had been."""
    with tempfile.TemporaryDirectory(dir=SHELF) as folder:
        path, half = Path(folder) / "journal.db", len(moves) // 2
        one, two = Life(MemoryJournal()), Life(SqlJournal(path))
        try:
            assert [one.play(m) for m in moves[:half]] == [two.play(m) for m in moves[:half]]
            before = visible(two.journal)
            two.journal.close()  # type: ignore[attr-defined]
            two.journal = SqlJournal(path)
            assert visible(two.journal) == before == visible(one.journal)
            assert [one.play(m) for m in moves[half:]] == [two.play(m) for m in moves[half:]]
            assert visible(two.journal) == visible(one.journal)
        finally:
            two.journal.close()  # type: ignore[attr-defined]


def test_the_lives_reach_the_corners() -> None:
    """The moves above are not idle: a few fixed ones close rounds, are late, are refused and collect."""
    life = Life(MemoryJournal())
    script: list[Move] = [
        ("push", 0, 0, (1,)),
        ("answer", 0, 0, (1,)),
        ("answer", 0, 1, (5,)),
        ("advance", 0, 1, (2, 3)),
        ("answer", 0, 1, (1,)),
        ("end", 0, 0, (4,)),
        ("collect", 0, 0, ()),
    ]
    told = [life.play(move) for move in script]
    assert told[1:6] == [OrderStatus.ANSWERED, None, True, OrderStatus.EXPIRED, True] and len(told[-1]) == 4
    assert [r.cursor for r in life.journal.rounds(RUN)] == [JOIN, 0]
