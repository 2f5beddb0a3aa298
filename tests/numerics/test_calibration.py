"""Confidences and the calibration error against their definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.numerics.labels.confidence import BINS, calibration_error, nothing, tally


def logits_of(confidence: float) -> torch.Tensor:
    """One row of two classes whose first has this probability."""
    return torch.tensor([[confidence, 1 - confidence]], dtype=torch.float64).log()


@pytest.mark.parametrize(("confidence", "place"), [(0.5, 9), (0.51, 10), (0.55, 10), (0.5501, 11), (0.999, 19), (1.0, 19)])
def test_a_row_falls_into_the_bin_of_its_confidence(confidence: float, place: int) -> None:
    """Bins are open below and closed above."""
    found = tally(logits_of(confidence), torch.tensor([0]))
    assert found.right.nonzero().flatten().tolist() == [place] and not found.wrong.any()
    assert float(found.confidence.sum()) == pytest.approx(confidence)


def test_the_calibration_error_by_hand() -> None:
    """Three rows of confidence 0.9, two of them right, and one of 0.6 that is wrong: (3 |2/3 - 0.9| + 1 |0 - 0.6|) / 4."""
    rows = torch.cat([logits_of(0.9)] * 3 + [logits_of(0.6)])
    found = tally(rows, torch.tensor([0, 0, 1, 1]))
    assert (int(found.right.sum()), int(found.wrong.sum())) == (2, 2)
    assert calibration_error(found) == pytest.approx((3 * abs(2 / 3 - 0.9) + 0.6) / 4)


@settings(max_examples=examples(50))
@given(st.integers(1, 200), st.integers(2, 12), st.integers(0, 200), st.integers(0, 2**30))
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
    """The error of nothing is refused."""
    with pytest.raises(ValueError, match="no row"):
        calibration_error(nothing())
