"""Labels for the rows of which a model is sure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.numerics.clouds import normal
from tideline.numerics.labels.confidence import confident, surest


def test_it_is_the_definition() -> None:
    """Row by row, with NumPy's median."""
    p = (2 * normal(200, 5, seed=0)).softmax(1)
    top, argmax = p.numpy().max(1), p.numpy().argmax(1)
    found = confident(p).tolist()
    for i, label in enumerate(found):
        threshold = min(0.9, float(np.median(top[argmax == argmax[i]])))
        assert label == (argmax[i] if top[i] > threshold else -1)
    assert -1 in found and len(set(found)) == 6


def test_a_sure_class_has_all_its_labels() -> None:
    """Above 0.9 the median does not count; below it, about half of a class are labelled."""
    sure = torch.tensor([[0.95, 0.05], [0.99, 0.01], [0.97, 0.03]])
    unsure = torch.tensor([[0.4, 0.6], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]])
    assert confident(torch.cat([sure, unsure])).tolist() == [0, 0, 0, -1, -1, 1, 1]


def test_a_row_alone_in_its_class_has_none() -> None:
    """It does not exceed its own median, unless it is beyond 0.9; so with rows that are all alike."""
    assert confident(torch.tensor([[0.6, 0.4]])).tolist() == [-1]
    assert confident(torch.tensor([[0.95, 0.05]])).tolist() == [0]
    assert confident(torch.tensor([[0.6, 0.4]] * 3)).tolist() == [-1] * 3


def test_ties_go_to_the_smallest_class() -> None:
    """Two classes alike."""
    assert confident(torch.tensor([[0.1, 0.45, 0.45], [0.2, 0.7, 0.1]])).tolist() == [-1, 1]


@pytest.mark.parametrize("p", [torch.zeros(0, 3), torch.zeros(3), torch.tensor([[torch.nan, 1.0]])])
def test_what_is_no_outputs_is_refused(p: torch.Tensor) -> None:
    """None, a vector, a number that is none."""
    with pytest.raises(ValueError, match="at least one row of finite numbers"):
        confident(p)


def test_the_surer_rows_of_each_label() -> None:
    """Row by row: at least as sure as the lower median of the rows with its label; a label that no row has is no matter."""
    rng = torch.Generator().manual_seed(0)
    for n in (1, 2, 7, 200):
        confidence, labels = torch.rand(n, generator=rng), 2 * torch.randint(0, 4, (n,), generator=rng)
        found = surest(confidence, labels)
        assert found.tolist() == [bool(c >= confidence[labels == k].median()) for c, k in zip(confidence, labels, strict=True)]


def test_any_quantile_of_rows() -> None:
    """0 keeps all, 1 the surest of each label; rows as sure as the least that is kept are kept, too; no row is none."""
    confidence, labels = torch.tensor([0.5, 0.6, 0.7, 0.9, 0.9]), torch.tensor([0, 0, 0, 1, 1])
    assert surest(confidence, labels, 0.0).all()
    assert surest(confidence, labels, 1.0).tolist() == [False, False, True, True, True]
    assert surest(confidence[:0], labels[:0]).tolist() == []
    assert surest(torch.full((3,), torch.nan), labels[:3]).tolist() == [False] * 3
