"""Scores against scikit-learn, intervals against their definitions, and outputs at the edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, recall_score, roc_auc_score

from tideline.numerics.labels import scores
from tideline.numerics.labels.confidence import binned


@pytest.mark.parametrize(("n", "classes"), [(2, 2), (40, 3), (300, 10), (900, 120)])
def test_scores_are_those_of_another_library(n: int, classes: int) -> None:
    rng = torch.Generator().manual_seed(n)
    out = torch.randn(n, classes, generator=rng)
    y = (out + torch.randn(n, classes, generator=rng)).argmax(1)
    guess, p = out.argmax(1), scores.probabilities(out)
    matrix = scores.confusion(guess, y, classes)
    for found in (scores.counted(matrix, n, 1), scores.counted_by_class(scores.by_class(matrix), n, 1)):
        seen = np.unique(y)
        assert found["balanced_accuracy"].value == pytest.approx(recall_score(y, guess, labels=seen, average="macro"))
        assert found["macro_f1"].value == pytest.approx(f1_score(y, guess, average="macro", zero_division=0))
        assert all(0 <= each.low <= each.value <= each.high <= 1 for each in found.values())
    each = [roc_auc_score(y == k, p[:, k]) for k in range(classes) if 0 < int((y == k).sum()) < n]
    area = scores.auroc(p, y)
    assert (area is None) if not each else area == pytest.approx(np.mean(each))


def test_logits_their_logarithms_and_probabilities_are_the_same() -> None:
    out = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).double()
    for same in (out.log_softmax(1), out.softmax(1)):
        assert torch.allclose(scores.probabilities(same), out.softmax(1))


def test_wilson() -> None:
    """As statsmodels has it: proportion_confint(8, 10, method="wilson")."""
    assert scores.wilson(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert scores.wilson(0, 0) == (0.0, 1.0) and scores.wilson(0, 4)[0] == 0.0 and scores.wilson(4, 4)[1] == 1.0


def test_a_difference_of_shares() -> None:
    """Newcombe's example, 56 of 70 less 48 of 80, to the digits that he prints."""
    assert scores.difference(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert scores.difference(3, 10, 3, 10)[0] == pytest.approx(-scores.difference(3, 10, 3, 10)[1])
    assert scores.difference(0, 0, 0, 0) == (-1.0, 1.0)


def test_edges() -> None:
    one = torch.zeros(1, dtype=torch.int64)
    assert (
        scores.auroc_score(scores.probabilities(torch.ones(1, 3)), one, 0) is None
    )  # of one row, and of one class, there is no curve
    p = scores.probabilities(torch.full((4, 3), torch.nan))
    assert bool((p == 0).all()) and scores.auroc(p, torch.tensor([0, 1, 1, 0])) == 0.5
    right = torch.tensor([True, False, True, True])
    found = scores.calibration_score(binned(torch.full((4,), 0.75, dtype=torch.float64), right), 0)
    assert found.value == 0.0 == found.low and found.rows == 4
