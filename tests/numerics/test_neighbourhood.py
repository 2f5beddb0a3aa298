"""Soft neighbourhood density, and outputs that have collapsed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.labels.confidence import collapsed, soft_density


def outputs(n: int, c: int, seed: int, sure: float = 3.0) -> Tensor:
    return (sure * normal(n, c, seed=seed)).softmax(1)


def direct(p: Tensor, temperature: float) -> float:
    """Equations 5 and 6 with the whole matrix."""
    Q = cosine_similarity(p.numpy())
    off = Q[~np.eye(len(Q), dtype=bool)].reshape(len(Q), -1)
    return float(entropy(softmax(off / temperature, axis=1), axis=1).mean())


@pytest.mark.parametrize("temperature", [0.05, 1e-3, 1e-5, 10.0])
@pytest.mark.parametrize("sure", [0.5, 8.0])
def test_it_is_the_direct_formula(temperature: float, sure: float) -> None:
    """On 200 samples, by SciPy, where exp(Q / T) itself is no number too."""
    p = outputs(200, 10, 0, sure)
    assert soft_density(p, temperature) == pytest.approx(direct(p, temperature), rel=1e-9, abs=1e-12)


@for_all(40, st.integers(2, 30), st.integers(1, 40), st.sampled_from([0.05, 1e-4]), st.integers(0, 1000))
def test_the_block_does_not_matter(n: int, block: int, temperature: float, seed: int) -> None:
    p = outputs(n, 4, seed)
    whole = soft_density(p, temperature, n)
    assert soft_density(p, temperature, block) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    assert 0 <= whole <= math.log(n - 1) + 1e-12


@for_all(20, st.integers(2, 60), st.integers(1, 64))
def test_equal_rows_reach_the_most(n: int, block: int) -> None:
    p = torch.tensor([[0.7, 0.2, 0.1]]).expand(n, 3)
    assert soft_density(p, block=block) == pytest.approx(math.log(n - 1), abs=1e-12)


def test_tight_clusters_are_dense() -> None:
    """Two classes of ten sure rows: each has nine neighbours of its own, the others are nothing to it."""
    p = torch.eye(2).repeat_interleave(10, 0)
    assert soft_density(p) == pytest.approx(math.log(9), abs=1e-6)
    assert soft_density(p) > soft_density(outputs(20, 2, 1))


def test_the_order_of_rows_and_their_dtype_do_not_matter() -> None:
    """Float32 outputs give what the same numbers give in float64; the argument is left as it was."""
    p = outputs(50, 5, 2).float()
    before = p.clone()
    assert soft_density(p) == pytest.approx(soft_density(p.double().flip(0)), rel=1e-12)
    assert torch.equal(p, before)


def test_few_rows() -> None:
    """Nothing to compare: 0. Two rows are each other's only neighbour: 0."""
    for n in (0, 1, 2):
        assert soft_density(outputs(n, 3, 0)) == 0.0


class Largest(TorchDispatchMode):
    """Watches every operation: the most numbers that one result has."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at the result on its way out."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


@pytest.mark.parametrize("n", [1000, 4000])
def test_memory_does_not_grow_with_the_square(n: int) -> None:
    """No result is larger than the outputs themselves or a tile of block^2."""
    p = outputs(n, 3, 0)
    with Largest() as seen:
        soft_density(p, block=256)
    assert seen.numbers == max(256 * 256, 3 * n)


def test_collapsed() -> None:
    """More than that share in one class, not just as much; never without rows."""
    p = torch.eye(3)[torch.tensor([1] * 19 + [0])]
    assert not collapsed(p)
    assert collapsed(p, 0.9)
    assert collapsed(torch.cat([p, p[:1]]))
    assert not collapsed(p[:0])
    assert not collapsed(torch.eye(3))


@for_all(50, st.integers(1, 19), st.integers(1, 200))
def test_the_share_is_exact(k: int, times: int) -> None:
    """k of 20, any number of times over, are no more than the share k / 20; one more row is."""
    p = torch.eye(2)[torch.tensor(([0] * k + [1] * (20 - k)) * times)]
    share = max(k, 20 - k) / 20
    assert not collapsed(p, share)
    assert collapsed(torch.cat([p, torch.eye(2)[[0 if 2 * k >= 20 else 1]]]), share)


def test_bad_outputs_are_refused() -> None:
    """Numbers that are not finite, no matrix, a temperature or a block of zero."""
    with pytest.raises(ValueError, match="not finite"):
        soft_density(torch.full((3, 2), float("nan")))
    with pytest.raises(ValueError, match="a row for each sample"):
        soft_density(torch.ones(3))
    for temperature, block in ((0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)):
        with pytest.raises(ValueError, match="both are positive"):
            soft_density(torch.ones(2, 2), temperature, block)
