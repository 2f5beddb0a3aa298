"""The coordinator's optimiser against torch's own, and the moving average against its recurrence."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tideline.numerics.aggregation.server_step import LARGEST, Optimised, begin, step_

SIZES = {"a": (7, 3), "b": (5,)}


def gradients(seed: int) -> dict[str, Tensor]:
    """A gradient of everything."""
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(size, generator=rng, dtype=torch.float64) for name, size in SIZES.items()}


def sliced(whole: dict[str, Tensor], size: int) -> Iterator[tuple[str, slice, Tensor]]:
    """In slices of rows."""
    for name, g in whole.items():
        for at in range(0, len(g), size):
            yield name, slice(at, at + size), g[at : at + size]


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("size", [2, 100])
def test_steps_are_torchs(optimiser: str, size: int) -> None:
    """Five steps, in slices, give torch's values to the last digits."""
    theta = gradients(0)
    parameters = {name: nn.Parameter(each.clone()) for name, each in theta.items()}
    given = parameters.values()
    by = (
        torch.optim.Adam(given, lr=0.1, weight_decay=0.01)
        if optimiser == "adam"
        else torch.optim.SGD(given, lr=0.1, weight_decay=0.01, momentum=0.8)
    )
    at = begin(theta, optimiser)
    for i in range(1, 6):
        for name, g in gradients(i).items():
            parameters[name].grad = g.clone()
        by.step()
        at = step_(at, sliced(gradients(i), size), optimiser=optimiser, rate=0.1, weight_decay=0.01, momentum=0.8)
    assert at.steps == 5
    assert all(torch.allclose(at.theta[name], parameters[name].detach(), rtol=1e-12, atol=1e-14) for name in SIZES)


def test_the_moving_average_by_hand() -> None:
    """theta <- a theta + (1 - a) theta_before after every step, the moments untouched; a = 1 changes nothing."""
    at, plain = begin(gradients(0), "adam"), begin(gradients(0), "adam")
    by_hand = gradients(0)
    for i in range(1, 4):
        free = step_(copy.deepcopy(at), sliced(gradients(i), 3), optimiser="adam", rate=0.1, weight_decay=0.0)
        by_hand = {name: 0.75 * free.theta[name] + 0.25 * by_hand[name] for name in SIZES}
        at = step_(at, sliced(gradients(i), 3), optimiser="adam", rate=0.1, weight_decay=0.0, ema=0.75)
        assert all(at.m[name].equal(free.m[name]) and at.v[name].equal(free.v[name]) for name in SIZES)
        plain = step_(plain, sliced(gradients(i), 3), optimiser="adam", rate=0.1, weight_decay=0.0, ema=1.0)
    assert all(torch.allclose(at.theta[name], by_hand[name], rtol=1e-12) for name in SIZES)
    assert not any(at.theta[name].equal(plain.theta[name]) for name in SIZES)


def test_huge_gradients_leave_finite_numbers() -> None:
    """Even in float32, where their squares would not be."""
    theta = {"a": torch.ones(3)}
    at: Optimised = begin(theta, "adam")
    at = step_(at, [("a", slice(None), torch.tensor([1e38, -1e38, 1.0]))], optimiser="adam", rate=0.1, weight_decay=0.0)
    assert torch.isfinite(at.theta["a"]).all() and torch.isfinite(at.v["a"]).all() and float(at.m["a"].max()) <= LARGEST


def test_rows_without_a_gradient_stay() -> None:
    """Nothing is moved by the momentum of others."""
    at = step_(begin(gradients(0), "sgd"), sliced({"b": gradients(1)["b"]}, 9), optimiser="sgd", rate=0.1, weight_decay=0.1)
    assert at.theta["a"].equal(gradients(0)["a"]) and not at.theta["b"].equal(gradients(0)["b"])
