"""Replies that no fold could take are refused by the kind of their fault, and the round goes on without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.algorithms.lies import Change, filled, open_round, refusal_kinds, refused_alone
from tests.laws.case import Case
from tideline.algorithms import METHODS

Lies = Mapping[str, tuple[Change, str]]
LESS: Change = lambda given: {"f": dict(list(given["f"].items())[1:])}  # noqa: E731
CLASSIFIER: Change = lambda given: {"f": {**given["f"], "classifier.bias": torch.zeros(3)}}  # noqa: E731


def full(name: str, value: float) -> Change:
    """A tensor of equal numbers."""
    return lambda given: {name: torch.full_like(given[name], value)}


def narrower(*names: str) -> Change:
    """Tensors that lack their last column."""
    return lambda given: {name: given[name][..., :-1] for name in names}


# By method and phase.
LIES: Mapping[tuple[str, str], Lies] = {
    ("central", "pool"): {
        "a feature less": (lambda given: {"x": given["x"][:, 1:]}, "WrongDims"),
        "images": (lambda given: {"x": given["x"].view(-1, 2, 4)}, "WrongDims"),
        "a label less": (lambda given: {"y": given["y"][1:]}, "WrongDims"),
        "a label below zero": (lambda given: {"y": given["y"] - 1}, "OutOfRange"),
        "no number": (full("x", torch.nan), "NotFinite"),
        "beyond all measure": (full("x", 1e30), "OutOfRange"),
    },
    ("fdan", "width"): {
        "no width": (lambda given: {"s2": 0.0}, "OutOfRange"),
        "no number": (lambda given: {"s2": float("nan")}, "NotFinite"),
    },
    ("fdan", "share"): {
        "a moment of other size": (lambda given: {"m": given["m"][:5]}, "WrongDims"),
        "a moment that is none": (full("m", torch.nan), "NotFinite"),
        "few rows": (lambda given: {"samples": 31}, "OutOfRange"),
    },
    ("fdan", "train"): {
        "a change of statistics": (lambda given: {"delta": {**given["delta"], "running_mean": torch.zeros(1)}}, "WrongDims"),
    },
    ("fedamp_pl", "adapt"): {
        "a layer less": (LESS, "WrongDims"),
        "the classifier too": (CLASSIFIER, "WrongDims"),
        "no number": (filled("f", torch.nan), "NotFinite"),
    },
    ("feddadil", "describe"): {
        "another width": (narrower("total_mean", "total_variance", "mean", "variance"), "WrongDims"),
        "a mean whose square is infinite": (full("total_mean", 1e30), "OutOfRange"),
        "a variance below zero": (full("total_variance", -1.0), "OutOfRange"),
        "a class's variance below zero": (full("variance", -1e-6), "OutOfRange"),
    },
    ("feddadil", "head"): {
        "fewer layers": (lambda given: {name: each[:-1] for name, each in given.items()}, "WrongDims"),
        "a curvature below zero": (full("curvature", -1.0), "OutOfRange"),
    },
    ("feddadil", "learn"): {
        "fewer points": (lambda given: {name: each[:, :-1] for name, each in given.items()}, "WrongDims"),
        "one atom more": (lambda given: {name: torch.cat([each, each[:1]]) for name, each in given.items()}, "WrongDims"),
        "points beyond all measure": (full("z", -1e30), "OutOfRange"),
        "labels below zero": (full("y", -1.0), "OutOfRange"),
    },
    ("fedgma", "train"): {
        "no number": (filled("model", float("nan")), "NotFinite"),
        "beyond all measure": (filled("model", 1e30), "OutOfRange"),
        "no rows": (lambda given: {"samples": 0}, "OutOfRange"),
        "a layer less": (lambda given: {"model": dict(list(given["model"].items())[1:])}, "WrongDims"),
    },
    ("fedpcl_pl", "describe"): {
        "a class more": (lambda g: {n: torch.cat([g[n], g[n][:1]]) for n in ("prototypes", "counts")}, "WrongDims"),
        "a narrower prototype": (lambda given: {"prototypes": given["prototypes"][:, 1:]}, "WrongDims"),
        "a count below zero": (lambda given: {"counts": given["counts"] - 100}, "OutOfRange"),
        "no number": (full("prototypes", torch.nan), "NotFinite"),
        "beyond all measure": (full("prototypes", 1e30), "OutOfRange"),
    },
    ("fedsr", "train"): {
        "no number": (filled("model", float("inf")), "NotFinite"),
        "beyond all measure": (filled("model", -1e16), "OutOfRange"),
        "references in the model": (lambda given: {"model": {**given["model"], "r_mu": torch.zeros(3, 64)}}, "WrongDims"),
    },
    ("fedwca", "full"): {
        "a weight below zero": (full("alpha", -1.0), "OutOfRange"),
        "a share below zero": (full("beta", -0.5), "OutOfRange"),
        "one weight more": (lambda given: {"alpha": torch.cat([given["alpha"], given["alpha"][:1]])}, "WrongDims"),
        "a third share": (lambda given: {"beta": torch.tensor([0.2, 0.3, 0.5])}, "WrongDims"),
        "no number": (full("alpha", float("nan")), "NotFinite"),
        "a layer less": (LESS, "WrongDims"),
        "the classifier too": (CLASSIFIER, "WrongDims"),
    },
    ("hfedf", "train"): {
        "a foreign tensor": (lambda given: {"delta": {**given["delta"], "more": torch.zeros(2)}}, "WrongDims"),
        "a tensor less": (lambda given: {"delta": dict(list(given["delta"].items())[1:])}, "WrongDims"),
        "another shape": (lambda given: {"delta": {n: w[:1] for n, w in given["delta"].items()}}, "WrongDims"),
        "not a number": (filled("delta", torch.nan), "NotFinite"),
        "infinity": (filled("delta", torch.inf), "NotFinite"),
        "beyond all measure": (filled("delta", 1e16), "OutOfRange"),
    },
    ("hfedf", "score"): {
        "counts below zero": (lambda given: {"right": given["right"] - 120}, "OutOfRange"),
    },
    ("hfedf", "embed"): {
        "another size": (lambda given: {"nu": torch.zeros(2)}, "WrongDims"),
    },
    ("ifca_pl", "adapt"): {
        "one of four models": (lambda given: {"choice": torch.tensor([0.0, 0.0, 0.0, 1.0])}, "WrongDims"),
        "one of two": (lambda given: {"choice": torch.tensor([0.0, 1.0])}, "WrongDims"),
        "one before the first": (lambda given: {"choice": -given["choice"]}, "OutOfRange"),
        "none that is a number": (full("choice", torch.nan), "NotFinite"),
        "a layer less": (LESS, "WrongDims"),
    },
    ("kd3a", "train"): {
        "no numbers": (filled("g", torch.nan), "NotFinite"),
    },
    ("kd3a", "distil"): {
        "a weight less": (lambda given: {"a": given["a"][1:]}, "WrongDims"),
        "below zero": (lambda given: {"a": -1 - given["a"]}, "OutOfRange"),
        "no numbers": (full("a", torch.nan), "NotFinite"),
        "a layer less": (LESS, "WrongDims"),
    },
    ("ladd", "style"): {
        "an amplitude below zero": (full("style", -1.0), "OutOfRange"),
        "an amplitude that is no number": (full("style", float("nan")), "NotFinite"),
        "a wider window": (lambda given: {"style": torch.ones(1, 3, 3)}, "WrongDims"),
        "a channel more": (lambda given: {"style": torch.ones(2, 1, 1)}, "WrongDims"),
        "a style without window": (lambda given: {"style": torch.ones(1)}, "WrongDims"),
    },
    ("ladd", "adapt"): {
        "no rows": (lambda given: {"samples": 0}, "OutOfRange"),
        "the classifier too": (CLASSIFIER, "WrongDims"),
        "a layer less": (LESS, "WrongDims"),
    },
}
# Settings that bring a phase, or two models to weigh.
SETTINGS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("fedwca", "full"): {"rounds": 3, "clustering": "agglomerative", "clusters": 2},
    ("hfedf", "score"): {"confidence": True, "rounds": 0},
    ("hfedf", "embed"): {"embeddings": "autoencoder"},
}


@pytest.mark.parametrize(("method", "phase"), LIES, ids=["-".join(place) for place in LIES])
def test_replies_that_no_fold_could_take_are_refused(method: str, phase: str) -> None:
    """One of them is reported too: its order has failed, and the others of its round are folded."""
    case, lies = Case(method, METHODS), LIES[method, phase]
    stage, run, order = open_round(case.stage(), case.experiment(config=SETTINGS.get((method, phase), {})), phase)
    who = stage.journal.order(order.id).client  # type: ignore[union-attr]
    found = refusal_kinds(stage, run, order, who, (change for change, _ in lies.values()))
    assert dict(zip(lies, found, strict=True)) == {what: kind for what, (_, kind) in lies.items()}
    if sum(each.phase == phase for each in stage.waiting()) > 1:
        refused_alone(stage, run, order, who, *next(reversed(lies.values())))
