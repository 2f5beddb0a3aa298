"""Hypernetworks against autograd: what a round of deltas comes to, end to end through a client's training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, grad

from tests.numerics.clouds import seeded
from tests.numerics.examples import for_all
from tideline.numerics.aggregation import hypernetwork
from tideline.numerics.aggregation.hypernetwork import (
    HIDDEN,
    ChunkedPull,
    LinearPull,
    Pulled,
    begin_chunked,
    begin_heads,
    begin_trunk,
    generate,
    generate_chunked,
    match_heads,
    pull,
    trunk,
)
from tideline.numerics.aggregation.server_step import alignment

SHAPES = {"a.weight": torch.Size([4, 3]), "a.bias": torch.Size([4]), "b.weight": torch.Size([2, 4]), "b.bias": torch.Size([2])}
KINDS = ("linear", "chunked")
Theta = dict[str, Tensor]


def drawn(kind: str, n: int, e: int, seed: int) -> tuple[Theta, Tensor, list[dict[str, Tensor]]]:
    """theta, nu and deltas of n clients, float64."""
    rng = torch.Generator().manual_seed(seed)
    heads = begin_heads(SHAPES, rng) if kind == "linear" else begin_chunked(SHAPES, 7, rng)
    theta = {name: each.double() for name, each in (begin_trunk(e, rng) | heads).items()}
    nu = torch.randn(n, e, generator=rng, dtype=torch.float64)
    return theta, nu, [{k: torch.randn(s, generator=rng, dtype=torch.float64) for k, s in SHAPES.items()} for _ in range(n)]


def made(kind: str) -> Callable[[Theta, Tensor], dict[str, Tensor]]:
    by = generate if kind == "linear" else generate_chunked
    return lambda theta, row: by(theta, trunk(theta, row), SHAPES)


def pulled(kind: str, theta: Theta, nu: Tensor, deltas: list[dict[str, Tensor]]) -> Pulled:
    f = trunk(theta, nu)
    heads = LinearPull.of(theta, f, deltas, SHAPES) if kind == "linear" else ChunkedPull.of(theta, f, deltas, SHAPES)
    return pull(theta, nu, heads)


def combined(found: Pulled, weights: Tensor, like: Mapping[str, Tensor]) -> Theta:
    """The whole weighted gradient, its slices put together."""
    whole = {name: torch.full_like(each, torch.nan) for name, each in like.items()}
    for name, rows, gradient in found.heads.gradients(weights):
        whole[name][rows] = gradient
    for name, each in found.trunk.items():
        whole[name] = torch.tensordot(weights.to(each.dtype), each, 1)
    return whole


def directly(kind: str, theta: Theta, nu: Tensor, deltas: list[dict[str, Tensor]]) -> tuple[list[Theta], Tensor]:
    """Each client's whole gradient -J_i^T Delta_i by autograd: of theta, and of its row of nu."""

    def along(theta: Theta, row: Tensor, delta: Mapping[str, Tensor]) -> Tensor:
        phi = made(kind)(theta, row)
        return -torch.stack([(phi[name] * delta[name]).sum() for name in phi]).sum()

    both = [grad(along, argnums=(0, 1))(theta, row, delta) for row, delta in zip(nu, deltas, strict=True)]
    return [each for each, _ in both], torch.stack([row for _, row in both])


@pytest.mark.parametrize("kind", KINDS)
@for_all(15, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**20), st.integers(1, 40))
def test_the_weighted_gradient_is_autograds(kind: str, n: int, e: int, seed: int, numbers: int) -> None:
    """In slices of any size; and the Gram form has the inner products of whole gradients."""
    theta, nu, deltas = drawn(kind, n, e, seed)
    before = hypernetwork.NUMBERS
    hypernetwork.NUMBERS = numbers * HIDDEN
    try:
        found = pulled(kind, theta, nu, deltas)
        weights = torch.linspace(1, 2, n, dtype=torch.float64)
        whole = combined(found, weights, theta)
    finally:
        hypernetwork.NUMBERS = before
    by_theta, by_nu = directly(kind, theta, nu, deltas)
    for name in theta:
        expected = sum((w * each[name] for w, each in zip(weights, by_theta, strict=True)), torch.zeros_like(theta[name]))
        assert torch.allclose(whole[name], expected, rtol=1e-9, atol=1e-10), name
    assert torch.allclose(found.nu, by_nu, rtol=1e-9, atol=1e-10)
    rows = torch.stack([torch.cat([g[name].flatten() for name in theta]) for g in by_theta])
    gram = rows @ rows.T + by_nu.pow(2).sum(1).diag()
    assert torch.allclose(found.gram, gram, rtol=1e-9, atol=1e-8)
    assert torch.allclose(alignment(found.gram), alignment(gram))


def tiny() -> torch.nn.Module:
    """A client's network with the tensors of SHAPES."""
    net = torch.nn.Module()
    net.a, net.b = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    net.forward = lambda x: net.b(net.a(x).tanh())  # type: ignore[method-assign]
    return net.double()


@pytest.mark.parametrize("kind", KINDS)
def test_the_sign(kind: str) -> None:
    """After a plain SGD step of rate mu at a client the gradient here is mu dL(h(theta, nu)) / d(theta, nu), by autograd from
    end to end; and the loss falls after a small step down."""
    theta, nu, _ = drawn(kind, 1, 2, 3)
    rng, mu, net = torch.Generator().manual_seed(5), 0.05, tiny()
    x = torch.randn(16, 3, generator=rng, dtype=torch.float64)
    y = (x.sum(1) > 0).long()

    def loss(phi: Mapping[str, Tensor]) -> Tensor:
        return torch.nn.functional.cross_entropy(functional_call(net, dict(phi), (x,)), y)

    def through(theta: Theta, row: Tensor) -> Tensor:
        return loss(made(kind)(theta, row))

    phi = made(kind)(theta, nu[0])
    delta = {name: -mu * g for name, g in grad(loss)(phi).items()}
    found = pulled(kind, theta, nu, [delta])
    by_theta, by_nu = grad(through, argnums=(0, 1))(theta, nu[0])
    whole = combined(found, torch.ones(1, dtype=torch.float64), theta)
    for name in theta:
        assert torch.allclose(whole[name], mu * by_theta[name], rtol=1e-5, atol=1e-9), name
    assert torch.allclose(found.nu[0], mu * by_nu, rtol=1e-5, atol=1e-9)
    stepped = {name: each - 0.01 * whole[name] / mu for name, each in theta.items()}
    assert through(stepped, nu[0] - 0.01 * found.nu[0] / mu) < through(theta, nu[0])


def test_the_trunk_by_hand() -> None:
    """Four linear layers; LeakyReLU of slope 0.01 follows the first three."""
    theta, nu, _ = drawn("linear", 2, 3, 4)
    f = nu
    for i in range(4):
        f = f @ theta[f"trunk.{i}.weight"].T + theta[f"trunk.{i}.bias"]
        f = torch.where(f > 0, f, 0.01 * f) if i < 3 else f
    assert torch.allclose(trunk(theta, nu), f) and bool((f < 0).any())


def test_chunks_by_hand() -> None:
    """Chunk j is W leaky(A f + B c_j + a) + b: of the client and of the chunk."""
    theta, nu, _ = drawn("chunked", 1, 2, 4)
    f = trunk(theta, nu[0])
    rows = []
    for c in theta["chunks"]:
        h = theta["mixer.client"] @ f + theta["mixer.chunk"] @ c + theta["mixer.bias"]
        rows.append(theta["head.weight"] @ torch.where(h > 0, h, 0.01 * h) + theta["head.bias"])
    assert torch.allclose(hypernetwork.emit(theta, f), torch.cat(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_embeddings_get_equal_models(kind: str) -> None:
    """Bit for bit; and what is generated has the names, shapes and order of the model's tensors."""
    theta, nu, _ = drawn(kind, 2, 3, 1)
    nu[1] = nu[0]
    one, other = (made(kind)(theta, row) for row in nu)
    assert {name: each.shape for name, each in one.items()} == SHAPES
    assert all(one[name].equal(other[name]) for name in SHAPES)


def test_matched_heads_generate_nearly_the_model() -> None:
    """The heads' own part is a tenth of each tensor's deviation; default heads' is many times it. theta is left as it was."""
    theta, nu, _ = drawn("linear", 3, 1, 2)
    kept = {name: each.clone() for name, each in theta.items()}
    model = {name: 0.02 * torch.randn(s, generator=seeded(1), dtype=torch.float64) for name, s in SHAPES.items()}
    f = trunk(theta, nu)
    matched = match_heads(theta, f, model)
    assert all(kept[name].equal(theta[name]) for name in theta)
    for name, tensor in model.items():
        own = torch.stack([generate(matched, row, SHAPES)[name] - tensor for row in f])
        assert float(own.flatten(1).std(1, correction=0).mean()) == pytest.approx(0.1 * float(tensor.std(correction=0)))


def test_matched_heads_of_a_constant_tensor() -> None:
    """Such as a norm's scale: the weights are zero, and can still learn."""
    theta, nu, _ = drawn("linear", 2, 1, 2)
    model = {name: torch.ones(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    matched = match_heads(theta, trunk(theta, nu), model)
    assert all(generate(matched, row, SHAPES)["a.bias"].equal(model["a.bias"]) for row in trunk(theta, nu))


def test_chunks_cover_every_number_once() -> None:
    """The surplus of the last chunk is in no tensor, and gets no gradient."""
    theta, nu, deltas = drawn("chunked", 1, 1, 0)
    assert len(theta["chunks"]) * 7 >= hypernetwork.total(SHAPES) > (len(theta["chunks"]) - 1) * 7
    flat = torch.cat([made("chunked")(theta, nu[0])[name].flatten() for name in sorted(SHAPES)])
    assert flat.equal(hypernetwork.emit(theta, trunk(theta, nu[0]))[: hypernetwork.total(SHAPES)])
    zeros: list[dict[str, Any]] = [{name: torch.zeros_like(each) for name, each in deltas[0].items()}]
    assert not pulled("chunked", theta, nu, zeros).gram.any()
