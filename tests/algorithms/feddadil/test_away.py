"""FedDaDiL: a site that is away for a while comes back and goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.algorithms.feddadil.played import ALREADY, PLAIN, ROSTER, federation, memory, of_images, scored
from tests.laws.stage import Stage
from tests.synthetic import IMAGES, experiment
from tideline.engine.model.orders import Order

TWO_TARGETS = {"anna": "source", "bert": "target", "carl": "target"}


def away(stage: Stage, who: str, phase: str, at: int) -> Callable[[list[Order]], list[Order]]:
    """Everybody answers but one site in one round."""

    def there(order: Order) -> bool:
        row = stage.journal.order(order.id)
        assert row is not None
        return (row.client, order.phase, order.round) != (who, phase, at)

    return lambda orders: [order for order in orders if there(order)]


def played(
    stage: Stage, missed: tuple[str, str, int], config: dict[str, Any], roster: dict[str, str] = ROSTER, **given: Any
) -> Any:
    """A run that goes on with one reply, and in which a site misses one round: who, phase, round."""
    reported = experiment("feddadil", roster, config=config, waiting={"min_replies": 1, "deadline": 60.0}, **(given or ALREADY))
    run = stage.start(reported)
    assert stage.play(run, away(stage, *missed)).status.value == "completed", stage.row(run).cause
    return run


@pytest.mark.parametrize("optimiser", ["adam", "rows", "sgd"])
def test_the_first_pass_may_be_missed(optimiser: str) -> None:
    """The optimiser's memory begins with the first pass that the site takes part in."""
    stage = federation()
    run = played(stage, ("anna", "learn", 1), {**PLAIN, "rounds": 3, "optimiser": optimiser})
    answered = [o for o in stage.journal.orders(run) if o.client == "anna" and "loss" in o.metrics]
    assert len(answered) == 2
    assert not any(o.failure for o in stage.journal.orders(run))


def test_the_last_adaptation_may_be_missed() -> None:
    """The target is scored with what it has."""
    config = {"encoder_rounds": 0, "rounds": 3, "adapt_every": 1}
    stage = federation()
    run = played(stage, ("carl", "adapt", 3), config, TWO_TARGETS)
    assert set(memory(stage, run, "carl").candidates) == {"r1", "r2", "e1", "e2"}
    assert {"accuracy", "accuracy_r", "accuracy_e"} <= set(scored(stage, run, "carl"))


def test_a_site_without_features_is_told_why() -> None:
    """Who was away when the encoder was sent cannot learn; the others go on."""
    stage = federation(**of_images())
    run = played(stage, ("anna", "embed", 1), {"rounds": 2}, world=dict(IMAGES))
    failed = {o.failure.what for o in stage.journal.orders(run) if o.failure}
    assert failed and all("it was away when" in what for what in failed)
