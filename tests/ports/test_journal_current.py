"""One suite for every journal: what a page that follows runs and sites asks again and again."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_names import ANN, BOB, CYD, OTHER, RUN, TEAM
from journal_values import advance, answer, began, client, files, first, invite, joins, order_row, reply, run_row
from test_costs import counted, plan, scans_large
from test_journal_lives import SHELF, Life, Move, pick

from tests.budgets import examples
from tests.engine.present import present
from tideline.core.run import ClientId, RunId
from tideline.engine.audit.log import Mention
from tideline.engine.model.orders import Failure, OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Headline, Status
from tideline.engine.model.totals import OrderTimes
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.store import SqlJournal


def test_current_runs_are_those_that_are_not_over(journal: Journal) -> None:
    """As they stand in the list and in its order; those that are over where they are asked for; of none that is not there."""
    ages = {"z": 1.0, "c": 2.0, "b": 2.0, "a": 3.0}
    journal.create([run_row(RunId(name), created=age) for name, age in ages.items()], [])
    for name, status in (("c", Status.STALLED), ("a", Status.CANCELLED), ("z", Status.FAILED)):
        journal.set_status(RunId(name), OPEN, status, "why", 9.0)
    lines = {line.id: line for line in journal.headlines()}
    assert journal.current() == (lines[RunId("b")], lines[RunId("c")])
    assert [line.id for line in journal.current([RunId("a"), RunId("b"), RunId("nobody")])] == ["b", "c", "a"]
    assert journal.current(list(lines)) == journal.headlines()


def test_current_runs_move(journal: Journal) -> None:
    """Each look tells the status and the cursor of now; a run that is deleted is not there."""
    began(journal)
    journal.create([run_row(OTHER, created=2.5, plan=())], [])
    assert [(line.cursor, line.of) for line in journal.current()] == [(JOIN, 6), (JOIN, 0)]
    journal.advance(advance(JOIN))
    told = Headline(RUN, f"name of {RUN}", "fedavg", Status.RUNNING, "", 0, 6, 1.5, None, None)
    assert journal.current()[0] == told and type(journal.current()[0].status) is Status
    for run in (RUN, OTHER):
        journal.set_status(run, OPEN, Status.CANCELLED, "", 9.0)
    assert journal.current() == () and [line.id for line in journal.current([RUN, OTHER])] == [RUN, OTHER]
    journal.delete_runs([OTHER], "", "", 9.5)
    assert [line.id for line in journal.current([RUN, OTHER])] == [RUN]


def test_mentions_are_what_the_log_is_about(journal: Journal) -> None:
    """Behind a number, each once; and how far the log goes, so that the next look misses nothing."""
    first = journal.audit_tip().seq
    assert journal.mentions(first) == (first, frozenset())
    began(journal)
    journal.add_invite(invite())
    journal.enrol("token", client())
    last, found = journal.mentions(first)
    assert last == journal.audit_tip().seq == first + 3
    assert found == {Mention("run_started", run=RUN), Mention("enrolled", client=ANN), Mention("invited")}
    journal.revoke(ANN, "left", 5.0)
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 9.0)
    journal.delete_runs([RUN], "", "", 9.5)
    tip, later = journal.mentions(last)
    kinds = {(each.kind, each.client, each.run) for each in later}
    assert kinds >= {("revoked", ANN, ""), ("run_cancelled", "", RUN), ("run_deleted", "", RUN)} and tip > last
    assert journal.mentions(tip + 5) == (tip, frozenset())


def test_recent_orders(journal: Journal) -> None:
    """Those of the last places that asked somebody, with all that became of them and when; nothing of what was sent."""
    began(journal)
    answer(journal, joins()[0].id)
    journal.advance(advance(JOIN))
    journal.advance(advance(0))
    rows = {each.client: each for each in journal.recent_orders(RUN, 9) if each.cursor == JOIN}
    assert list(rows) == [ANN, BOB, CYD]
    ann = rows[ANN]
    assert (ann.status, ann.answered, ann.bytes_down, ann.bytes_up) == (OrderStatus.ANSWERED, 30.0, 11, 12)
    assert rows[BOB].status is OrderStatus.EXPIRED and rows[BOB].answered is None and rows[BOB].failure is None
    for order in journal.orders(RUN):
        shown = next(r for r in journal.recent_orders(RUN, 9) if (r.cursor, r.client) == (order.cursor, order.client))
        assert shown == OrderTimes(**{name: getattr(order, name) for name in OrderTimes.__dataclass_fields__})

    def places(most: int, last: int | None = None) -> list[int]:
        return sorted({each.cursor for each in journal.recent_orders(RUN, most, last)})

    assert [places(1), places(2), places(3), places(50)] == [[1], [0, 1], [JOIN, 0, 1], [JOIN, 0, 1]]
    assert [places(1, 0), places(2, 0), places(1, JOIN), places(1, 99), places(1, -2)] == [[0], [JOIN, 0], [JOIN], [1], []]
    assert journal.recent_orders(RunId("nobody"), 3) == ()


def test_recent_orders_say_why_one_failed(journal: Journal) -> None:
    """By the failure's kind, in our own words."""
    began(journal)
    for name in TEAM:
        journal.add_invite(invite(name))
        journal.enrol(name, client(name))
    journal.revoke(ANN, "left", 5.0)
    (failed,) = (each for each in journal.recent_orders(RUN, 1) if each.status is OrderStatus.FAILED)
    assert failed.client == ANN and failed.failure is not None and failed.failure.kind


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Databases with five runs that are not over among few and among many that are."""
    found = {}
    for ended in (10, 1000):
        path = found[ended] = tmp_path_factory.mktemp("current") / "journal.db"
        with closing(SqlJournal(path)) as journal:
            over = [run_row(RunId(f"over-{at}"), created=float(at)) for at in range(ended)]
            journal.create([*over, *(run_row(RunId(f"now-{at}"), created=5000.0 + at) for at in range(5))], [])
            for row in over:
                journal.set_status(row.id, OPEN, Status.CANCELLED, "", 9.0)
    yield found


@pytest.mark.nightly(job="services")
def test_a_look_costs_the_same_however_many_runs_are_over(sizes: dict[int, Path]) -> None:
    """It enters the tables by indexes, and counts no plan twice."""
    steps, statements = [], list[str]()
    for path in sizes.values():
        with counted() as work, closing(SqlJournal(path)) as journal:
            last, _ = journal.mentions(journal.audit_tip().seq)
            assert len(journal.current([RunId("over-3")])) == 6
            work.statements.clear()
            work.steps = 0
            assert len(journal.current([RunId("over-3")])) == 6 and journal.mentions(last)[1] == frozenset()
            steps.append(work.steps)
            statements = [text for text in work.statements if not text.startswith(("BEGIN", "COMMIT"))]
            assert statements and not any("json_array_length" in text for text in statements)
            with closing(sqlite3.connect(path)) as raw:
                lines = [line for text in statements for line in plan(raw, text)]
            assert not [line for line in lines if scans_large(line) or line.startswith("SCAN runs")], lines
    assert steps[1] <= 1.5 * steps[0], steps


# One suite for every journal: what it keeps of orders is what somebody would find who counted them.
METRICS: tuple[Mapping[str, float], ...] = (
    {"loss": 0.5, "accuracy": 0.75},
    {"accuracy": 0.1, "rows": 3},
    {"accuracy_mean": 0.25},
    {"samples": 7, "loss": 0.25},
    {},
)
ANSWERED, OPENED, EXPIRED = OrderStatus.ANSWERED, OrderStatus.OPEN, OrderStatus.EXPIRED


class Scored(Life):
    """A life in which replies have other metrics each time, and clients are revoked."""

    def answer(self, a: int, b: int, sent: Any) -> Any:
        order = self.order(a, b)
        given = reply(order, (), metrics=METRICS[(a + 3 * b) % len(METRICS)])
        return self.journal.answer(order, given, ANSWERED, self.now, a, b)

    def push(self, a: int, b: int, sent: Any) -> Any:
        return self.journal.revoke(pick(TEAM, a), "left", self.now) if b == 0 else None


def last(orders: list[OrderRow]) -> dict[ClientId, OrderRow]:
    """The newest order of each client."""
    return {o.client: o for o in sorted(orders, key=lambda o: o.attempt)}


def recounted_round(journal: Journal, run: RunId, cursor: int, closed: bool) -> dict[str, Any]:
    """An exchange's totals, from its rows."""
    orders = list(journal.orders(run, cursor))
    stands = Counter(
        "open" if o.status is OPENED else "answered" if o.status is ANSWERED else "failed" for o in last(orders).values()
    )
    told = [o.metrics["accuracy"] for o in orders if closed and o.status is ANSWERED and "accuracy" in o.metrics]
    return {
        **{name: stands[name] for name in ("open", "answered", "failed")},
        **{way: sum(getattr(o, way) for o in orders) for way in ("bytes_down", "bytes_up")},
        "scored": len(told),
        "accuracy": sum(told) / len(told) if told else None,
    }


def recounted_site(orders: list[OrderRow]) -> dict[str, Any]:
    """A site's totals, from its rows."""
    right = [o for o in orders if o.status is ANSWERED]
    metrics: dict[str, float] = {}
    for order in right:
        metrics |= order.metrics
    steps = [o.metrics for o in right if o.cursor != JOIN]
    return {
        **{way: sum(getattr(o, way) for o in orders) for way in ("bytes_down", "bytes_up")},
        "metrics": list(metrics.items()),
        "answered": len(steps),
        "scored": sum(any(name.startswith("accuracy") for name in told) for told in steps),
        "last": max((o.cursor for o in orders if o.answered is not None and o.failure is None), default=JOIN - 1),
    }


def differences(journal: Journal, run: RunId) -> Iterator[Any]:
    """Where what is kept is not what is counted."""
    present(journal.run(run))
    closed = {r.cursor for r in journal.rounds(run)}
    orders = journal.orders(run)
    cursors = {o.cursor for o in orders}
    kept = journal.round_totals(run)
    if set(kept) != cursors:
        yield "exchanges", sorted(kept), sorted(cursors)
    for cursor in sorted(cursors):
        wanted = recounted_round(journal, run, cursor, cursor in closed)
        if not vars(kept[cursor]) == vars(journal.standing(run, cursor)) == wanted:
            yield cursor, kept[cursor], wanted
    sites = journal.site_totals(run)
    for who in TEAM:
        own = [o for o in orders if o.client == who and o.cursor in closed]
        found = {**vars(sites[who]), "metrics": list(sites[who].metrics.items())} if who in sites else None
        if found != (recounted_site(own) if own else None):
            yield who, found, recounted_site(own)
    told = {
        at: tuple(
            (o.client, o.metrics["accuracy"])
            for o in orders
            if o.cursor == at and o.status is ANSWERED and "accuracy" in o.metrics
        )
        for at in closed
    }
    if journal.scores(run) != {at: each for at, each in told.items() if each}:
        yield "scores", journal.scores(run), told
    lines = [(o.cursor, o.client, o.attempt, o.failure) for o in journal.missed(run)]
    if lines != [(o.cursor, o.client, o.attempt, o.failure) for o in orders if o.status in (OrderStatus.FAILED, EXPIRED)]:
        yield "missed", lines
    answers = {who: recounted_site([o for o in orders if o.client == who])["last"] for who in TEAM}
    if journal.last_answers(run, TEAM) != answers:
        yield "last answers", journal.last_answers(run, TEAM), answers


NAMES = ("advance", "end", "set_status", "answer", "fail", "reissue", "reopen", "push")
MOVES = st.lists(
    st.tuples(st.sampled_from((*NAMES, *("answer",) * 4, "advance")), st.integers(0, 11), st.integers(0, 11), st.just(())),
    min_size=5,
    max_size=40,
)


@pytest.mark.nightly(job="services")
@given(MOVES)
@settings(max_examples=examples(60))
def test_what_is_kept_is_what_is_counted(moves: list[Move]) -> None:
    """After each move of any life, in both journals: replies in time and late, failures, new attempts, ends, revocations."""
    with tempfile.TemporaryDirectory(dir=SHELF) as folder:
        stored = SqlJournal(Path(folder) / "journal.db")
        try:
            one, two = Scored(MemoryJournal()), Scored(stored)
            for move in (("enrol", 1, at, ()) for at in (1, 3, 5)):
                one.play(move), two.play(move)
            for at, move in enumerate(moves):
                assert one.play(move) == two.play(move), (at, move)
                found = [each for life in (one, two) for run in (RUN, OTHER) for each in differences(life.journal, run)]
                assert not found, (at, move, found)
        finally:
            stored.close()


def test_a_round_is_counted_as_replies_come(journal: Journal) -> None:
    """Open, answered, failed, by the newest attempt; what a stranger's run has is its own."""
    began(journal)
    began(journal, OTHER)
    journal.answer(first(ANN), reply(first(ANN)), ANSWERED, 3.0, 5, 7)
    failed = reply(first(BOB), failure=Failure("StepFailed", "no"), metrics={})
    journal.answer(first(BOB), failed, OrderStatus.FAILED, 4.0, 1, 2)
    standing = journal.standing(RUN, JOIN)
    assert (standing.open, standing.answered, standing.failed, standing.asked) == (1, 1, 1, 3)
    assert (standing.bytes_down, standing.bytes_up) == (6, 9)
    journal.set_status(RUN, OPEN, Status.STALLED, "", 5.0)
    journal.reopen(RUN, Status.WAITING, "", 6.0, 99.0, [order_row(JOIN, BOB, attempt=2)])
    standing = journal.standing(RUN, JOIN)
    assert (standing.open, standing.answered, standing.failed, standing.asked) == (2, 1, 0, 3)
    assert journal.standing(OTHER, JOIN).open == 3 and journal.standing(RUN, 5).asked == 0
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 7.0)
    standing = journal.standing(RUN, JOIN)
    assert (standing.open, standing.answered, standing.failed) == (0, 1, 2)
    assert not list(differences(journal, RUN))


def test_an_answer_to_an_older_attempt_moves_nobody(journal: Journal) -> None:
    """The newest attempt tells how a client stands."""
    began(journal)
    journal.reissue([order_row(JOIN, ANN, attempt=2)])
    journal.answer(first(ANN), reply(first(ANN)), ANSWERED, 3.0, 5, 7)
    standing = journal.standing(RUN, JOIN)
    assert (standing.open, standing.answered, standing.bytes_up) == (3, 0, 7)
    assert not list(differences(journal, RUN))


def test_a_closed_round_takes_no_more_orders(journal: Journal) -> None:
    """What would be offered again of it is left as it is."""
    began(journal)
    journal.advance(advance(JOIN))
    journal.reissue([order_row(JOIN, ANN, attempt=2)])
    assert [o.attempt for o in journal.orders(RUN, JOIN) if o.client == ANN] == [1]


def test_a_late_reply_adds_its_bytes(journal: Journal) -> None:
    """To the site and to the round, without a score; a reply that was left out counts as late."""
    began(journal)
    journal.advance(advance(JOIN))
    for who in (ANN, CYD):
        journal.answer(first(who, 0), reply(first(who, 0), metrics={"accuracy": 0.5}), ANSWERED, 30.0, 11, 12)
    journal.advance(advance(0))
    assert journal.scores(RUN) == {0: ((ANN, 0.5),)}
    assert (journal.standing(RUN, 0).answered, journal.standing(RUN, 0).failed) == (1, 2)
    journal.answer(first(BOB, 0), reply(first(BOB, 0), metrics={"accuracy": 1.0}), ANSWERED, 31.0, 3, 4)
    assert journal.scores(RUN) == {0: ((ANN, 0.5),)}
    assert journal.site_totals(RUN)[BOB].bytes_up == 4 and journal.standing(RUN, 0).bytes_down == 25
    assert journal.last_answers(RUN, TEAM) == dict.fromkeys(TEAM, 0)
    journal.answer(first(BOB), reply(first(BOB)), ANSWERED, 32.0, 0, 0)
    assert journal.last_answers(RUN, TEAM) == dict.fromkeys(TEAM, 0), "an older one is not the last"
    assert not list(differences(journal, RUN))


def test_a_round_is_read_by_its_cursor(journal: Journal) -> None:
    journal.create([run_row()], [order_row(JOIN, who) for who in TEAM])
    assert journal.round(RUN, JOIN) is None
    for cursor in (JOIN, 0, 1):
        journal.advance(advance(cursor, state=files(cursor) if cursor else ()))
    assert tuple(journal.round(RUN, cursor) for cursor in (JOIN, 0, 1)) == journal.rounds(RUN)
    assert journal.round(RUN, 2) is None and journal.round(RunId("another"), 0) is None


def test_recent_rounds_begin_at_the_last_checkpoint_but_one(journal: Journal) -> None:
    """All of them while there is only one checkpoint."""
    journal.create([run_row()], [order_row(JOIN, who) for who in TEAM])
    assert journal.recent_rounds(RUN) == ()
    kept: list[int] = []
    for cursor in range(JOIN, 8):
        state = files(cursor) if cursor in (JOIN, 2, 3, 6) else ()
        kept += [cursor] if state else []
        journal.advance(advance(cursor, state=state))
        since = kept[-2] if len(kept) > 1 else JOIN
        assert [r.cursor for r in journal.recent_rounds(RUN)] == list(range(since, cursor + 1))
        assert journal.recent_rounds(RUN) == journal.rounds(RUN)[since + 1 :]
