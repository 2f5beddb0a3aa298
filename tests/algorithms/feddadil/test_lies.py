"""FedDaDiL: what one site says that no agent of ours would ends neither the run nor a round of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.algorithms.feddadil.played import ALREADY, ROSTER, federation
from tests.algorithms.lies import Change, refused_alone, reported
from tests.engine.toys import until
from tests.laws.stage import Stage
from tests.synthetic import experiment
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
    stage = federation()
    waiting = {"min_replies": 1, "deadline": 60.0}
    run = stage.start(experiment("feddadil", ROSTER, config=PLAN | config, waiting=waiting, **ALREADY))
    plan = feddadil.plan(Config(**{"points": 12, **PLAN, **config}))
    until(stage, run, [each.name for each in plan].index(phase))
    (order,) = stage.agent_service.orders(BERT)
    return stage, run, order


def filled(name: str, value: float) -> Change:
    """A field of one number everywhere."""
    return lambda given: {name: torch.full_like(given[name], value)}


def narrower(*names: str) -> Change:
    """Fields that lack their last column."""
    return lambda given: {name: given[name][..., :-1] for name in names}


REFUSED: dict[str, tuple[str, Change, str]] = {
    "features of another width": ("describe", narrower("total_mean", "total_variance", "mean", "variance"), "WrongDims"),
    "a mean whose square is infinite": ("describe", filled("total_mean", 1e30), "OutOfRange"),
    "a variance below zero": ("describe", filled("total_variance", -1.0), "OutOfRange"),
    "a class's variance below zero": ("describe", filled("variance", -1e-6), "OutOfRange"),
    "fewer layers": ("head", lambda given: {name: each[:-1] for name, each in given.items()}, "WrongDims"),
    "a curvature below zero": ("head", filled("curvature", -1.0), "OutOfRange"),
    "atoms of fewer points": ("learn", lambda given: {name: each[:, :-1] for name, each in given.items()}, "WrongDims"),
    "one atom more": ("learn", lambda given: {n: torch.cat([each, each[:1]]) for n, each in given.items()}, "WrongDims"),
    "points beyond all measure": ("learn", filled("z", -1e30), "OutOfRange"),
    "labels below zero": ("learn", filled("y", -1.0), "OutOfRange"),
}


@pytest.mark.parametrize(("phase", "change", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_reply_that_no_fold_could_take_is_refused(phase: str, change: Change, kind: str) -> None:
    """Its own order has failed, and the round goes on without it."""
    stage, run, order = at(phase)
    refused_alone(stage, run, order, BERT, change, kind)
    assert stage.journal.rounds(run)[order.cursor + 1].folded == ("anna", *(("carl",) if phase == "learn" else ()))


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
