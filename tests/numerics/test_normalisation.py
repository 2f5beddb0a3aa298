"""Batch-norm distance: by its definition, 0 where all measured the same, and of networks without batch norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tideline.numerics.alignment.divergences import batch_norm_distance


def measured(seed: int) -> dict[str, Tensor]:
    """Weights with two layers of batch norm, and something else."""
    rng = torch.Generator().manual_seed(seed)
    made = {"0.weight": torch.randn(3, 2, generator=rng)}
    for layer, d in (("1", 3), ("4.norm", 5)):
        made[f"{layer}.running_mean"] = torch.randn(d, generator=rng)
        made[f"{layer}.running_var"] = torch.rand(d, generator=rng)
        made[f"{layer}.num_batches_tracked"] = torch.tensor(3)
    return made


def test_it_is_its_definition() -> None:
    """Over both layers, of means and of second moments, with weights that are divided by their sum."""
    T, a, b = measured(0), measured(1), measured(2)
    expected = 0.0
    for layer in ("1", "4.norm"):
        mu = [w[f"{layer}.running_mean"].double() for w in (T, a, b)]
        s = [w[f"{layer}.running_var"].double() + m**2 for w, m in zip((T, a, b), mu, strict=True)]
        for own, one, other in (mu, s):
            expected += float(((own - 0.25 * one - 0.75 * other) ** 2).sum())
    assert batch_norm_distance(T, [(0.2, a), (0.6, b)]) == pytest.approx(expected)


def test_those_who_measured_the_same_are_at_no_distance() -> None:
    """However much they weigh."""
    w = measured(0)
    assert batch_norm_distance(w, [(0.1, w), (0.3, w)]) == pytest.approx(0, abs=1e-20)


def test_without_batch_norm_there_is_none() -> None:
    """None, which is not a distance of 0."""
    w = nn.Linear(2, 3).state_dict()
    assert batch_norm_distance(w, [(1.0, w)]) is None


def test_weights_of_nothing() -> None:
    """A mean with weights that are all 0 is none."""
    with pytest.raises(ValueError, match="above 0"):
        batch_norm_distance(measured(0), [(0.0, measured(1))])
