"""A hypernetwork that generates models of clients, and how the changes of these models become its gradients.

Shamsian et al., "Personalized Federated Learning using Hypernetworks" (ICML 2021), and Bartholet et al., "Non-linear Fusion in
Federated Learning" (2024): an embedding nu_i of each client, a small trunk f_i = trunk(nu_i), and for each tensor of the
client's model a head that is linear in f_i.

Chunked heads (ours): one head for all tensors, which generates a model in chunks of s numbers. Chunk j of client i's model is W
leaky(A f_i + B c_j + a) + b, with a learnt embedding c_j of each chunk; the last chunk's surplus is cut off. Some s (H + 1)
numbers instead of H + 1 times the model; and another model, which couples all layers.

Shapes: N clients, e numbers of an embedding, H = 50 of a trunk's output, P of all generated tensors; C chunks, K numbers of a
chunk's embedding. A client's Delta_i is what local training added to phi_i. It points downhill, so that the gradient for an
optimiser that minimises is -J_i^T Delta_i, with J_i = d phi_i / d(theta, nu). A head W (p, H) costs H + 1 times its tensor; so
no gradient of a whole head is ever made for one client, and no head's for longer than its step takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import grad, vjp, vmap
from torch.nn.functional import leaky_relu, linear

Shapes = Mapping[str, torch.Size]
HIDDEN = 50
LAYERS = 4  # of the trunk; LeakyReLU follows all but the last
NUMBERS = 1 << 20  # of a slice of a head, or of all clients' deltas beside it
SHARE = 0.1  # of a generated tensor's standard deviation that is its head's, with matched heads
K = 32
PIECE = 4096  # of each client's gradient, in double precision at once
NAMES = ("chunks", "mixer.client", "mixer.chunk", "mixer.bias", "head.weight", "head.bias")


@dataclass(frozen=True)
class Pulled:
    """What the deltas of N clients come to before they are weighed.

    gram   (N, N) float64: the inner products of the clients' whole gradients
    trunk  by name, gradients (N, ...) of the trunk, one for each client
    nu     (N, e): the gradient of each client's own row, the only one that it touches
    heads  the heads' own part, whatever kind they are
    """

    gram: Tensor
    trunk: Mapping[str, Tensor]
    nu: Tensor
    heads: LinearPull | ChunkedPull


def trunk_names() -> list[str]:
    return [f"trunk.{i}.{kind}" for i in range(LAYERS) for kind in ("weight", "bias")]


def trunk(theta: Mapping[str, Tensor], nu: Tensor) -> Tensor:
    """f = trunk(nu): (..., e) -> (..., H)."""
    f = nu
    for i in range(LAYERS):
        f = linear(f, theta[f"trunk.{i}.weight"], theta[f"trunk.{i}.bias"])
        f = leaky_relu(f) if i < LAYERS - 1 else f
    return f


def begin_trunk(e: int, rng: Generator) -> dict[str, Tensor]:
    sizes = (e, *[HIDDEN] * LAYERS)
    drawn = (uniform((sizes[i + 1], *tail), sizes[i], rng) for i in range(LAYERS) for tail in ((sizes[i],), ()))
    return dict(zip(trunk_names(), drawn, strict=True))


def uniform(shape: Sequence[int], inputs: int, rng: Generator) -> Tensor:
    """Numbers in +-1 / sqrt(inputs)."""
    bound = inputs**-0.5
    return torch.empty(tuple(shape)).uniform_(-bound, bound, generator=rng)


def begin_heads(shapes: Shapes, rng: Generator) -> dict[str, Tensor]:
    """A head for each tensor, drawn as the trunk is: `heads.NAME.weight` (p, H), `heads.NAME.bias` (p,)."""
    drawn = {}
    for name, shape in sorted(shapes.items()):
        drawn[f"heads.{name}.weight"] = uniform((shape.numel(), HIDDEN), HIDDEN, rng)
        drawn[f"heads.{name}.bias"] = uniform((shape.numel(),), HIDDEN, rng)
    return drawn


def match_heads(theta: Mapping[str, Tensor], f: Tensor, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Heads that generate nearly `model`, a draw of the client network's own initialisation: theta with other heads.

    Biases are the model's tensors. Weights are scaled so that W f has SHARE of the tensor's standard deviation, in the mean over
    the clients' f (N, H): default heads generate weights some ten times too large.
    """
    made = dict(theta)
    for name, tensor in model.items():
        W = theta[f"heads.{name}.weight"]
        spread = float(linear(f, W).std(1, correction=0).mean())
        wanted = SHARE * float(tensor.std(correction=0))
        made[f"heads.{name}.weight"] = W * (wanted / spread if spread > 0 else 0.0)
        made[f"heads.{name}.bias"] = tensor.flatten().clone()
    return made


def generate(theta: Mapping[str, Tensor], f: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    """phi by linear heads, from one client's trunk output f (H,): named tensors of these shapes."""
    return {
        name: torch.addmv(theta[f"heads.{name}.bias"], theta[f"heads.{name}.weight"], f).view(shape)
        for name, shape in shapes.items()
    }


def pull(theta: Mapping[str, Tensor], nu: Tensor, heads: LinearPull | ChunkedPull) -> Pulled:
    """What comes of the clients' deltas, whose heads' part is known; nu (N, e). One backward pass a client, all at once."""
    own = {name: theta[name] for name in trunk_names()}

    def along(theta: Mapping[str, Tensor], row: Tensor, d_f: Tensor) -> Tensor:
        return (trunk(theta, row) * d_f).sum()

    by_theta, by_nu = vmap(grad(along, argnums=(0, 1)), in_dims=(None, 0, 0))(own, nu, heads.d_f.to(nu.dtype))
    flat = torch.cat([each.flatten(1) for each in by_theta.values()], 1).double()
    return Pulled(heads.gram + flat @ flat.T + by_nu.double().pow(2).sum(1).diag(), by_theta, by_nu, heads)


@dataclass(frozen=True)
class LinearPull:
    """The part of linear heads. A client's gradient of a head is -Delta_i f_i^T, and of its bias -Delta_i; so

    <g_i, g_j> = (1 + f_i . f_j) <Delta_i, Delta_j>  summed over tensors, which needs no gradient of a head.
    """

    theta: Mapping[str, Tensor]
    f: Tensor
    deltas: Sequence[Mapping[str, Tensor]]
    shapes: Shapes
    gram: Tensor
    d_f: Tensor

    @classmethod
    def of(cls, theta: Mapping[str, Tensor], f: Tensor, deltas: Sequence[Mapping[str, Tensor]], shapes: Shapes) -> LinearPull:
        """From the clients' trunk outputs f (N, H) and their deltas, which have these shapes and may be mapped files."""
        products = torch.zeros(len(f), len(f), dtype=torch.float64)
        d_f = torch.zeros(f.shape, dtype=torch.float64)
        for name, rows in slices(shapes, len(f)):
            d = downhill(deltas, name, rows)
            products += (d @ d.T).double()
            d_f += (d @ theta[f"heads.{name}.weight"][rows]).double()
        kernel = 1 + f.double() @ f.double().T
        return cls(theta, f, deltas, shapes, kernel * products, d_f)

    def gradients(self, weights: Tensor) -> Iterator[tuple[str, slice, Tensor]]:
        """(name, rows, sum_i w_i g_i on these rows) of each head's weight and bias, a slice at a time; weights (N,)."""
        w = weights.to(self.f.dtype)
        for name, rows in slices(self.shapes, len(self.f)):
            d = downhill(self.deltas, name, rows) * w[:, None]
            yield f"heads.{name}.weight", rows, d.T @ self.f
            yield f"heads.{name}.bias", rows, d.sum(0)


def slices(shapes: Shapes, n: int) -> Iterator[tuple[str, slice]]:
    """Every tensor's rows in pieces such that neither a piece of the head nor those of n deltas has more than NUMBERS numbers."""
    most = max(1, NUMBERS // max(n, HIDDEN))
    for name, shape in sorted(shapes.items()):
        for at in range(0, shape.numel(), most):
            yield name, slice(at, min(at + most, shape.numel()))


def downhill(deltas: Sequence[Mapping[str, Tensor]], name: str, rows: slice) -> Tensor:
    return -torch.stack([delta[name].flatten()[rows] for delta in deltas])


def begin_chunked(shapes: Shapes, size: int, rng: Generator) -> dict[str, Tensor]:
    """Chunks of `size` numbers: embeddings standard normal, all else uniform as layers are drawn."""
    count = -(-total(shapes) // size)
    return {
        "chunks": torch.randn(count, K, generator=rng),
        "mixer.client": uniform((HIDDEN, HIDDEN), HIDDEN + K, rng),
        "mixer.chunk": uniform((HIDDEN, K), HIDDEN + K, rng),
        "mixer.bias": uniform((HIDDEN,), HIDDEN + K, rng),
        "head.weight": uniform((size, HIDDEN), HIDDEN, rng),
        "head.bias": uniform((size,), HIDDEN, rng),
    }


def total(shapes: Shapes) -> int:
    return sum(shape.numel() for shape in shapes.values())


def emit(theta: Mapping[str, Tensor], f: Tensor) -> Tensor:
    """All chunks of one client's model, end to end: f (H,) -> (C s,)."""
    mixed = linear(f, theta["mixer.client"]) + linear(theta["chunks"], theta["mixer.chunk"], theta["mixer.bias"])
    return linear(leaky_relu(mixed), theta["head.weight"], theta["head.bias"]).flatten()


def generate_chunked(theta: Mapping[str, Tensor], f: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    """phi, from one client's trunk output f (H,): tensors of these shapes, cut from the chunks in the order of their names."""
    names = sorted(shapes)
    pieces = torch.split(emit(theta, f)[: total(shapes)], [shapes[name].numel() for name in names])
    return {name: piece.reshape(shapes[name]) for name, piece in zip(names, pieces, strict=True)}


@dataclass(frozen=True)
class ChunkedPull:
    """The part of chunked heads: each client's gradient of them, (N, ...) by name. They are small."""

    each: Mapping[str, Tensor]
    gram: Tensor
    d_f: Tensor

    @classmethod
    def of(cls, theta: Mapping[str, Tensor], f: Tensor, deltas: Sequence[Mapping[str, Tensor]], shapes: Shapes) -> ChunkedPull:
        """From the clients' trunk outputs f (N, H) and their deltas: one backward pass for each, one after the other."""
        own = {name: theta[name] for name in NAMES}
        each = {name: w.new_empty(len(f), *w.shape) for name, w in own.items()}
        d_f = f.new_empty(f.shape)
        for i, delta in enumerate(deltas):
            by_theta, d_f[i] = cls.back(own, f[i], delta, shapes)
            for name, gradient in by_theta.items():
                each[name][i] = gradient
        gram = torch.zeros(len(f), len(f), dtype=torch.float64)
        for part in (piece for whole in each.values() for piece in torch.split(whole.flatten(1), PIECE, 1)):
            gram += part.double() @ part.double().T
        return cls(each, gram, d_f.double())

    @staticmethod
    def back(own: dict[str, Tensor], f: Tensor, delta: Mapping[str, Tensor], shapes: Shapes) -> tuple[dict[str, Tensor], Tensor]:
        """-J_i^T Delta_i for the heads and for f_i."""
        out, pullback, *_ = vjp(emit, own, f)
        d = torch.cat([-delta[name].flatten() for name in sorted(shapes)])
        by_theta, by_f = pullback(torch.cat([d, d.new_zeros(len(out) - len(d))]).to(out.dtype))
        return by_theta, by_f

    def gradients(self, weights: Tensor) -> Iterator[tuple[str, slice, Tensor]]:
        """(name, all rows, sum_i w_i g_i), tensor by tensor; weights (N,)."""
        for name, each in self.each.items():
            yield name, slice(None), torch.tensordot(weights.to(each.dtype), each, 1)
