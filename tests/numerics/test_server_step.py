"""The coordinator's optimiser against torch's own, the moving average against its recurrence, and GradAlign's weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.numerics.examples import for_all
from tideline.numerics.aggregation.server_step import LARGEST, Optimised, alignment, begin, clipping, step_

SIZES = {"a": (7, 3), "b": (5,)}


def gradients(seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(size, generator=rng, dtype=torch.float64) for name, size in SIZES.items()}


def sliced(whole: dict[str, Tensor], size: int) -> Iterator[tuple[str, slice, Tensor]]:
    for name, g in whole.items():
        for at in range(0, len(g), size):
            yield name, slice(at, at + size), g[at : at + size]


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("size", [2, 100])
def test_steps_are_torchs(optimiser: str, size: int) -> None:
    theta = gradients(0)
    parameters = {name: nn.Parameter(each.clone()) for name, each in theta.items()}
    given = parameters.values()
    kind, more = (torch.optim.Adam, {}) if optimiser == "adam" else (torch.optim.SGD, {"momentum": 0.8})
    by = kind(given, lr=0.1, weight_decay=0.01, **more)
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
    theta = {"a": torch.ones(3)}
    at: Optimised = begin(theta, "adam")
    at = step_(at, [("a", slice(None), torch.tensor([1e38, -1e38, 1.0]))], optimiser="adam", rate=0.1, weight_decay=0.0)
    assert torch.isfinite(at.theta["a"]).all() and torch.isfinite(at.v["a"]).all() and float(at.m["a"].max()) <= LARGEST


def test_rows_without_a_gradient_stay() -> None:
    at = step_(begin(gradients(0), "sgd"), sliced({"b": gradients(1)["b"]}, 9), optimiser="sgd", rate=0.1, weight_decay=0.1)
    assert at.theta["a"].equal(gradients(0)["a"]) and not at.theta["b"].equal(gradients(0)["b"])


def gram(n: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (n, d) and their inner products."""
    g = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return g, g @ g.T


@for_all(60, st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**20), st.sampled_from([1, -1]))
def test_the_gram_form_is_the_direct_one(n: int, d: int, seed: int, sign: int) -> None:
    """softmax of the cosines with the mean gradient; they sum to one; the largest is at most e^2 times the smallest."""
    g, products = gram(n, d, seed)
    direct = torch.nn.functional.cosine_similarity(g, g.mean(0, keepdim=True), dim=1, eps=1e-12)
    weights = alignment(products, sign)
    assert torch.allclose(weights, (sign * direct).softmax(0), atol=1e-6)
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights.max() / weights.min()) <= math.e**2 + 1e-9


@pytest.mark.parametrize("n", [1, 2, 5])
def test_equal_gradients_weigh_alike(n: int) -> None:
    g = torch.ones(n, 3, dtype=torch.float64)
    assert torch.allclose(alignment(g @ g.T), torch.full((n,), 1 / n, dtype=torch.float64))


def test_the_one_that_points_away_gets_the_least() -> None:
    g = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    g = g / g.norm(dim=1, keepdim=True)
    assert int(alignment(g @ g.T).argmin()) == 3 and int(alignment(g @ g.T, -1).argmax()) == 3


def test_without_direction_the_cosine_is_zero() -> None:
    g = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    assert torch.allclose(alignment(g @ g.T), torch.tensor([1.0, 0.0], dtype=torch.float64).softmax(0))
    g = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert torch.allclose(alignment(g @ g.T), torch.full((2,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("products", [torch.zeros(0, 0), torch.tensor([[torch.inf]]), torch.tensor([[torch.nan]])])
def test_what_is_refused(products: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="at least one gradient"):
        alignment(products)


def test_clipping_is_to_the_norm_of_the_sum() -> None:
    g, products = gram(3, 4, 1)
    w = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    norm = float((w @ g).norm())
    assert clipping(products, w, norm / 4) == pytest.approx(0.25)
    assert clipping(products, w, 2 * norm) == 1.0 == clipping(torch.zeros(2, 2), w[:2], 1.0)


def test_small_gradients_have_directions() -> None:
    _, products = gram(3, 4, 2)
    assert torch.allclose(alignment(1e-16 * products), alignment(products))
