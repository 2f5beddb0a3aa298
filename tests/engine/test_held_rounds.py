"""A site whose owner lets an order wait is waited for beyond the deadline, as long as it lives and says so."""

from __future__ import annotations

import pytest

from tests.engine.toys import Stage, start
from tideline.core.run import ClientId, RunId, Waiting
from tideline.engine.coordinator.scheduler import Progress, waits_for
from tideline.engine.model.orders import Hold
from tideline.engine.model.runs import Status

ANNA, BERT, CARL = map(ClientId, ("anna", "bert", "carl"))


def opened(on: Stage, why: Hold, who: ClientId = BERT, **waiting: float) -> RunId:
    """A run whose other sites have joined, and one waits."""
    run = start(on, waiting={"deadline": 100.0, **waiting})
    on.scheduler.turn(run)
    for name in (ANNA, BERT, CARL):
        (order,) = on.agent_service.orders(name)
        if name == who:
            assert on.agent_service.hold(who, {order.id: why}) == ()
        else:
            on.handle(order)
    return run


def answer(on: Stage, *names: ClientId) -> None:
    """Let these sites answer the order that each has."""
    for name in names:
        (order,) = on.agent_service.orders(name)
        on.handle(order)


def held_again(on: Stage, held: Hold = Hold.APPROVAL) -> None:
    """What the agent's beat says every few seconds."""
    for order in on.agent_service.orders(BERT):
        on.agent_service.hold(BERT, {order.id: held})


@pytest.mark.parametrize("held", list(Hold))
def test_a_held_order_outlasts_the_deadline(on: Stage, held: Hold) -> None:
    """The result says what is waited for; once the site answers, the run goes on."""
    run = opened(on, held)
    on.clock.advance(150.0)
    held_again(on, held)
    later = on.scheduler.turn(run)
    assert on.row(run).status is Status.WAITING and later is not None and later > on.clock.now()
    told = on.result(run)
    assert "bert" in told["waits_for"] and [each["held"] for each in told["awaited"]] == [held.value]
    answer(on, BERT)
    on.scheduler.turn(run)
    assert on.row(run).status is Status.RUNNING


def test_not_without_a_sign_of_life(on: Stage) -> None:
    """A site that has gone away while it held its order is missing like any other."""
    run = opened(on, Hold.APPROVAL)
    on.clock.advance(400.0)
    on.scheduler.turn(run)
    assert on.row(run).status is Status.STALLED


def test_not_for_ever(on: Stage) -> None:
    """`waiting.held` says how long beyond the deadline."""
    run = opened(on, Hold.APPROVAL, held=1000.0)
    on.clock.advance(1050.0)
    held_again(on)
    on.scheduler.turn(run)
    assert on.row(run).status is Status.WAITING
    on.clock.advance(60.0)
    held_again(on)
    on.scheduler.turn(run)
    assert on.row(run).status is Status.STALLED


def test_at_the_join_it_is_said_for_how_long(on: Stage) -> None:
    """By the run's own rule, as later on."""
    run = start(on, waiting={"deadline": 100.0, "held": 200.0})
    (order,) = on.agent_service.orders(BERT)
    on.agent_service.hold(BERT, {order.id: Hold.APPROVAL})
    assert on.result(run)["waits_for"].endswith("of them for the approval of bert; gives up in 5 min")


def in_training(on: Stage, **waiting: float) -> RunId:
    """A run whose first round anna and carl have answered, and whose third site waits for its owner's word."""
    run = start(on, waiting={"deadline": 100.0, **waiting})
    on.scheduler.turn(run)
    answer(on, ANNA, BERT, CARL)
    on.scheduler.turn(run)
    answer(on, ANNA, CARL)
    held_again(on)
    return run


def test_a_round_that_has_its_quorum_goes_on_without_the_held(on: Stage) -> None:
    """At its deadline, as without any site that is absent; and the run says so meanwhile. The next round is asked at once."""
    run = in_training(on, min_replies=2)
    row = on.row(run)
    assert on.result(run)["waits_for"] == "waiting for the approval of bert; goes on without them in 100 s"
    on.clock.advance(101.0)
    held_again(on)
    on.scheduler.turn(run)
    later = on.row(run)
    assert later.cursor > row.cursor and later.status is Status.RUNNING
    assert on.journal.rounds(run)[-1].folded == (ANNA, CARL)


def test_a_round_that_needs_the_held_waits_for_it(on: Stage) -> None:
    """Where all are wanted, the owner's word is waited for; then the run goes on with it."""
    run = in_training(on)
    before = on.journal.rounds(run)
    assert on.result(run)["waits_for"] == "waiting for the approval of bert; gives up in 7 d"
    on.clock.advance(101.0)
    held_again(on)
    on.scheduler.turn(run)
    assert on.row(run).status is Status.RUNNING and on.journal.rounds(run) == before
    answer(on, BERT)
    on.scheduler.turn(run)
    assert on.journal.rounds(run)[-1].folded == (ANNA, BERT, CARL)


def test_in_words() -> None:
    """All that wait for their owners, or some of those that are waited for."""
    all_held = Progress(frozenset({ANNA, BERT}), frozenset({CARL}), (), ((ANNA, Hold.APPROVAL), (BERT, Hold.HOURS)))
    words = "waiting for the approval of anna; for the hours at which the owners of bert let runs work; gives up in 7 d"
    assert waits_for(all_held, Waiting(), 540.0) == words
    some = Progress(frozenset({ANNA, BERT}), frozenset({CARL}), (), ((ANNA, Hold.APPROVAL),))
    assert waits_for(some, Waiting(held=0.0), 540.0) == (
        "waiting for 2 of 3 sites (anna, bert), of them for the approval of anna; gives up in 9 min"
    )
