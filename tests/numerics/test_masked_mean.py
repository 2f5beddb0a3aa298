"""The masked mean against its definition, and what it promises where the mask is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.examples import for_all
from tideline.numerics.aggregation.averaging import LARGEST, mask, masked_mean, weighted_sum

Model = dict[str, Tensor]
TRAINED = ("a", "b")


def model(seed: int, dtype: torch.dtype = torch.float32) -> Model:
    """A matrix and a vector that are trained, a buffer, a counter. Numbers are coarse, so that some updates leave some alone."""
    rng = torch.Generator().manual_seed(seed)
    made = {k: torch.randint(-2, 3, s, generator=rng).to(dtype) / 3 for k, s in (("a", (3, 4)), ("b", (5,)), ("mean", (2,)))}
    return {**made, "count": torch.tensor(seed % 7)}


def shares(n: int, seed: int) -> list[float]:
    drawn = np.random.default_rng(seed).integers(1, 50, n)
    return [float(x / drawn.sum()) for x in drawn]


def by_definition(w: Model, p: list[float], updates: list[Model], tau: float, rate: float) -> dict[str, Any]:
    """The new model in float64 NumPy, element by element as the formula stands."""
    made: dict[str, Any] = {}
    for name in TRAINED:
        start = w[name].double().numpy()
        deltas = [u[name].double().numpy() - start for u in updates]
        a = np.abs(sum(np.sign(d) for d in deltas)) / len(deltas)
        m = np.where(a >= tau, 1.0, a)
        made[name] = start + rate * m * sum(x * d for x, d in zip(p, deltas, strict=True))
    made["mean"] = sum(x * u["mean"].double().numpy() for x, u in zip(p, updates, strict=True))
    return made


taus, rates = st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]), st.sampled_from([0.0, 0.01, 1.0, 2.0])


@for_all(60, st.integers(1, 7), st.integers(0, 10_000), taus, rates)
def test_it_is_the_formula(n: int, seed: int, tau: float, rate: float) -> None:
    """In float64, for any number of updates, threshold and step. Buffers are the plain mean, counters the maximum."""
    w, updates = model(seed, torch.float64), [model(seed + i + 1, torch.float64) for i in range(n)]
    p = shares(n, seed)
    made = masked_mean(w, zip(p, updates, strict=True), tau, rate, TRAINED)
    for name, expected in by_definition(w, p, updates, tau, rate).items():
        np.testing.assert_allclose(made[name].numpy(), expected, rtol=0, atol=1e-6)
    assert int(made["count"]) == max(int(u["count"]) for u in updates)


@for_all(60, st.integers(1, 7), st.integers(0, 10_000))
def test_without_a_threshold_it_is_the_mean_bit_for_bit(n: int, seed: int) -> None:
    """tau = 0 and eta_s = 1, in float32, where elements disagree wholly too."""
    rng = torch.Generator().manual_seed(seed)
    w = {k: torch.randn(6, generator=rng) for k in ("a", "b", "mean")}
    updates = [{k: torch.randn(6, generator=rng) for k in w} for _ in range(n)]
    p = shares(n, seed)
    made = masked_mean(w, zip(p, updates, strict=True), 0.0, 1.0, TRAINED)
    plain = weighted_sum(zip(p, updates, strict=True))
    assert made.keys() == plain.keys()
    assert all(made[k].dtype == plain[k].dtype and torch.equal(made[k], plain[k]) for k in plain)


@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_one_update_is_taken_wherever_it_differs(tau: float) -> None:
    """N = 1: the mask is 1 where Delta is not 0, whatever the threshold, so that the new model is the update."""
    w, update = model(1), model(2)
    made = masked_mean(w, [(1.0, update)], tau, 1.0, TRAINED)
    assert bool((w["a"] == update["a"]).any()) and bool((w["a"] != update["a"]).any())
    assert all(torch.equal(made[k], update[k]) for k in made)


def test_two_updates_agree_by_halves() -> None:
    """a is 1 where both go one way, 0 where they go apart or stay, 0.5 where one stays."""
    up, down, stays = 1.0, -1.0, 0.0
    ways = torch.tensor([[up, up], [down, down], [up, down], [stays, stays], [up, stays], [stays, down]])
    votes = ways.sign().sum(1)
    assert mask(votes, 2, 1.0).tolist() == [1.0, 1.0, 0.0, 0.0, 0.5, 0.5]
    assert mask(votes, 2, 0.5).tolist() == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert mask(votes, 2, 0.0).tolist() == [1.0] * 6
    w = {"a": torch.zeros(6)}
    made = masked_mean(w, [(0.5, {"a": ways[:, 0]}), (0.5, {"a": ways[:, 1]})], 1.0, 1.0, ("a",))
    assert made["a"].tolist() == [1.0, -1.0, 0.0, 0.0, 0.25, -0.25]


def test_an_agreement_that_is_the_threshold_counts() -> None:
    """k of n signs reach tau = k / n, for all of them up to 40: rounding moves no element below."""
    for n in range(1, 41):
        votes = torch.arange(-n, n + 1).float()
        for k in range(n + 1):
            expected = torch.where(votes.abs() >= k, 1.0, votes.abs() / n)
            assert torch.equal(mask(votes, n, k / n), expected), (k, n)


def test_a_step_of_nothing_stays() -> None:
    """eta_s = 0: what is trained is as it was; what is measured is the mean."""
    w, updates = model(3), [model(4), model(5)]
    made = masked_mean(w, [(0.5, u) for u in updates], 0.5, 0.0, TRAINED)
    assert all(torch.equal(made[k], w[k]) for k in TRAINED)
    torch.testing.assert_close(made["mean"], (updates[0]["mean"] + updates[1]["mean"]) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_beyond_all_measure_stay_finite(dtype: torch.dtype) -> None:
    """A sender of the largest numbers that are let in, round after round, under a step of ten: no infinity comes of it."""
    w, wild = {"a": torch.zeros(2, dtype=dtype)}, {"a": torch.tensor([LARGEST, -LARGEST], dtype=dtype)}
    for _ in range(60):
        w = masked_mean(w, [(0.5, {"a": torch.zeros(2, dtype=dtype)}), (0.5, wild)], 0.4, 10.0, ("a",))
        assert w["a"].dtype is dtype and float(w["a"].abs().max()) <= 1.001 * LARGEST


def test_it_reads_one_update_at_a_time_and_changes_none() -> None:
    """Each is folded before the next is made; model and updates are left as they were."""
    w, made = model(6), list[Model]()
    before = {k: v.clone() for k, v in w.items()}

    def updates() -> Any:
        for i in range(3):
            assert len(made) == i
            made.append(model(7 + i))
            yield 1 / 3, made[-1]

    masked_mean(w, updates(), 0.5, 1.0, TRAINED)
    assert all(torch.equal(w[k], before[k]) for k in w)
    assert all(torch.equal(u[k], model(7 + i)[k]) for i, u in enumerate(made) for k in u)


def test_of_no_update_there_is_no_mean() -> None:
    with pytest.raises(ValueError, match="one update or more"):
        masked_mean(model(1), [], 0.5, 1.0, TRAINED)
