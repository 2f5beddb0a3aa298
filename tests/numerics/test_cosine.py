"""Cosine similarity of rows, points in a plane, and scores with their intervals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from sklearn.metrics import f1_score, recall_score, roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.clustering import cosine
from tideline.numerics.clustering.cosine import cosines, plane, unit
from tideline.numerics.labels import scores
from tideline.numerics.labels.confidence import binned


@for_all(30, st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.integers(0, 1000))
def test_it_is_scikit_learns(n: int, m: int, d: int, seed: int) -> None:
    a, b = normal(n, d, seed=seed), normal(m, d, seed=seed + 1)
    a[0] = 0
    np.testing.assert_allclose(cosines(a, b).numpy(), cosine_similarity(a.numpy(), b.numpy()), atol=1e-14)
    assert cosines(a, b)[0].eq(0).all()


def test_slices_of_columns_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = normal(3, 7, seed=0), normal(4, 7, seed=1)
    whole = cosines(a, b)
    monkeypatch.setattr(cosine, "NUMBERS", 14)
    torch.testing.assert_close(cosines(a, b), whole, rtol=0, atol=1e-14)


def test_unit_rows() -> None:
    """Length one, float64; zeros stay zeros; the argument is left as it was."""
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert unit(x).dtype is torch.float64
    torch.testing.assert_close(unit(x), torch.tensor([[0.6, 0.8], [0.0, 0.0]], dtype=torch.float64))
    assert x.tolist() == [[3.0, 4.0], [0.0, 0.0]]


def test_rows_of_float32_are_compared_in_float64() -> None:
    """The same as for their numbers in float64, and an angle of 1e-4 is not lost."""
    a, b = normal(4, 9, seed=0).float(), normal(5, 9, seed=1).float()
    torch.testing.assert_close(cosines(a, b), cosines(a.double(), b.double()), rtol=0, atol=1e-15)
    assert 1 - float(cosines(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1e-4]]))) == pytest.approx(5e-9, rel=1e-3)


def test_bad_rows_are_refused() -> None:
    """Numbers that are not finite, columns that do not fit, a vector."""
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not finite"):
            cosines(torch.ones(1, 2), torch.tensor([[1.0, bad]]))
    for shape in ((1, 3), (2,)):
        with pytest.raises(ValueError, match="equally many columns"):
            cosines(torch.ones(1, 2), torch.ones(shape))


@pytest.mark.parametrize(("n", "d"), [(40, 5), (6, 30), (3, 2)])
def test_the_plane_is_that_of_most_variance(n: int, d: int) -> None:
    """By covariance or by Gram matrix: the singular values of what is left are those of the rows, the larger first."""
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(n)) * torch.linspace(3, 0.1, d)
    flat = plane(z)
    assert flat.shape == (n, 2) and flat.dtype == torch.float32
    found = torch.linalg.svdvals(z - z.mean(0))[:2]
    torch.testing.assert_close(flat.norm(dim=0), found, rtol=1e-4, atol=1e-4)


def test_equal_points_lie_on_one_another() -> None:
    assert torch.equal(plane(torch.ones(4, 3)), torch.zeros(4, 2))


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
