"""Chunked heads (ours): one head for all tensors, which generates a model in chunks of s numbers.

Chunk j of client i's model is W leaky(A f_i + B c_j + a) + b, with an embedding c_j of each chunk that is learnt as the rest is.
The last chunk's surplus is cut off. Some s (H + 1) numbers instead of H + 1 times the model; and another model, which couples
all layers.

Shapes as in `hypernetwork`; C chunks, K numbers of a chunk's embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import vjp
from torch.nn.functional import leaky_relu, linear

from tideline.numerics.aggregation.hypernetwork import HIDDEN, Shapes, uniform

K = 32
PIECE = 4096  # of each client's gradient, in double precision at once
NAMES = ("chunks", "mixer.client", "mixer.chunk", "mixer.bias", "head.weight", "head.bias")


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
    """P, the numbers of all tensors."""
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
        """sum_i w_i g_i, tensor by tensor."""
        for name, each in self.each.items():
            yield name, slice(None), torch.tensordot(weights.to(each.dtype), each, 1)
