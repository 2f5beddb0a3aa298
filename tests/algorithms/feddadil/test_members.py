"""FedDaDiL: what one site says that no agent of ours would ends neither run nor round, and a site that was away goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.algorithms.feddadil.played import ALREADY, PLAIN, ROSTER, federation, memory, of_images, scored
from tests.algorithms.lies import Change, night_params, open_round, reported
from tests.algorithms.source_free.played import away
from tests.laws.stage import Stage
from tests.synthetic import IMAGES, experiment
from tideline.algorithms.feddadil import Config, feddadil
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.run import ClientId
from tideline.engine.model.orders import Order
from tideline.numerics.aggregation.averaging import on_simplex

BERT = ClientId("bert")
PLAN = {"encoder_rounds": 0, "head_rounds": 2, "rounds": 1}


def at(phase: str, **config: Any) -> tuple[Stage, Any, Order]:
    """A run whose round of a phase is open and answered by nobody, and bert's order."""
    return open_round(federation(), experiment("feddadil", ROSTER, config=PLAN | config, **ALREADY), phase, BERT)


def filled(name: str, value: float) -> Change:
    """A field of one number everywhere."""
    return lambda given: {name: torch.full_like(given[name], value)}


ADMITTED: dict[str, tuple[str, Change, dict[str, Any]]] = {
    "the largest moments": (
        "describe",
        lambda given: {name: torch.full_like(given[name], 1e15) for name in ("total_mean", "total_variance", "mean", "variance")},
        {},
    ),
    "moments of another type": ("describe", lambda given: {"total_mean": given["total_mean"].double()}, {}),
    "the steepest slopes": ("head", lambda given: {**filled("weight", 1e15)(given), **filled("curvature", 0.0)(given)}, {}),
    "the greatest curvature": ("head", filled("curvature", 1e15), {}),
    "slopes of another type": ("head", lambda given: {name: each.double() for name, each in given.items()}, {}),
    "the farthest points": ("learn", filled("z", 1e15), {}),
    "labels that say nothing": ("learn", filled("y", 0.0), {}),
    "points of a wider type": ("learn", lambda given: {"z": torch.full(given["z"].shape, -1e15)}, {"wire": "float16"}),
}


@pytest.mark.parametrize(("phase", "change", "config"), ADMITTED.values(), ids=ADMITTED)
def test_a_reply_that_is_taken_can_be_folded(phase: str, change: Change, config: dict[str, Any]) -> None:
    """The round closes, and what is sent next is of the type and size that the sites know."""
    stage, run, order = at(phase, **config)
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    stage.play(run, lambda orders: [each for each in orders if each.cursor == order.cursor])
    closed = stage.journal.rounds(run)[order.cursor + 1]
    assert "bert" in closed.folded and stage.row(run).status.value != "failed", stage.row(run).cause
    state = decode(feddadil.state, closed.state[0][0], stage.parts)
    assert {state.z.dtype, state.y.dtype, state.heads.weight.dtype, state.heads.shift.dtype} == {torch.float32}


def test_sizes_that_no_order_tells() -> None:
    """The first question has no words, so the method says how wide features are."""
    world = World(inputs=(8,), classes=3, model="linear", sizes={"K": 4})
    assert feddadil.dims(Config(), world) == {"d": 8, "n_c": 3, "K": 4}


def test_labels_of_zeros_are_any_label() -> None:
    """A row that sums to nothing says nothing; every other one is as it was."""
    y = torch.tensor([[0.0, 0.0], [0.25, 0.25], [0.0, 2.0]])
    assert on_simplex(y).tolist() == [[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]


TWO_TARGETS = {"anna": "source", "bert": "target", "carl": "target"}


def played(
    stage: Stage, missed: tuple[str, str, int], config: dict[str, Any], roster: dict[str, str] = ROSTER, **given: Any
) -> Any:
    """A run that goes on with one reply, and in which a site misses one round: who, phase, round."""
    reported = experiment("feddadil", roster, config=config, waiting={"min_replies": 1, "deadline": 60.0}, **(given or ALREADY))
    run = stage.start(reported)
    assert stage.play(run, away(stage, missed[0], missed[1:])).status.value == "completed", stage.row(run).cause
    return run


@pytest.mark.parametrize("optimiser", ["adam", *night_params("rows", "sgd")])
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
