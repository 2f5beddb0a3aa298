"""A correction by shares of classes as numbers that are added to logits."""

from __future__ import annotations

import torch

from tideline.numerics.labels.prior import NEVER, log_ratios, reweighted, shifted_logits

PRIOR = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
TARGET = torch.tensor([0.1, 0.1, 0.8], dtype=torch.float64)


def test_it_is_what_reweighting_is() -> None:
    """Of logits, of logarithms of probabilities, and of probabilities."""
    logits = 3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    expected = reweighted(logits.softmax(1), PRIOR, TARGET)
    by = log_ratios(PRIOR, TARGET)
    for out in (logits, logits.log_softmax(1), logits.softmax(1)):
        assert torch.allclose(shifted_logits(out, by).softmax(1).double(), expected, atol=1e-6)


def test_no_ratio_changes_nothing() -> None:
    assert torch.equal(log_ratios(PRIOR, PRIOR), torch.zeros(3, dtype=torch.float64))


def test_a_class_without_a_share_is_never_predicted() -> None:
    """On either side, whatever a network says; and every number stays one."""
    for prior, target in ((torch.tensor([0.5, 0.5, 0.0]), TARGET), (PRIOR, torch.tensor([0.5, 0.5, 0.0]))):
        by = log_ratios(prior, target)
        assert float(by[2]) == NEVER
        out = shifted_logits(torch.tensor([[0.0, 1.0, 90.0]]), by)
        assert int(out.argmax(1)) == 1 and bool(torch.isfinite(out).all()) and float(out.softmax(1)[0, 2]) == 0.0
    certain = shifted_logits(torch.tensor([[0.0, 0.0, 1.0]]), log_ratios(PRIOR, TARGET))
    assert bool(torch.isfinite(certain).all()) and int(certain.argmax(1)) == 2
