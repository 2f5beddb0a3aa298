"""A result is what the orders' own rows say: nothing that is kept beside them differs, at any moment of any run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.crowd import Crowd, answer, fill
from tests.engine.toys import stage, start
from tests.laws.stage import Stage
from tests.synthetic import experiment
from tideline.core.run import RunId
from tideline.engine.coordinator import result
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal

FEDAVG = experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}, config={"rounds": 3})
EXPIRED = OrderStatus.EXPIRED


def last_metrics(orders: list[OrderRow]) -> list[tuple[str, float]]:
    """The newest value of each metric, in the order in which they were told first."""
    found: dict[str, float] = {}
    for order in orders:
        found |= order.metrics if order.status is OrderStatus.ANSWERED else {}
    return list(found.items())


def differences(journal: Journal, run: RunId) -> list[Any]:
    """Where a result differs from what its orders say."""
    row, told, orders = journal.run(run), result_of(journal, run, 0.0), journal.orders(run)
    assert row is not None
    found: list[Any] = []
    for line in told["clients"]:
        own = [o for o in orders if o.client == line["name"]]
        missed = [(row.fact(o.cursor).round, o.attempt) for o in own if o.failure or o.status is EXPIRED]
        kept = line["bytes_up"], line["bytes_down"], list(line["metrics"].items())
        counted = sum(o.bytes_up for o in own), sum(o.bytes_down for o in own), last_metrics(own)
        if kept != counted or [(f["round"], f["attempt"]) for f in line["failures"]] != missed:
            found.append((line, counted, missed))
    for phase, closed in zip(told["phases"], journal.rounds(run), strict=True):
        every = [o for o in orders if o.cursor == closed.cursor]
        kept = phase["asked"], phase["bytes_up"], phase["bytes_down"]
        if kept != (len({o.client for o in every}), sum(o.bytes_up for o in every), sum(o.bytes_down for o in every)):
            found.append((phase, every))
    points = [o for o in orders if o.status is OrderStatus.ANSWERED and "accuracy" in o.metrics]
    if [(p["client"], p["cursor"], p["accuracy"]) for p in told["curve"]] != [
        (o.client, o.cursor, o.metrics["accuracy"]) for o in points
    ]:
        found.append((told["curve"], points))
    return found


def quorum(on: Stage) -> RunId:
    """A run whose rounds close without bert, who fails in the second."""
    return start(on, fault="raises", waiting={"min_replies": 2})


@pytest.mark.parametrize("begin", [lambda on: on.start(FEDAVG), start, quorum], ids=["fedavg", "toy", "quorum"])
def test_a_result_is_what_the_orders_say(begin: Callable[[Stage], RunId]) -> None:
    """Before each action of a run, and at its end."""
    on = stage()
    run, seen = begin(on), 0
    for action in on.actions(run):
        assert differences(on.journal, run) == []
        seen += 1
        action()
    assert differences(on.journal, run) == [] and seen > 10


def test_a_run_that_is_resumed() -> None:
    """With failures, new attempts, and a person who ends it amid a round."""
    on = stage()
    run = start(on, fault="raises")
    assert on.play(run).status == "stalled" and differences(on.journal, run) == []
    on.run_service.resume(run)
    on.handle(next(on.agent_service.orders(name)[0] for name in on.agents if on.agent_service.orders(name)))
    assert differences(on.journal, run) == []
    on.run_service.cancel(run)
    assert differences(on.journal, run) == []


def test_a_long_curve_tells_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many points a scoring has one, of the open round too: the mean over its sites, their number, and no client."""
    journal, crowd = MemoryJournal(), Crowd(4, 6)
    fill(journal, crowd)
    given = list(crowd.answers(5))
    values = (0.25, 0.75)
    for (order, reply), accuracy in zip(given, values, strict=False):
        reply.metrics["accuracy"] = accuracy  # type: ignore[index]
        answer(journal, order, reply)
    points = result_of(journal, crowd.run, 0.0)["curve"]
    assert len(points) == 10 and all(point.keys() == {"client", "phase", "round", "cursor", "accuracy"} for point in points)
    monkeypatch.setattr(result, "MOST_POINTS", 10)
    assert result_of(journal, crowd.run, 0.0)["curve"] == points
    monkeypatch.setattr(result, "MOST_POINTS", 9)
    means = result_of(journal, crowd.run, 0.0)["curve"]
    facts = {"client": None, "phase": "score"}
    assert means == [
        facts | {"round": 1, "cursor": 1, "accuracy": 0.5, "sites": 4},
        facts | {"round": 2, "cursor": 3, "accuracy": 0.5, "sites": 4},
        facts | {"round": 3, "cursor": 5, "accuracy": 0.5, "sites": 2},
    ]


def test_a_look_reads_the_open_rounds_orders_and_no_others() -> None:
    """Of a run of any length; unless the history is asked for."""

    class Told(MemoryJournal):
        """A journal that notes which orders are read."""

        read: list[int | None] = []  # noqa: RUF012

        def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]:
            self.read.append(cursor)
            return super().orders(run, cursor)

    journal = Told()
    fill(journal, Crowd(3, 8))
    journal.read.clear()
    result_of(journal, Crowd(3, 8).run, 0.0)
    assert journal.read == [7]
    result_of(journal, Crowd(3, 8).run, 0.0, history=True)
    assert journal.read == [7, 7, JOIN, None]
