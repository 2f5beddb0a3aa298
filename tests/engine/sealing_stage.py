"""Three sites that pass sealed values on, and what tests do to their orders on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine import passing
from tests.engine.passing import ALL
from tests.engine.present import present
from tests.laws.stage import Cuts, Stage
from tests.synthetic import FEATURES, sites
from tideline.core.run import ClientId, OrderId, RunId
from tideline.engine.model.orders import Failure, Order
from tideline.engine.model.runs import Status

METHODS = passing.METHODS
ANNA, BERT, CARL = ALL


def stage(cuts: Cuts | None = None) -> Stage:
    """Three sites."""
    return Stage(METHODS, sites(), cuts)


def given(**config: Any) -> dict[str, Any]:
    """An experiment."""
    roster = dict.fromkeys(map(str, ALL), "peer")
    return {"method": "passing", "world": FEATURES, "roster": roster, "config": config, "seed": 7}


def played(on: Stage, **config: Any) -> RunId:
    """A run to its end."""
    run = on.start(given(**config))
    row = on.play(run)
    assert row.status is Status.COMPLETED, row.cause
    return run


def owner(on: Stage, order: OrderId) -> ClientId:
    """Whose order it is."""
    return present(on.journal.order(order)).client


def orders_with_values(on: Stage, run: RunId, rounds: int = 2) -> list[Order]:
    """The orders of the round from which on values are handed out."""
    for action in on.actions(run):
        on.alive(action)
        found = [o for o in on.waiting() if o.sealed and o.round == rounds]
        if found:
            return found
    raise AssertionError("no order hands a value out")


def first_order_with_values(**config: Any) -> tuple[Stage, RunId, Order]:
    """Start a run, play it until values are handed out, and return the first order that brings some."""
    on = stage()
    run = on.start(given(**config))
    return on, run, orders_with_values(on, run)[0]


def lying(on: Stage, fetch: Callable[..., None]) -> Callable[..., None]:
    """A relay that hands out whatever file is asked for, as one that is not to be trusted would."""

    def fetched(order: Order, files: Any, parts: Any) -> None:
        for digest, _ in files:
            parts.put([bytes(on.parts.view(digest))])

    return fetched


def failure_of(on: Stage, order: Order) -> Failure:
    """What a site answers to an order of a relay that hands out what is asked for: its failure."""
    me = owner(on, order.id)
    on.agents[me].link.fetch = lying(on, on.agents[me].link.fetch)  # type: ignore[method-assign]
    on.agents[me].handle(order)
    row = present(on.journal.order(order.id))
    assert row.failure is not None, "it was believed"
    return row.failure


def answered_to(on: Stage, order: Order) -> str:
    """The words of that failure."""
    return failure_of(on, order).what
