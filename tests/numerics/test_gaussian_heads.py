"""Fisher's discriminant from sums is scikit-learn's, whatever the sites; priors by EM, and their correction of logits."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from tideline.numerics.labels.gaussian_heads import class_sums, heads
from tideline.numerics.labels.prior import NEVER, log_ratios, reweighted, shifted_logits, shifted_prior


def clouds(n: int, classes: int = 3, d: int = 5, seed: int = 0, shares: Tensor | None = None) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    p = torch.ones(classes) / classes if shares is None else shares
    y = torch.multinomial(p, n, replacement=True, generator=rng)
    centres = 2 * torch.randn(classes, d, generator=torch.Generator().manual_seed(1))
    return (centres[y] + torch.randn(n, d, generator=rng)).double(), y


def test_it_is_linear_discriminant_analysis() -> None:
    x, y = clouds(300)
    x = (x - x.mean(0)) / x.std(0, correction=0)
    found = heads(class_sums(x, y, 3), shrinkage=0.2)
    known = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2, priors=torch.bincount(y).double() / 300).fit(x, y)
    p = (x @ found.weight.mT + found.bias).softmax(1)
    # scikit-learn shrinks the covariance of each class; the mean of these is the covariance within, shrunk.
    assert torch.allclose(p, torch.tensor(known.predict_proba(x)), atol=2e-3)


def test_no_scale_of_a_feature_matters() -> None:
    """From 0.01 to 4,000,000 and far from zero; and one that is constant has no weight."""
    x, y = clouds(200)
    scale, shift = torch.tensor([0.01, 1.0, 4e6, 1.0, 30.0]).double(), torch.tensor([0.0, 1e4, 1e6, 0.0, -5.0]).double()
    one, other = heads(class_sums(x, y, 3)), heads(class_sums(x * scale + shift, y, 3))
    assert torch.allclose(x @ one.weight.mT + one.bias, (x * scale + shift) @ other.weight.mT + other.bias, atol=1e-3)
    still = heads(class_sums(torch.cat([x, torch.full((200, 1), 0.3).double()], 1), y, 3))
    assert torch.equal(still.weight[:, 5], torch.zeros(3).double())
    assert torch.allclose(still.weight[:, :5].sign(), one.weight.sign())


@pytest.mark.parametrize("off", [float("nan"), -1e9])
def test_sums_of_no_rows_are_refused_or_finite(off: float) -> None:
    x, y = clouds(60)
    sums = class_sums(x, y, 3)
    odd = replace(sums, second=sums.second + off * torch.eye(5).double())
    with contextlib.suppress(ValueError):
        assert bool(torch.isfinite(heads(odd).weight).all())


def test_sums_of_sites_are_those_of_all_rows() -> None:
    x, y = clouds(90)
    parts = [class_sums(x[i], y[i], 3) for i in torch.arange(90).split([10, 50, 30])]
    together, apart = heads(class_sums(x, y, 3)), heads(parts[0] + parts[1] + parts[2])
    assert torch.allclose(together.weight, apart.weight) and torch.allclose(together.bias, apart.bias)


def test_a_class_that_nobody_has_is_never_predicted() -> None:
    x, y = clouds(60)
    found = heads(class_sums(x, y, 5))
    assert int((x @ found.weight.mT + found.bias).argmax(1).max()) <= 2 and bool(torch.isfinite(found.weight).all())


def test_without_two_rows_of_a_class_there_is_nothing_to_learn() -> None:
    with pytest.raises(ValueError, match="two rows"):
        heads(class_sums(torch.eye(3), torch.arange(3), 3))


def test_em_finds_the_shares_of_a_shifted_place() -> None:
    """With the probabilities of a classifier that is right about its own place."""
    shares = torch.tensor([0.7, 0.2, 0.1])
    (x, y), (there, truth) = clouds(3000), clouds(2000, seed=5, shares=shares)
    found = heads(class_sums(x, y, 3), shrinkage=0.0)
    p = (there @ found.weight.mT + found.bias).softmax(1)
    q = shifted_prior(p, torch.bincount(y).double() / len(y))
    assert torch.allclose(q.float(), shares, atol=0.03)
    better = reweighted(p, torch.bincount(y).double() / len(y), q)
    assert (better.argmax(1) == truth).sum() >= (p.argmax(1) == truth).sum()


def test_without_rows_or_shift_the_prior_is_that_of_the_sources() -> None:
    prior = torch.tensor([3.0, 1.0])
    assert torch.equal(shifted_prior(torch.zeros(0, 2), prior), torch.tensor([0.75, 0.25], dtype=torch.float64))
    p = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])
    assert torch.allclose(shifted_prior(p, prior), torch.tensor([0.75, 0.25], dtype=torch.float64))
    assert torch.allclose(reweighted(p, prior, prior), p.double())


def test_a_class_that_the_sources_lack_gets_no_share() -> None:
    p = torch.tensor([[0.5, 0.4, 0.1], [0.3, 0.6, 0.1]])
    q = shifted_prior(p, torch.tensor([0.5, 0.5, 0.0]))
    assert float(q[2]) == 0.0 and float(q.sum()) == pytest.approx(1.0)
    assert float(reweighted(p, torch.tensor([0.5, 0.5, 0.0]), q)[:, 2].sum()) == 0.0


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
