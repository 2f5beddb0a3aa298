"""Prototypes of several clients and their contrastive loss: by definition, and at the edges."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.labels.prototypes import Sets, class_means, classified, contrast, log_likelihoods, mean_prototypes

seeds = st.integers(0, 10_000)
TAU = 0.7


def some(S: int, M: int, w: int, seed: int) -> Sets:
    """S sets in which about two in three classes exist."""
    present = torch.rand(S, M, generator=torch.Generator().manual_seed(seed)) < 0.67
    return Sets(normal(S, M, w, seed=seed) * present[:, :, None], present)


def by_hand(z: Tensor, y: int, sets: Sets) -> float:
    """The mean of log softmax over the sets that have y, a class at a time; 0 where none has."""
    found = []
    for C, there in zip(sets.prototypes, sets.present, strict=True):
        if bool(there[y]):
            total = sum(math.exp(float(z @ C[c]) / TAU) for c in range(len(C)) if bool(there[c]))
            found.append(float(z @ C[y]) / TAU - math.log(total))
    return sum(found) / len(found) if found else 0.0


@for_all(50, st.integers(0, 4), st.integers(2, 5), seeds)
def test_the_loss_is_its_definition(S: int, M: int, seed: int) -> None:
    """Over the samples whose class has a mean prototype, each term over the classes that its set has."""
    sets, z, y = some(S, M, 3, seed), normal(8, 3, seed=seed + 1), torch.arange(8) % M
    mean = mean_prototypes(sets)
    rows = [i for i in range(8) if bool(mean.present[0, y[i]])]
    terms = [-by_hand(z[i], int(y[i]), mean) - by_hand(z[i], int(y[i]), sets) for i in rows]
    assert float(contrast(z, y, mean, sets, TAU)) == pytest.approx(sum(terms) / len(rows) if rows else 0.0, abs=1e-10)


def test_its_gradient_is_that_of_differences() -> None:
    sets = some(3, 4, 3, 5)
    assert not bool(sets.present.all())
    z, y = normal(6, 3, seed=1).requires_grad_(), torch.arange(6) % 4
    torch.autograd.gradcheck(lambda z: contrast(z, y, mean_prototypes(sets), sets, TAU), (z,))


def test_without_any_prototype_there_is_nothing_to_learn() -> None:
    none = Sets(torch.zeros(0, 3, 2).double(), torch.zeros(0, 3, dtype=torch.bool))
    z = normal(4, 2, seed=0).requires_grad_()
    value = contrast(z, torch.arange(4) % 3, mean_prototypes(none), none, TAU)
    value.backward()
    assert float(value.detach()) == 0.0 and z.grad is not None and not bool(z.grad.any())


def test_equal_prototypes_give_the_logarithm_of_their_number() -> None:
    sets = Sets(torch.ones(2, 4, 3).double(), torch.tensor([[True] * 4] * 2))
    z, y = normal(5, 3, seed=0), torch.tensor([0, 1, 2, 3, 0])
    assert float(contrast(z, y, mean_prototypes(sets), sets, 70.0)) == pytest.approx(2 * math.log(4))


@for_all(50, st.integers(1, 4), seeds)
def test_prototypes_that_are_not_there_do_not_matter(S: int, seed: int) -> None:
    sets = some(S, 4, 3, seed)
    other = Sets(sets.prototypes + 1e6 * (~sets.present)[:, :, None], sets.present)
    z, y = normal(6, 3, seed=seed + 1), torch.arange(6) % 4
    assert torch.equal(log_likelihoods(z, y, sets, TAU), log_likelihoods(z, y, other, TAU))
    torch.testing.assert_close(mean_prototypes(sets).prototypes, mean_prototypes(other).prototypes)


def test_mean_prototypes_are_over_those_who_have_the_class() -> None:
    """Each counts alike; a class that none has is zeros and not there."""
    sets = Sets(
        torch.tensor([[[2.0], [1.0], [9.0]], [[4.0], [9.0], [9.0]]]), torch.tensor([[True, True, False], [True, False, False]])
    )
    mean = mean_prototypes(sets)
    assert mean.prototypes.tolist() == [[[3.0], [1.0], [0.0]]]
    assert mean.present.tolist() == [[True, True, False]]


def test_a_class_with_too_few_samples_is_not_told() -> None:
    z = torch.tensor([[1.0, 0.0], [3.0, 2.0], [7.0, 7.0], [5.0, 4.0]])
    means, counts = class_means(z, torch.tensor([0, 0, 2, 0]), 4, 2)
    assert means.tolist() == [[3.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert counts.tolist() == [3, 0, 0, 0]
    with pytest.raises(ValueError, match="one for each"):
        class_means(z, torch.tensor([0]), 4, 2)


def test_what_nobody_has_is_not_predicted() -> None:
    mean = torch.tensor([[-1.0], [0.0], [-2.0]])
    found = classified(torch.tensor([[1.0], [-1.0]]), mean, torch.tensor([True, False, True]))
    assert found.argmax(1).tolist() == [0, 2]


@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan])
def test_a_temperature_is_positive(tau: float) -> None:
    sets = some(1, 3, 2, 0)
    with pytest.raises(ValueError, match="temperature"):
        contrast(normal(2, 2, seed=0), torch.tensor([0, 1]), sets, sets, tau)
