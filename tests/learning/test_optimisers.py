"""The optimiser that settings name."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tideline.learning.fit import optimiser


@dataclass(frozen=True)
class Settings:
    """What an optimiser asks of settings."""

    optimiser: str
    rate: float = 0.1
    momentum: float = 0.5
    weight_decay: float = 0.01


def stepped(name: str, gradients: list[float]) -> float:
    """A weight of 1 after steps along these gradients."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
    by = optimiser(Settings(name), [weight])
    for g in gradients:
        weight.grad = torch.tensor([g], dtype=torch.float64)
        by.step()
    return float(weight.detach())


def test_sgd_has_momentum_and_weight_decay() -> None:
    """Two steps by hand: b_1 = 2 + 0.01 w, b_2 = 0.5 b_1 + 4 + 0.01 w."""
    first = 2 + 0.01
    w = 1 - 0.1 * first
    assert stepped("sgd", [2.0]) == w
    assert abs(stepped("sgd", [2.0, 4.0]) - (w - 0.1 * (0.5 * first + 4 + 0.01 * w))) < 1e-12


def test_adam_takes_a_step_of_the_rate_first() -> None:
    """Whatever the gradient's size; momentum has no say."""
    for g in (1e-3, 1.0, 1e3):
        assert abs(stepped("adam", [g]) - 0.9) < 1e-5
