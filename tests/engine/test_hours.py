"""What a step took goes with its reply, once, and no more of it is counted than there can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.present import present
from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage, ready
from tests.synthetic import NAMES
from tideline.core.errors import Cancelled, StepFailed
from tideline.core.run import ClientId, RunId
from tideline.engine.coordinator.history import next_attempt
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.access.spending import Spending, Spent
from tideline.engine.model.orders import Files, Order, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.model.said.stages import Stages, placed
from tideline.engine.ports.site import Done, Job, Pool
from tideline.engine.process.measuring import measuring, spent_in

BERT = ClientId(NAMES[1])
TOOK = Spent(30.0, 60.0, 1, 4)


class Measured:
    """A pool that says what its steps took."""

    def __init__(self, pool: Pool, took: Spent) -> None:
        self.pool, self.took = pool, took

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        return replace(self.pool.run(job, tick), spent=self.took)


@pytest.fixture
def on() -> Stage:
    """Bert's agent measures; the others are from before."""
    made = stage()
    measure(made)
    return made


def measure(on: Stage, took: Spent = TOOK) -> None:
    agent = on.agents[BERT]
    agent.pool, agent.hours = Measured(agent.pool, took), True


def opened(on: Stage) -> tuple[RunId, Order]:
    """A run whose first step is open, for a minute, and bert's order."""
    run = start(on)
    until(on, run, 0)
    on.clock.advance(60.0)
    return run, on.agent_service.orders(BERT)[0]


def counted(on: Stage, run: RunId) -> Spending:
    return on.journal.spent_by_run(run)[BERT]


def test_a_reply_says_what_its_step_took(on: Stage) -> None:
    """The result has it, and of the others that they do not say."""
    run, order = opened(on)
    before = counted(on, run)  # the join took no longer than it was open
    on.handle(order)
    assert counted(on, run) == before + Spending(30.0, 60.0, 1)
    shown = result_of(on.journal, run, on.clock.now())
    (line,) = (client for client in shown["clients"] if client["name"] == BERT)
    assert line["spent"]["cpu_hours"] == pytest.approx(60.0 / 3600.0) and line["spent"]["unreported"] == 0
    assert shown["spent"]["unreported"] > 0
    assert [client["spent"] for client in shown["clients"] if client["name"] != BERT] == [None] * (len(shown["clients"]) - 1)


def test_a_repeated_reply_counts_once(on: Stage) -> None:
    """After a crash, and after one that was acknowledged."""
    run, order = opened(on)
    before = counted(on, run)
    ready(on.agents[BERT], order)
    on.rebuild()
    measure(on, Spent(1.0, 1.0, 1, 1))
    for verdict in ("accepted", "stale"):
        assert on.handle(order).verdict == verdict  # type: ignore[union-attr]
    assert counted(on, run) == before + Spending(30.0, 60.0, 1)


def test_one_step_that_answers_two_attempts_counts_once(on: Stage) -> None:
    """The first answer came too late, and the site is asked again: it sends the same, and has not worked for it."""
    run, order = opened(on)
    before = counted(on, run)
    agent = on.agents[BERT]
    head = ready(agent, order)
    row = present(on.journal.order(order.id))
    again = next_attempt(row, JOIN, on.clock.now())
    on.journal.reissue([again])
    agent.answer(order, head)
    (second,) = on.agent_service.orders(BERT)
    assert second.id == again.id and on.handle(second).verdict == "accepted"  # type: ignore[union-attr]
    assert counted(on, run) == before + Spending(30.0, 60.0, 1) + Spending(reported=1)


def test_a_step_of_an_attempt_that_was_never_answered_counts_with_the_next(on: Stage) -> None:
    """From when that attempt was asked for; another's order is none of it."""
    run, order = opened(on)
    before = counted(on, run)
    ready(on.agents[BERT], order)
    row = present(on.journal.order(order.id))
    again = next_attempt(row, JOIN, on.clock.now())  # open for no time
    on.journal.reissue([again])
    foreign = replace(TOOK, order=on.journal.orders(run, 0)[0].id)
    assert foreign.order not in (order.id, again.id)
    second = next(each for each in on.agent_service.orders(BERT) if each.id == again.id)
    assert on.handle(second).verdict == "accepted"  # type: ignore[union-attr]
    assert counted(on, run) == before + Spending(30.0, 60.0, 1)


@pytest.mark.parametrize("took", [Spent(1e9, math.nan, 1, 4), Spent(math.inf, -5.0, 10**9, 4)])
def test_what_cannot_be_is_cut_and_noted(on: Stage, took: Spent) -> None:
    """No device works longer than an order is open."""
    run, order = opened(on)
    before = counted(on, run)
    measure(on, took)
    on.handle(order)
    most = 60.0 * min(took.devices, 64)
    assert counted(on, run) == before + Spending(most, 0.0, 1)
    note = [event for event in on.journal.events(run) if event.kind == "note" and event.data["client"] == BERT][-1]
    assert note.data["note"] == "spent_clipped" and note.data["numbers"] == {"gpu_seconds": most, "cpu_seconds": 0.0}


def test_a_failure_counts_too(on: Stage) -> None:
    """What failed before any step ran took nothing."""
    run, order = opened(on)
    before = counted(on, run)

    def fails(job: Job, tick: Callable[[float], None]) -> Done:
        with measuring("cuda:0"):
            raise StepFailed("No")

    on.agents[BERT].pool.run = fails  # type: ignore[method-assign]
    on.handle(order)
    found = counted(on, run)
    row = on.journal.order(order.id)
    assert row is not None and row.status is OrderStatus.FAILED
    assert found.reported == before.reported + 1 and found.gpu > before.gpu


def test_who_tells_no_hours_is_counted_apart(on: Stage) -> None:
    """Although its pool measures."""
    run, order = opened(on)
    on.agents[BERT].hours = False
    on.handle(order)
    assert counted(on, run).unreported == 1


def test_a_cancelled_step_is_not_counted(on: Stage) -> None:
    """It has no reply; nor is a reply that comes after the run's end."""
    run, order = opened(on)
    before = counted(on, run)
    on.run_service.cancel(run)
    assert on.agent_service.report(BERT, Reply(order.id, spent=TOOK)).verdict == "stale"
    assert counted(on, run) == before and on.journal.run(run).status is Status.CANCELLED  # type: ignore[union-attr]


def test_a_simulation_measures_nothing() -> None:
    """So that its result is the same each time."""
    on = stage()
    run, order = opened(on)
    on.handle(order)
    shown = result_of(on.journal, run, on.clock.now())
    assert shown["spent"] is None and {client["spent"] for client in shown["clients"]} == {None}


def test_what_a_process_measures() -> None:
    """Wall clock at an accelerator alone, and processors' time anywhere; an error takes it along, also by way of a cause."""
    with measuring("cpu") as spent:
        sum(range(100_000))
        found = spent()
    assert found.gpu == 0.0 < found.cpu and (found.devices, found.cores > 0) == (0, True)
    with measuring("mps") as spent:
        assert spent().gpu > 0.0 and spent().devices == 1
    with pytest.raises(StepFailed) as failed, measuring("cuda"):
        raise StepFailed("No", part="7")
    took = spent_in(failed.value)
    assert took is not None and took.gpu > 0.0 and failed.value.context["part"] == "7"
    assert spent_in(Cancelled("No")) is None


# A reply tells when its site began to fetch, to compute and to send; the coordinator places that on its own clock.


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


def open_first_step() -> tuple[Stage, RunId, Order, float]:
    """A run whose first step has been open for five seconds, bert's order, and when it was made."""
    on = stage()
    run = start(on)
    until(on, run, 0)
    made = on.clock.now()
    on.clock.advance(5.0)
    return on, run, on.agent_service.orders(BERT)[0], made


def row(on: Stage, order: Order) -> OrderRow:
    return present(on.journal.order(order.id))


def test_four_stages() -> None:
    """Queued for five seconds, fetched for three, computed for ten, sent for three."""
    on, _, order, made = open_first_step()
    Slow(on)
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    found = row(on, order)
    assert found.stages is not None and found.answered is not None
    assert [each - made for each in (*found.stages, found.answered)] == [5.0, 8.0, 18.0, 21.0]


def test_a_step_that_fails() -> None:
    """Computed until it failed."""
    on, _, order, made = open_first_step()
    Slow(on, fails=True)
    on.handle(order)
    found = row(on, order)
    assert found.status is OrderStatus.FAILED and found.stages == [made + 5.0, made + 8.0, made + 18.0]


def test_who_tells_no_hours_tells_no_stages() -> None:
    """As an owner says who forbids notes, and as agents from before."""
    on, _, order, _ = open_first_step()
    Slow(on)
    on.agents[BERT].hours = False
    on.handle(order)
    assert row(on, order).stages is None and row(on, order).facts == {}


def test_what_was_worked_out_by_another_process() -> None:
    """Nobody remembers when: nothing is told."""
    on, _, order, _ = open_first_step()
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
    assert placed(None, 0.0, 1.0) is None and Stages(3.0, 2.0, 1.0).older(4.0) == Stages(7.0, 6.0, 5.0)
