"""What the method is for: a domain that is turned, and has no labels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.laws.stage import Stage
from tests.synthetic import Rows, experiment, turned
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import SimSite

SEEDS = range(6)  # of three the mean is 0.018 on some processors, of six 0.022
MUCH: dict[str, Any] = {"rounds": 6, "lambda_adv": 2.0}


def blobs(angle: float, n: int, seed: int) -> Data:
    """Two classes of two numbers each, that lie apart, turned."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randn(n, 2, generator=rng) * torch.tensor([0.5, 1.5]) + torch.stack([3.0 * y - 1.5, 1.5 * y], 1)
    return Data(MemoryRows(turned(x, angle)), y, torch.zeros(n, dtype=torch.int64), ("blobs",))


def site(angle: float, seed: int) -> SimSite:
    """A site of turned blobs."""

    def opened(world: World, role: Role) -> Rows:
        return Rows(blobs(angle, 150, seed), blobs(angle, 200, seed + 100))

    return SimSite(opened)


def accuracies(seed: int, method: str = "fada", **config: Any) -> tuple[float, float]:
    """Before the alignment and after it."""
    stage = Stage(METHODS, {"anna": site(0.0, seed), "bert": site(-0.2, seed + 50), "carl": site(0.8, seed + 70)})
    given: dict[str, Any] = {"anna": "source", "bert": "source", "carl": "target"}
    world = {"inputs": [2], "classes": 2, "model": "mlp"}
    run = stage.start(experiment(method, given, preset="demo", config=config, world=world, seed=seed))
    row = stage.play(run)
    assert row.status is Status.COMPLETED, row.cause
    reported = next(c for c in stage.result(run)["clients"] if c["name"] == "carl")
    return reported["metrics"]["source_only"], reported["accuracy"]


def gained(pairs: list[tuple[float, float]]) -> Tensor:
    """Accuracy that came with it."""
    return torch.tensor([after - before for before, after in pairs])


@pytest.mark.nightly(job="numbers")
def test_disentangling_beats_the_sources_model_on_most_seeds() -> None:
    """Blobs that are turned by some 45 degrees; attention alone does not turn them back."""
    gains = gained([accuracies(seed, **MUCH) for seed in SEEDS])
    assert int((gains > 0).sum()) > len(SEEDS) / 2 and float(gains.mean()) > 0.02
    alone = gained([accuracies(seed, **MUCH, parts="I") for seed in SEEDS])
    assert float(gains.mean()) > float(alone.mean())


@pytest.mark.nightly(job="numbers")
def test_alignment_alone_gains_too() -> None:
    """f-DANN, at the same weight."""
    before, after = accuracies(0, "fdann", **MUCH)
    assert after > before
