"""Means of named tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.budgets import examples
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.learning.fit import cross_entropy, fit
from tideline.numerics.aggregation.averaging import weighted_sum

numbers = st.floats(-1e6, 1e6)
matrix = st.lists(numbers, min_size=4, max_size=4)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.floats(0, 1), matrix), min_size=1, max_size=6))
def test_it_is_numpys_weighted_sum(terms: list[tuple[float, list[float]]]) -> None:
    """In float64 the sum is numpy's, to the last few bits."""
    got = weighted_sum((a, {"w": torch.tensor(w, dtype=torch.float64).view(2, 2)}) for a, w in terms)
    expected = sum(a * np.array(w).reshape(2, 2) for a, w in terms)
    scale = max(1.0, max(abs(x) for _, w in terms for x in w))
    np.testing.assert_allclose(got["w"].numpy(), expected, rtol=0, atol=1e-12 * scale)


@settings(max_examples=examples(50))
@given(matrix)
def test_one_client_is_its_own_mean(values: list[float]) -> None:
    """The mean of one model is that model, bit for bit."""
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
    data = Data(MemoryRows(x), y, torch.zeros(len(x), dtype=torch.int64), ("d",))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(net, data, cross_entropy, optimiser, epochs=1, batch=len(x), rng=torch.Generator().manual_seed(0))
    return nets.weights_of(net)


@settings(max_examples=examples(20))
@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.integers(0, 1000))
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
