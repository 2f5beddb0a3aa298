"""Networks whose encoder emits a mean and a scale, and the terms of such a representation against their definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional

from tests.nets.test_shapes import WORLDS
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets import probabilistic
from tideline.nets.layers import backbone_of, classifier_of
from tideline.nets.probabilistic import LEAST, References, class_divergence, divergence, length, log_mean_softmax

PHOTOS = World(inputs=(3, 32, 32), classes=5, model="lenet")
WIDENED = {
    "lenet": "features.7",
    "mlp": "features.1",
    "tabular": "features.1",
    "lenet_bn": "features.bottleneck.linear",
    "convnet": "features.8",
    "inception": "features.12",
    **dict.fromkeys(("conv1d", "conv3d"), "features.9"),
    "tokens": "features.1",
    **dict.fromkeys(("fada_digits", "fada_small"), "features.head.4"),
    **dict.fromkeys(("resnet18", "resnet50", "resnet18_wn", "resnet50_wn"), "features.bottleneck.linear"),
}
every = pytest.mark.parametrize("name", WIDENED)


def test_every_network_with_features_is_tried() -> None:
    """A new network has its layer named here, unless its encoder ends in a convolution, and there is none to widen."""
    assert WIDENED.keys() == nets.NETS.keys() - {"linear", "efficientnet_lite0"}


@every
def test_one_layer_is_twice_as_wide_and_the_last(name: str) -> None:
    """All else of the encoder and the classifier are as they were; norm, dropout and activation behind it are gone."""
    world = WORLDS.get(name, replace(PHOTOS, model=name, inputs=(32,) if name == "tabular" else PHOTOS.inputs))
    ours, theirs, layer = nets.template(world, made=probabilistic.build), nets.template(world), WIDENED[name]
    m = nets.width(world)
    assert probabilistic.width(world) == m
    assert ours[f"{layer}.weight"].shape == (2 * m, theirs[f"{layer}.weight"].shape[1])
    assert ours[f"{layer}.bias"].shape == (2 * m,)
    gone = {n for n in theirs if n.startswith(("features.bottleneck.norm.", "features.head.5."))}
    kept = {n: w.shape for n, w in theirs.items() if n not in gone and not n.startswith(f"{layer}.")}
    assert {n: w.shape for n, w in ours.items() if not n.startswith(f"{layer}.")} == kept
    assert classifier_of(ours).keys() == classifier_of(theirs).keys() and backbone_of(ours)
    with torch.device("meta"):
        net = probabilistic.build(world)
    inside = [module for module in net.get_submodule("features").modules() if not list(module.children())]
    assert isinstance(inside[-1], nn.Linear)


@pytest.mark.parametrize("name", ["lenet", "lenet_bn", "mlp", "resnet18_wn"])
def test_it_encodes_and_classifies(name: str) -> None:
    """mu of either sign and sigma above 0, (n, m) each, by halves of what the encoder emits; z goes into the classifier."""
    world = replace(PHOTOS, model=name)
    torch.manual_seed(0)
    net = probabilistic.build(world).eval()
    x = torch.randn(4, *world.inputs, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        emitted = net.get_submodule("features")(x)
        mu, sigma = probabilistic.encoded(net, x)
        logits = net.get_submodule("classifier")(mu)
    m = probabilistic.width(world)
    assert torch.equal(mu, emitted[:, :m]) and torch.equal(sigma, functional.softplus(emitted[:, m:]))
    assert bool((mu < 0).any()) and bool((sigma > 0).all()) and logits.shape == (4, 5)


def test_weights_come_back() -> None:
    """What is built, taken out and put in again computes the same; it is drawn from torch's global generator alone."""
    world = replace(PHOTOS, model="lenet_bn")
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(nets.weights_of(probabilistic.build(world)))
    assert all(torch.equal(w, drawn[1][n]) for n, w in drawn[0].items())
    net = nets.loaded(world, drawn[0], made=probabilistic.build)
    assert all(torch.equal(w, drawn[0][n]) for n, w in nets.weights_of(net).items())


@pytest.mark.parametrize("do", [nets.check, nets.template])
def test_a_network_without_such_a_layer_is_refused(do: object) -> None:
    with pytest.raises(ConfigRefused, match="linear, which has no linear layer before its classifier") as refusal:
        do(World(inputs=(8,), model="linear"), made=probabilistic.build)  # type: ignore[operator]
    assert refusal.value.context["path"] == "world.model" and "lenet" in refusal.value.todo


def test_inputs_that_do_not_fit_are_refused_as_ever() -> None:
    with pytest.raises(ConfigRefused, match="takes images"):
        nets.check(World(inputs=(8,), model="lenet"), made=probabilistic.build)
    with pytest.raises(ConfigRefused, match="no such network"):
        nets.check(World(inputs=(8,), model="lenett"), made=probabilistic.build)


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
