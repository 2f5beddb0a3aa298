"""Rows on a common scale, as a run's world says: what they are normalised by, and rows, networks and sites' data with it.

For each channel of images (n, c, ...), for each number of vectors (n, d); k stands for c or d.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.core.asked.normalise import IMAGENET, Normalise, Place, Scaling
from tideline.core.asked.world import ALL, World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.record import field, record
from tideline.core.rows import Changed, MemoryRows, Rows
from tideline.learning.rows import scratch
from tideline.numerics.alignment.normalising import Moments, drawn_in, moments, whitening

LEAST = 2  # rows that statistics may be of


@record
class Statistics:
    """z = (x - mean) / scale, or (x - mean) scale: mean (k,), scale (k,) or (k, k), float64. tails: whether they are drawn in.

    A scale of 0 leaves a number as it is: that of a category.
    """

    mean: Tensor = field(doc="what is subtracted")
    scale: Tensor = field(doc="what is divided by; a matrix is multiplied with")
    tails: bool = field(doc="whether numbers far from the mean are drawn in")


def copied(by: Statistics | None) -> Statistics | None:
    return None if by is None else Statistics(by.mean.clone(), by.scale.clone(), by.tails)


def same(one: Statistics | None, other: Statistics | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.mean, other.mean) and torch.equal(one.scale, other.scale) and one.tails == other.tails


def digest_of(by: Statistics) -> str:
    """Equal for equal statistics."""
    made = hashlib.blake2b(digest_size=16)
    for part in (by.mean, by.scale):
        made.update(part.contiguous().numpy().data)
    return f"{made.hexdigest()}{list(by.scale.shape)}{by.tails}"


def normalised(x: Tensor, by: Statistics) -> Tensor:
    """Rows x (n, k, ...), like x. Computed in float64, so that columns of any scale keep their digits."""
    if by.scale.dim() == 2:
        return ((x.double() - by.mean) @ by.scale).to(x.dtype)
    like = (-1, *(1 for _ in x.shape[2:]))
    z = (x.double() - by.mean.view(like)) / by.scale.view(like)
    return torch.where(by.scale.view(like) == 0, x, (drawn_in(z) if by.tails else z).to(x.dtype))


def flat(x: Tensor) -> Tensor:
    """Rows (n, k, ...) -> (n times what a channel has of numbers, k)."""
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def moments_of(parts: Iterable[Tensor], k: int) -> Moments:
    """Of rows in parts (n, k, ...); `count` is of rows."""
    rows = 0

    def counted() -> Iterator[Tensor]:
        nonlocal rows
        for part in parts:
            rows += len(part)
            yield flat(part)

    found = moments(counted(), k)
    return Moments(rows, found.mean, found.variance)


def by_moments(of: Moments, left: Sequence[int] = ()) -> Statistics:
    """left: numbers of a row that stay as they are."""
    mean, scale = of.mean.clone(), of.spread.clone()
    mean[list(left)] = scale[list(left)] = 0.0
    return Statistics(mean, scale, tails=True)


def constants(by: Normalise) -> Statistics | None:
    """Where the world itself says them."""
    if by.kind not in (Scaling.IMAGENET, Scaling.GIVEN):
        return None
    mean, std = IMAGENET if by.kind is Scaling.IMAGENET else (by.mean, by.std)
    return Statistics(torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64), tails=False)


def own_statistics(parts: Iterable[Tensor], kind: Scaling, k: int, left: Sequence[int] = ()) -> Statistics:
    """Those of a place's own rows, in parts (n, k, ...), together for `site_whiten`. Raises DataRefused for less than LEAST.

    left: numbers of a row that stay as they are.
    """
    whitens = kind is Scaling.SITE_WHITEN
    known = list(parts) if whitens else parts
    of = moments_of(known, k)
    if of.count < LEAST:
        what = f"Of {of.count} rows there is no mean and spread, by which normalise: {kind} has each place's rows normalised"
        raise DataRefused(
            what, f"Give {LEAST} rows or more to train on, or use a world with normalise: shared, or none", rows=of.count
        )
    if not whitens:
        return by_moments(of, left)
    # On unit spreads, so that no column's scale rules the shrinkage.
    W = whitening((torch.cat(list(known)).double() - of.mean) / of.spread).W
    return Statistics(of.mean, W / of.spread[:, None], tails=False)


@dataclass(frozen=True, eq=False)
class NormalisedRows(Changed):
    """Rows that are normalised when they are read."""

    by: Statistics

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        return normalised(self.raw.batch(indices, rng), self.by)

    def parts(self, size: int | None = None) -> Iterator[Tensor]:
        return (normalised(part, self.by) for part in self.raw.parts(size))


@dataclass(frozen=True)
class Normaliser:
    """What makes rows normalised ones."""

    by: Statistics

    def rows(self, rows: Rows) -> Rows:
        """Rows in memory are normalised once. So is what a matrix multiplies: its last digits differ with a batch's size."""
        lazily = NormalisedRows(rows, self.by)
        if self.by.scale.dim() == 2:
            return scratch.poured(lazily)
        return MemoryRows(normalised(rows.all(), self.by)) if isinstance(rows, MemoryRows) else lazily


class Layer(nn.Module):
    """The same before or within a network: x (n, k, ...) -> like x."""

    mean: Tensor
    scale: Tensor

    def __init__(self, by: Statistics) -> None:
        super().__init__()
        self.tails = by.tails
        self.register_buffer("mean", by.mean.clone())
        self.register_buffer("scale", by.scale.clone())

    def forward(self, x: Tensor) -> Tensor:
        return normalised(x, Statistics(self.mean, self.scale, self.tails))


def layered(net: nn.Module, by: Statistics, at: Place, device: str = "cpu") -> nn.Module:
    """A network, or a form of one, that normalises by itself: before all, or behind its encoder."""
    layer = Layer(by).to(device)
    if at is Place.INPUTS:
        return nn.Sequential(layer, net).eval()
    inner = encoder_in(net)
    inner.features = nn.Sequential(inner.get_submodule("features"), layer).eval()
    return net


def encoder_in(net: nn.Module) -> nn.Module:
    """The network with the encoder: itself, or that in a form which has more."""
    inside = getattr(net, "network", None)
    return inside if isinstance(inside, nn.Module) else net


def width(world: World) -> int:
    """k. Raises ConfigRefused."""
    return world.inputs[0] if world.scaling.at is Place.INPUTS else nets.width(replace(world, trains=ALL))


def check_place(whole: World) -> None:
    """Raises ConfigRefused for a world whose rows are to be normalised as features, and are none; or by too few constants."""
    by = whole.scaling
    if by.at is Place.INPUTS or by.kind is Scaling.NONE:
        return
    if not nets.of_features(nets.played(whole)):
        what = "world.normalise is at features, and layers before the head train, so that rows have no features of their own"
        raise ConfigRefused(what, "Write trains: head, or at: inputs", path="world.normalise")
    if by.kind is Scaling.GIVEN and len(by.mean) != (d := width(whole)):
        what = f"world.normalise has {len(by.mean)} constants, and the encoder of {whole.model} gives {d} features"
        raise ConfigRefused(what, "Give one of each: mean: [...], std: [...]", path="world.normalise")
