"""Means of named tensors, how far models lie apart, and the masked mean against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.learning.rows_in_memory import data_of
from tests.numerics.examples import for_all
from tideline import nets
from tideline.core.asked.world import World
from tideline.learning.fit import cross_entropy, fit
from tideline.numerics.aggregation.averaging import LARGEST, mask, masked_mean, spread, weighted_sum

numbers = st.floats(-1e6, 1e6)
matrix = st.lists(numbers, min_size=4, max_size=4)


@for_all(50, st.lists(st.tuples(st.floats(0, 1), matrix), min_size=1, max_size=6))
def test_it_is_numpys_weighted_sum(terms: list[tuple[float, list[float]]]) -> None:
    got = weighted_sum((a, {"w": torch.tensor(w, dtype=torch.float64).view(2, 2)}) for a, w in terms)
    expected = sum(a * np.array(w).reshape(2, 2) for a, w in terms)
    scale = max(1.0, max(abs(x) for _, w in terms for x in w))
    np.testing.assert_allclose(got["w"].numpy(), expected, rtol=0, atol=1e-12 * scale)


@for_all(50, matrix)
def test_one_client_is_its_own_mean(values: list[float]) -> None:
    w = torch.tensor(values, dtype=torch.float32)
    assert torch.equal(weighted_sum([(1.0, {"w": w})])["w"], w)


def test_counters_take_the_maximum() -> None:
    """Whole numbers, such as the batches that a layer has seen, are not averaged."""
    terms = [(0.5, {"n": torch.tensor(n), "w": torch.tensor(float(n))}) for n in (3, 9, 4)]
    total = weighted_sum(terms)
    assert (total["n"].dtype, int(total["n"])) == (torch.int64, 9)
    assert float(total["w"]) == 8.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_and_arguments_are_kept(dtype: torch.dtype) -> None:
    """The result has the operands' dtype, and the operands are left as they were."""
    terms = [(0.25, {"w": torch.ones(2, dtype=dtype)}), (0.75, {"w": torch.full((2,), 2.0, dtype=dtype)})]
    total = weighted_sum(terms)
    assert total["w"].dtype is dtype
    assert total["w"].tolist() == [1.75, 1.75]
    assert terms[0][1]["w"].tolist() == [1.0, 1.0]
    assert terms[1][1]["w"].tolist() == [2.0, 2.0]


def test_it_holds_one_operand_at_a_time() -> None:
    """Operands are taken one by one: each is folded before the next is made."""
    made: list[int] = []

    def terms() -> object:
        for i in range(3):
            made.append(i)
            yield 1.0, {"w": torch.ones(1) * i}

    assert float(weighted_sum(terms())["w"]) == 3.0  # type: ignore[arg-type]
    assert made == [0, 1, 2]


def step_from(start: dict[str, Tensor], x: Tensor, y: Tensor, world: World) -> dict[str, Tensor]:
    """One full-batch epoch of plain SGD in float64."""
    net = nets.build(world).double()
    net.load_state_dict(start)
    data = data_of(x, y)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(net, data, cross_entropy, optimiser, epochs=1, batch=len(x), rng=torch.Generator().manual_seed(0))
    return nets.weights_of(net)


@for_all(20, st.lists(st.integers(2, 9), min_size=1, max_size=4), st.integers(0, 1000))
def test_one_full_batch_epoch_everywhere_is_one_central_step(sizes: list[int], seed: int) -> None:
    """FedAvg's mean of single full-batch SGD steps is the step on the pooled rows (McMahan et al., section 2)."""
    world = World(inputs=(5,), classes=3, model="mlp")
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), 5, generator=rng, dtype=torch.float64)
    y = torch.randint(3, (sum(sizes),), generator=rng)
    start = nets.weights_of(nets.build(world).double())
    ends = [step_from(start, xs, ys, world) for xs, ys in zip(x.split(sizes), y.split(sizes), strict=True)]
    mean = weighted_sum((n / sum(sizes), end) for n, end in zip(sizes, ends, strict=True))
    for name, central in step_from(start, x, y, world).items():
        torch.testing.assert_close(mean[name], central, rtol=0, atol=1e-10)


@for_all(40, st.integers(1, 6), st.integers(0, 2**20))
def test_it_is_the_mean_deviation(n: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    models = [{"a": 1e3 + torch.randn(3, 2, generator=rng), "b": torch.randn(4, generator=rng)} for _ in range(n)]
    found = spread(iter(models))
    for name in ("a", "b"):
        whole = torch.stack([model[name] for model in models]).double()
        assert found[name] == pytest.approx(float(whole.std(0, correction=0).mean()), abs=1e-9)


def test_one_model_has_none() -> None:
    assert spread([{"a": torch.ones(2)}]) == {"a": 0.0} and spread([]) == {}


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
