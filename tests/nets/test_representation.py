"""The terms of a probabilistic representation, and its prediction, against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional

from tideline.nets.probabilistic import LEAST, References, class_divergence, divergence, length, log_mean_softmax

N, M, K = 7, 5, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def references(C: float = 1.3) -> References:
    return References(drawn(K, M, seed=1), drawn(K, M, seed=2), torch.tensor(C, dtype=torch.float64))


Y = torch.tensor([0, 1, 2, 2, 1, 0, 1])


def test_the_divergence_is_that_of_two_diagonal_normals() -> None:
    mu, sigma, r_mu, r_sigma = drawn(N, M), drawn(N, M, seed=3).exp(), drawn(N, M, seed=4), drawn(N, M, seed=5).exp()
    expected = kl_divergence(Independent(Normal(mu, sigma), 1), Independent(Normal(r_mu, r_sigma), 1))
    torch.testing.assert_close(divergence(mu, sigma, r_mu, r_sigma), expected)


def test_the_class_term_by_hand() -> None:
    """sum_m [log r_sigma - log(C sigma) + ((C sigma)^2 + (C mu - r_mu)^2) / (2 r_sigma^2) - 1/2], the mean over rows."""
    mu, sigma, r = drawn(N, M), drawn(N, M, seed=3).exp(), references()
    total = 0.0
    for i in range(N):
        for j in range(M):
            s, t = 1.3 * float(sigma[i, j]), math.log1p(math.exp(float(r.r_s[Y[i], j])))
            gap = 1.3 * float(mu[i, j]) - float(r.r_mu[Y[i], j])
            total += math.log(t) - math.log(s) + (s * s + gap * gap) / (2 * t * t) - 0.5
    assert float(class_divergence(mu, sigma, Y, r)) == pytest.approx(total / N)


def test_it_is_nothing_at_the_reference_and_positive_elsewhere() -> None:
    """0 when C mu = r_mu and C sigma = r_sigma of the row's own class; of another class more than 0."""
    r = references(2.0)
    mu, sigma = r.r_mu[Y] / 2, functional.softplus(r.r_s)[Y] / 2
    assert float(class_divergence(mu, sigma, Y, r)) == pytest.approx(0.0, abs=1e-12)
    assert float(class_divergence(mu, sigma, (Y + 1) % K, r)) > 0.1
    assert float(class_divergence(mu + 0.1, sigma, Y, r)) > 0


def test_its_gradients_are_those_of_the_formula() -> None:
    """With respect to mu, sigma, both references and C: autograd against finite differences."""
    mu, sigma, r = drawn(N, M), drawn(N, M, seed=3).exp(), references()
    given = [t.clone().requires_grad_() for t in (mu, sigma, r.r_mu, r.r_s, r.C)]
    assert torch.autograd.gradcheck(lambda m, s, a, b, c: class_divergence(m, s, Y, References(a, b, c)), given)
    assert torch.autograd.gradcheck(length, [drawn(N, M).requires_grad_()])


@pytest.mark.parametrize("C", [0.0, -1.0, 1.0])
def test_a_deviation_of_nothing_counts_as_the_least(C: float) -> None:
    """Value and gradients stay finite where sigma, C or a reference's scale has vanished."""
    r = References(torch.zeros(K, M), torch.full((K, M), -1e4), torch.tensor(C))
    mu, sigma = torch.zeros(N, M, requires_grad=True), torch.zeros(N, M, requires_grad=True)
    for t in (r.r_mu, r.r_s, r.C):
        t.requires_grad_()
    value = class_divergence(mu, sigma, Y, r)
    assert float(value.detach()) == pytest.approx(0.0, abs=LEAST)
    value.backward()  # type: ignore[no-untyped-call]
    assert all(t.grad is not None and bool(torch.isfinite(t.grad).all()) for t in (mu, sigma, r.r_mu, r.r_s, r.C))


def test_lengths() -> None:
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    assert float(length(z)) == pytest.approx((5 + 0 + 10) / 3)
    assert float(length(z, squared=True)) == pytest.approx((25 + 0 + 100) / 3)


def test_a_representation_of_nothing_has_a_slope() -> None:
    z = torch.zeros(2, M, requires_grad=True)
    length(z).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None and not bool(z.grad.any())


def test_a_prediction_is_the_mean_of_probabilities() -> None:
    """log of the mean over draws of the softmax; of one draw its log-softmax; finite for far logits."""
    logits = drawn(4, N, K)
    torch.testing.assert_close(log_mean_softmax(logits).exp(), logits.softmax(2).mean(0))
    torch.testing.assert_close(log_mean_softmax(logits[:1]), logits[0].log_softmax(1))
    assert bool(torch.isfinite(log_mean_softmax(1e6 * logits.float())).all())
