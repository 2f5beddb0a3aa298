"""A reply tells when its site began to fetch, to compute and to send; the coordinator places that on its own clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage, ready
from tests.synthetic import NAMES
from tideline.core.errors import StepFailed
from tideline.core.run import ClientId, RunId
from tideline.engine.model.orders import Files, Order, OrderRow, OrderStatus
from tideline.engine.model.said.stages import Stages, placed
from tideline.engine.ports.site import Done, Job, Pool

BERT = ClientId(NAMES[1])


class Slow:
    """A pool whose steps take ten seconds by the stage's clock, and a line whose parts take three each way."""

    def __init__(self, on: Stage, fails: bool = False) -> None:
        self.on, self.fails = on, fails
        agent = on.agents[BERT]
        self.pool: Pool = agent.pool
        fetch, push = agent.link.fetch, agent.link.push
        agent.pool, agent.hours, agent.watch = self, True, on.clock.now
        agent.link.fetch = self.taking(fetch)  # type: ignore[method-assign]
        agent.link.push = self.taking(push)  # type: ignore[method-assign]

    def taking(self, move: Callable[[Order, Files, object], None]) -> Callable[..., None]:
        def moved(order: Order, files: Files, parts: object) -> None:
            self.on.clock.advance(3.0)
            move(order, files, parts)

        return moved

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        self.on.clock.advance(10.0)
        if self.fails:
            raise StepFailed("No")
        return self.pool.run(job, tick)


def opened() -> tuple[Stage, RunId, Order, float]:
    """A run whose first step has been open for five seconds, bert's order, and when it was made."""
    on = stage()
    run = start(on)
    until(on, run, 0)
    made = on.clock.now()
    on.clock.advance(5.0)
    return on, run, on.agent_service.orders(BERT)[0], made


def row(on: Stage, order: Order) -> OrderRow:
    found = on.journal.order(order.id)
    assert found is not None
    return found


def test_four_stages() -> None:
    """Queued for five seconds, fetched for three, computed for ten, sent for three."""
    on, _, order, made = opened()
    Slow(on)
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    found = row(on, order)
    assert found.stages is not None and found.answered is not None
    assert [each - made for each in (*found.stages, found.answered)] == [5.0, 8.0, 18.0, 21.0]


def test_a_step_that_fails() -> None:
    """Computed until it failed."""
    on, _, order, made = opened()
    Slow(on, fails=True)
    on.handle(order)
    found = row(on, order)
    assert found.status is OrderStatus.FAILED and found.stages == [made + 5.0, made + 8.0, made + 18.0]


def test_who_tells_no_hours_tells_no_stages() -> None:
    """As an owner says who forbids notes, and as agents from before."""
    on, _, order, _ = opened()
    Slow(on)
    on.agents[BERT].hours = False
    on.handle(order)
    assert row(on, order).stages is None and row(on, order).facts == {}


def test_what_was_worked_out_by_another_process() -> None:
    """Nobody remembers when: nothing is told."""
    on, _, order, _ = opened()
    ready(on.agents[BERT], order)
    on.rebuild()
    on.agents[BERT].hours = True
    on.handle(order)
    assert row(on, order).status is OrderStatus.ANSWERED and row(on, order).stages is None


def test_a_join_keeps_its_facts() -> None:
    """Stages stand beside them."""
    on = stage()
    run = start(on)
    until(on, run, -1)
    Slow(on)
    order = on.agent_service.orders(BERT)[0]
    on.handle(order)
    found = row(on, order)
    assert found.facts["labelled"] is True and found.stages is not None


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0])
def test_what_is_no_age_is_none(odd: float) -> None:
    for name in ("fetching", "began", "done"):
        assert placed(replace(Stages(3.0, 2.0, 1.0), **{name: odd}), 0.0, 10.0) is None


def test_what_cannot_be_is_cut() -> None:
    """Nothing lies outside of the time for which the order was open, and nothing goes back."""
    assert placed(Stages(1e12, 1e12, 0.0), 100.0, 110.0) == [100.0, 100.0, 110.0]
    assert placed(Stages(1.0, 5.0, 9.0), 100.0, 110.0) == [109.0, 109.0, 109.0]
    assert placed(Stages(3.0, 2.0, 1.0), 100.0, 90.0) == [100.0, 100.0, 100.0], "the clock was set back"
    assert placed(None, 0.0, 1.0) is None
    assert Stages(3.0, 2.0, 1.0).older(4.0) == Stages(7.0, 6.0, 5.0)
