"""One suite for every journal: what a page that follows runs and sites asks again and again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from journal_values import ANN, BOB, CYD, OTHER, RUN, TEAM, advance, answer, began, client, invite, joins, run_row
from test_costs import counted, plan, scans_large

from tideline.core.run import RunId
from tideline.engine.audit.log import Mention
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Headline, Status
from tideline.engine.model.totals import OrderTimes
from tideline.engine.ports.journal import Journal
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
            assert len(journal.current([RunId("over-3")])) == 6
            assert journal.mentions(last)[1] == frozenset()
            steps.append(work.steps)
            statements = [text for text in work.statements if not text.startswith(("BEGIN", "COMMIT"))]
            assert statements and not any("json_array_length" in text for text in statements)
            with closing(sqlite3.connect(path)) as raw:
                lines = [line for text in statements for line in plan(raw, text)]
            assert not [line for line in lines if scans_large(line) or line.startswith("SCAN runs")], lines
    assert steps[1] <= 1.5 * steps[0], steps
