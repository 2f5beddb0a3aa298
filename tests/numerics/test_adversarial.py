"""Losses of adversarial adaptation, weights by gains, and what noise is worth: values with a known answer."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from tests.numerics.clouds import normal
from tideline.nets.disentangling import Information, identifier, logits
from tideline.numerics.alignment import adversarial


def vector(d: int, seed: int = 0) -> Tensor:
    """An identifier's parameters, in float64."""
    torch.manual_seed(seed)
    return torch.nn.utils.parameters_to_vector(identifier(d).double().parameters()).detach()


def test_an_identifier_that_knows_nothing() -> None:
    """Eq. 4 at DI = 1/2 is 2 log 2; what it tells apart is less, what it takes for the other is more."""
    z = torch.zeros(5, dtype=torch.float64)
    assert float(adversarial.identifier_loss(z, source=True) + adversarial.identifier_loss(z, source=False)) == pytest.approx(
        2 * math.log(2), abs=1e-12
    )
    assert adversarial.identifier_loss(z + 3, source=True) < math.log(2) < adversarial.identifier_loss(z + 3, source=False)


def test_logits_of_any_size() -> None:
    z = torch.tensor([-1e4, 0.0, 1e4], dtype=torch.float64, requires_grad=True)
    loss = (
        adversarial.identifier_loss(z, source=True)
        + adversarial.identifier_loss(z, source=False)
        + adversarial.taken_for_source(z)
    )
    loss.backward()
    assert z.grad is not None and adversarial.finite(loss, z.grad)
    assert float(adversarial.taken_for_source(z.detach())) == pytest.approx((1e4 + math.log(2)) / 3)


def test_halves_are_the_whole() -> None:
    """The gradients of eq. 4 and eq. 5 are sums of a term of the source's rows and one of the target's."""
    di, f_s, f_t = vector(12), normal(20, 12, seed=1), normal(30, 12, seed=2) + 1

    def by(*terms: Tensor, of: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(sum(terms, torch.zeros(())), of)
        return g

    whole = di.clone().requires_grad_()
    together = by(
        -torch.sigmoid(logits(whole, f_s)).log().mean() - (1 - torch.sigmoid(logits(whole, f_t))).log().mean(), of=whole
    )
    halves = []
    for f, source in ((f_s, True), (f_t, False)):
        own = di.clone().requires_grad_()
        halves.append(by(adversarial.identifier_loss(logits(own, f), source=source), of=own))
    torch.testing.assert_close(halves[0] + halves[1], together, rtol=1e-9, atol=1e-12)
    a, b = f_s.clone().requires_grad_(), f_t.clone().requires_grad_()
    both = -torch.sigmoid(logits(di, a)).log().mean() - torch.sigmoid(logits(di, b)).log().mean()
    for f, g in zip((a, b), torch.autograd.grad(both, (a, b)), strict=True):
        own = f.detach().clone().requires_grad_()
        torch.testing.assert_close(by(adversarial.taken_for_source(logits(di, own)), of=own), g, rtol=1e-9, atol=1e-12)


def test_confusion_is_least_at_the_uniform_distribution() -> None:
    assert float(adversarial.confusion(torch.zeros(7, 10, dtype=torch.float64))) == pytest.approx(2.302585, abs=1e-6)
    assert float(adversarial.confusion(normal(7, 10, seed=3))) > math.log(10)
    # As it is written: the mean over rows of the mean over classes.
    p = normal(4, 5, seed=4)
    assert float(adversarial.confusion(p)) == pytest.approx(-float(p.softmax(1).log().sum()) / 20)


def learnt(rho: float, n: int = 8192, steps: int = 1200) -> float:
    """The estimate after training on pairs of two numbers with a correlation."""
    p = normal(n, 1, seed=5)
    q = rho * p + math.sqrt(1 - rho**2) * normal(n, 1, seed=6)
    torch.manual_seed(0)
    M = Information(1).double()
    by = torch.optim.Adam(M.parameters(), lr=0.02, maximize=True)
    rng = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randperm(n, generator=rng)[:1024]
        by.zero_grad()
        adversarial.mutual_information(M(p[rows], q[rows]), M(p[rows], q[rows[torch.randperm(1024, generator=rng)]])).backward()
        by.step()
    with torch.no_grad():
        return float(adversarial.mutual_information(M(p, q), M(p, q[torch.randperm(n, generator=rng)])))


@pytest.mark.nightly(job="numbers")
def test_information_of_independent_numbers() -> None:
    assert abs(learnt(0.0)) < 0.05


@pytest.mark.nightly(job="numbers")
def test_information_of_correlated_numbers() -> None:
    assert 0.7 < learnt(0.9) < 0.8304 + 0.05


def test_information_is_stable_and_told_within_its_bound() -> None:
    """Scores of a thousand do not overflow; n pairs show log n at most."""
    scores = torch.full((8,), 1000.0)
    assert float(adversarial.mutual_information(scores, scores)) == pytest.approx(0.0, abs=1e-3)
    assert adversarial.capped_information(50.0, 8) == math.log(8) and adversarial.capped_information(-0.1, 8) == -0.1


def test_errors_and_distances() -> None:
    """Half of the rows wrong is no distance, all right is 2; a logit of zero decides nothing."""
    z = torch.tensor([1.0, -1.0, 2.0, 0.0])
    assert (adversarial.error_of(z, source=True), adversarial.error_of(z, source=False)) == (0.375, 0.625)
    assert (adversarial.a_distance(0.0), adversarial.a_distance(0.5)) == (2.0, 0.0)


def test_rows_are_clipped() -> None:
    """To the norm, if they are longer; zero rows stay, and have a gradient."""
    f = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], requires_grad=True)
    torch.testing.assert_close(adversarial.clipped(f, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    adversarial.clipped(f, 1.0).sum().backward()
    assert f.grad is not None and adversarial.finite(f.grad)


@pytest.mark.parametrize("gains", [[0.0, 0.0], [1e3, -1e3, 5.0], [-0.3, 0.2, 0.1, 0.0]])
def test_weights_are_on_the_simplex(gains: list[float]) -> None:
    g = torch.tensor(gains)
    for rule in (adversarial.raw, adversarial.flattened, adversarial.uniform):
        w = rule(g)
        assert bool((w >= 0).all()) and float(w.sum()) == pytest.approx(1.0)
    N = len(gains)
    assert bool((adversarial.flattened(g) >= 1 / (N + 1)).all()) and bool((adversarial.flattened(g) <= 2 / (N + 1)).all())


def test_of_four_sources_it_is_the_codes_rule() -> None:
    g = torch.tensor([0.1, 0.5, -0.2, 0.0], dtype=torch.float64)
    torch.testing.assert_close(adversarial.flattened(g), 0.2 + 0.2 * g.softmax(0))


def test_equal_gains_are_equal_weights() -> None:
    for rule in (adversarial.raw, adversarial.flattened, adversarial.uniform):
        torch.testing.assert_close(rule(torch.full((3,), 0.7)), torch.full((3,), 1 / 3, dtype=torch.float64))


def test_it_is_the_least_over_orders_of_the_divergence() -> None:
    T, sigma, delta = 40, 20.0, 1e-5
    orders = (1 + k / 1000 for k in range(1, 200_000))
    assert adversarial.epsilon(T, sigma, delta) == pytest.approx(
        min(2 * a * T / sigma**2 + math.log(1 / delta) / (a - 1) for a in orders), rel=1e-5
    )


def test_more_noise_is_worth_more_and_more_releases_less() -> None:
    assert adversarial.epsilon(0, 1.0, 1e-5) == 0
    assert adversarial.epsilon(10, 2.0, 1e-5) < adversarial.epsilon(10, 1.0, 1e-5) < adversarial.epsilon(20, 1.0, 1e-5)
    assert adversarial.epsilon(1, 0.0, 1e-5) == math.inf


@pytest.mark.parametrize("given", [(-1, 1.0, 0.1), (1, -1.0, 0.1), (1, 1.0, 0.0), (1, 1.0, 1.0)])
def test_what_is_no_budget_is_refused(given: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="releases"):
        adversarial.epsilon(*given)


def test_noise_is_normal_and_of_its_key_and_number_alone() -> None:
    """The same for the same; the streams of another number and of another key have nothing to do with it."""
    key, shape = bytes(range(32)), torch.Size((300, 100))
    first = adversarial.noise(key, 1, shape)
    assert first.shape == shape and first.dtype is torch.float32
    assert kstest(first.flatten().numpy(), "norm").pvalue > 1e-3
    assert torch.equal(first, adversarial.noise(key, 1, shape))
    for other in (adversarial.noise(key, 2, shape), adversarial.noise(bytes(32), 1, shape)):
        assert abs(float(torch.corrcoef(torch.stack([first.flatten(), other.flatten()]))[0, 1])) < 0.03
    assert adversarial.noise(key, 1, torch.Size((0, 5))).shape == (0, 5)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="has 8 bytes; 32 are needed"):
        adversarial.noise(bytes(8), 1, torch.Size((2,)))
