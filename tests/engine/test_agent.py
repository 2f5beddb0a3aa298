"""The life of an order at a site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage, ready
from tests.synthetic import NAMES, SimSite, opener
from tideline.core.errors import Cancelled, MemoryAhead, Unreachable
from tideline.core.privacy import Audience, Exposure
from tideline.core.run import ClientId, Role
from tideline.engine.model.orders import OrderStatus, Receipt
from tideline.engine.model.runs import JOIN, Status

BERT = ClientId(NAMES[1])


@pytest.fixture
def on() -> Stage:
    return stage()


def opened(on: Stage, cursor: int = 0, **more: Any) -> Any:
    """A run with an open exchange, and bert's order."""
    run = start(on, **more)
    until(on, run, cursor)
    return run, on.agent_service.orders(BERT)[0]


def test_an_order_handled_twice_is_worked_once(on: Stage) -> None:
    """A repeated order is answered from the vault; its step does not run again, not even after a restart."""
    _, order = opened(on)
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    head = on.vaults[BERT].head(order.run)
    on.rebuild()
    assert on.handle(order).verdict == "stale"  # type: ignore[union-attr]
    assert on.jobs.count((BERT, 0)) == 1
    assert on.vaults[BERT].head(order.run) is head


def test_an_order_is_finished_after_a_crash_without_working_again(on: Stage) -> None:
    """Work that was committed and not delivered is delivered after the restart."""
    _, order = opened(on)
    ready(on.agents[BERT], order)
    on.rebuild()
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    assert on.jobs.count((BERT, 0)) == 1


def test_memory_and_reply_are_one_commit(on: Stage) -> None:
    """There is no moment at which the memory has moved and the order is not answered: a death there would work on it twice."""
    _, order = opened(on)
    vault = on.vaults[BERT]
    before = len(vault.past)
    ready(on.agents[BERT], order)
    (made,) = vault.past[before:]
    assert (made.order, made.cursor) == (order.id, order.cursor) and made.memory and made.reply


def test_a_policy_holds_for_orders_whose_join_never_came() -> None:
    """A coordinator that leaves out the join gets nothing that the owner forbids: no step runs."""
    run_of = stage()
    _, order = opened(run_of)
    strict = stage(bert=SimSite(opener(1), frozenset({(Exposure.METRIC, Audience.COORDINATOR)})))
    agent = strict.agents[BERT]
    agent.link = run_of.agents[BERT].link
    assert agent.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    row = run_of.journal.order(order.id)
    assert row is not None
    assert row.failure is not None
    assert row.failure.kind == "ContractRefused"
    assert strict.jobs == []


def test_an_owners_roles_hold_at_the_site_too(on: Stage) -> None:
    """A coordinator that makes a source of a site whose owner allows target only opens no labels."""
    run = start(on)
    on.scheduler.turn(run)
    on.agents[BERT].owner.roles = frozenset({Role.TARGET})
    (order,) = on.agent_service.orders(BERT)
    on.handle(order)
    failure = on.journal.order(order.id).failure  # type: ignore[union-attr]
    assert failure is not None
    assert (failure.kind, on.jobs) == ("RosterRefused", [])
    assert "This site may not be a source: its owner allows target" in failure.what


def test_a_shorter_contract_talks_no_site_into_more(on: Stage) -> None:
    """A coordinator that hides a clause is refused: the site derives the contract from its own code."""
    _, order = opened(on)
    short = replace(order, brief={**order.brief, "contract": order.brief["contract"][:1]})
    on.handle(short)
    failure = on.journal.order(order.id).failure  # type: ignore[union-attr]
    assert failure is not None
    assert failure.kind == "ContractRefused"
    assert "derives another contract" in failure.what


def test_a_coordinator_cannot_ask_for_other_files_than_the_replys(on: Stage) -> None:
    """A receipt that names a part of the memory opens nothing."""
    _, order = opened(on)
    agent = on.agents[BERT]
    head = ready(agent, order)
    report, asked = agent.link.report, []

    def greedy(order: Any, reply: Any) -> Receipt:
        asked.append(reply)
        return Receipt("missing", ((head.memory[0][0], 0),)) if len(asked) == 1 else report(order, reply)

    agent.link.report = greedy  # type: ignore[method-assign]
    agent.handle(order)
    assert on.wire.up == []
    assert asked[1].failure.kind == "NotFound"


def test_an_order_that_has_ended_is_left_alone(on: Stage) -> None:
    """A cancelled order is not worked for, and nothing is reported."""
    run, order = opened(on)
    on.run_service.cancel(run)
    assert on.handle(order) is None
    assert (BERT, 0) not in on.jobs
    row = on.journal.order(order.id)
    assert row is not None
    assert (row.status, row.failure) == (OrderStatus.CANCELLED, None)


def test_a_cancel_reaches_a_step_at_its_next_tick(on: Stage) -> None:
    """A step whose tick raises Cancelled ends without a reply, a failure or a memory."""
    run = on.start(
        {
            "method": "fedavg",
            "preset": "tiny",
            "world": {"inputs": [8], "classes": 3, "model": "mlp"},
            "roster": {"bert": "source"},
        }
    )
    until(on, run, 0)
    (order,) = on.agent_service.orders(BERT)

    def tick(share: float) -> None:
        raise Cancelled("withdrawn")

    assert on.agents[BERT].handle(order, tick) is None
    assert on.journal.order(order.id).status is OrderStatus.OPEN  # type: ignore[union-attr]
    assert on.vaults[BERT].head(run).cursor == JOIN  # type: ignore[union-attr]


def test_a_link_that_gives_up_is_not_a_failure(on: Stage) -> None:
    """Unreachable goes up to whoever drives the agent; the order stays open and is answered later."""
    _, order = opened(on)
    link = on.agents[BERT].link

    def down(*args: Any) -> Receipt:
        raise Unreachable("no line")

    kept, link.report = link.report, down  # type: ignore[method-assign, assignment]
    with pytest.raises(Unreachable):
        on.handle(order)
    link.report = kept  # type: ignore[method-assign]
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]


def test_a_memory_with_a_hole_is_memory_lost(on: Stage) -> None:
    """A vault whose memory file is gone says so, instead of settling anew."""
    run, order = opened(on, 1)
    head = on.vaults[BERT].head(run)
    assert head is not None
    on.vaults[BERT].parts(run).drop(head.memory[0][0])
    row = on.play(run)
    assert row.status is Status.STALLED
    assert on.journal.order(order.id).failure.kind == "MemoryLost"  # type: ignore[union-attr]


def test_a_reply_to_another_message_is_not_given_again(on: Stage) -> None:
    """A coordinator that was set back may ask the same exchange with another message: what was answered before is no answer."""
    _, order = opened(on, 1)
    agent = on.agents[BERT]
    ready(agent, order)
    assert ready(agent, order).cursor == 1 and on.jobs.count((BERT, 1)) == 1
    with pytest.raises(MemoryAhead, match="has answered exchange 1 when something else was asked there"):
        ready(agent, replace(order, files=(*order.files, order.files[0])))
    before = on.vaults[BERT].head(order.run)
    assert before is not None
    on.vaults[BERT].commit(order.run, replace(before, asked=None))
    assert ready(agent, replace(order, files=())).reply == before.reply, "a record from before this was kept"


def test_a_site_forgets_the_parts_of_earlier_orders(on: Stage) -> None:
    """A vault holds the parts of its head and of the order at hand, however long the run is."""
    run = start(on, rounds=12)
    on.play(run)
    assert on.row(run).status is Status.COMPLETED
    assert len(list(on.vaults[BERT].parts(run).digests())) <= 5


@pytest.mark.parametrize(
    "odd",
    [
        {"role": ["source"]},
        {"role": "owner"},
        {"method": 7},
        {"keeps": None},
        {"threads": "all"},
        {"threads": 0},
        {"threads": 1 << 31},
    ],
)
def test_an_order_that_makes_no_sense_is_answered(on: Stage, odd: dict[str, Any]) -> None:
    """The agent service hears which word of the brief is wrong; no step runs."""
    _, order = opened(on)
    on.handle(replace(order, brief={**order.brief, **odd}))
    told = on.journal.order(order.id)
    assert told is not None and told.failure is not None and told.failure.kind == "Malformed"
    assert f"its {next(iter(odd))} is missing or wrong" in told.failure.what and on.jobs.count((BERT, 0)) == 0
