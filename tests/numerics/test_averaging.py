"""Means of named tensors, and how far models lie apart."""

from __future__ import annotations

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
from tideline.numerics.aggregation.averaging import spread, weighted_sum

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
