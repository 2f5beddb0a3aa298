"""Labels for rows of which a model is sure, calibration errors, and evidence without labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.labels.confidence import (
    BINS,
    calibration_error,
    confident,
    consistency,
    disagreement,
    evidence,
    neighbours,
    nothing,
    surest,
    tally,
)


def test_it_is_the_definition() -> None:
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
    assert confident(torch.tensor([[0.1, 0.45, 0.45], [0.2, 0.7, 0.1]])).tolist() == [-1, 1]


@pytest.mark.parametrize("p", [torch.zeros(0, 3), torch.zeros(3), torch.tensor([[torch.nan, 1.0]])])
def test_what_is_no_outputs_is_refused(p: torch.Tensor) -> None:
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


LINE = torch.tensor([[0.0], [1.0], [2.1], [10.0], [11.0]])


def test_neighbours_are_the_nearest_others() -> None:
    assert neighbours(LINE, 2).sort(1).values.tolist() == [[1, 2], [0, 2], [0, 1], [2, 4], [2, 3]]
    z = torch.randn(2500, 3, generator=torch.Generator().manual_seed(0))
    near = neighbours(z, 4)
    distance = torch.cdist(z, z).fill_diagonal_(torch.inf)
    assert torch.allclose(distance.gather(1, near).sort(1).values, distance.topk(4, largest=False).values, atol=1e-5)


def test_fewer_rows_than_neighbours() -> None:
    """All the others are neighbours; a single row has none, and nothing to agree with."""
    assert neighbours(LINE[:3], 5).shape == (3, 2)
    assert consistency(torch.zeros(1), neighbours(LINE[:1], 5)) == 0.0


def test_consistency_and_disagreement() -> None:
    near = neighbours(LINE, 1)
    assert consistency(torch.tensor([0, 0, 0, 1, 1]), near) == 1.0
    assert consistency(torch.tensor([0, 0, 1, 1, 1]), near) == 0.8
    assert disagreement(torch.tensor([0, 1, 2]), torch.tensor([0, 2, 2])) == 1 / 3


def test_evidence_of_a_change() -> None:
    """Better agreement per changed label; nothing changed is no evidence; the other way round is its negative."""
    near, plain, better = neighbours(LINE, 1), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 0, 0, 1, 1])
    assert abs(evidence(better, plain, near) - (1.0 - 0.8) / 0.2) < 1e-12
    assert evidence(plain, better, near) == -evidence(better, plain, near)
    assert evidence(plain, plain, near) == 0.0


def logits_of(confidence: float) -> torch.Tensor:
    """One row of two classes whose first has this probability."""
    return torch.tensor([[confidence, 1 - confidence]], dtype=torch.float64).log()


@pytest.mark.parametrize(("confidence", "place"), [(0.5, 9), (0.51, 10), (0.55, 10), (0.5501, 11), (0.999, 19), (1.0, 19)])
def test_a_row_falls_into_the_bin_of_its_confidence(confidence: float, place: int) -> None:
    found = tally(logits_of(confidence), torch.tensor([0]))
    assert found.right.nonzero().flatten().tolist() == [place] and not found.wrong.any()
    assert float(found.confidence.sum()) == pytest.approx(confidence)


def test_the_calibration_error_by_hand() -> None:
    """Three rows of confidence 0.9, two of them right, and one of 0.6 that is wrong: (3 |2/3 - 0.9| + 1 |0 - 0.6|) / 4."""
    rows = torch.cat([logits_of(0.9)] * 3 + [logits_of(0.6)])
    found = tally(rows, torch.tensor([0, 0, 1, 1]))
    assert (int(found.right.sum()), int(found.wrong.sum())) == (2, 2)
    assert calibration_error(found) == pytest.approx((3 * abs(2 / 3 - 0.9) + 0.6) / 4)


@for_all(50, st.integers(1, 200), st.integers(2, 12), st.integers(0, 200), st.integers(0, 2**30))
def test_a_tally_of_all_is_the_sum_of_tallies(n: int, classes: int, cut: int, seed: int) -> None:
    """Rows may be counted in any pieces; every row is counted once; the error lies in [0, 1]."""
    rng = torch.Generator().manual_seed(seed)
    logits, y = 4 * torch.randn(n, classes, generator=rng), torch.randint(classes, (n,), generator=rng)
    whole = tally(logits, y)
    pieces = nothing() + tally(logits[:cut], y[:cut]) + tally(logits[cut:], y[cut:])
    assert whole.right.equal(pieces.right) and whole.wrong.equal(pieces.wrong)
    assert torch.allclose(whole.confidence, pieces.confidence)
    assert int((whole.right + whole.wrong).sum()) == n and len(whole.right) == BINS
    assert int(whole.right.sum()) == int((logits.argmax(1) == y).sum())
    assert 0 <= calibration_error(whole) <= 1


def test_outputs_that_are_no_numbers_have_no_confidence() -> None:
    """A network that somebody has spoilt gives a calibration error all the same: its rows are in the first bin."""
    found = tally(torch.tensor([[torch.inf, 1.0], [torch.nan, torch.nan], [0.0, 0.0]]), torch.tensor([1, 1, 0]))
    assert int((found.right + found.wrong)[0]) == 2 and int((found.right + found.wrong).sum()) == 3
    assert float(found.confidence.sum()) == pytest.approx(0.5)
    assert 0 <= calibration_error(found) <= 1


def test_of_no_row_there_is_none() -> None:
    with pytest.raises(ValueError, match="no row"):
        calibration_error(nothing())
