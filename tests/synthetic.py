"""A small domain shift with a known answer: one Gaussian cloud per class, turned and moved a little further in every domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.engine.simulation.federation import SimSite

CLASSES = 3
TRAIN, HELD_OUT = 41, 60  # an odd number of training rows, so that a tensor with a row per sample is easily spotted
FEATURES: Mapping[str, Any] = {"inputs": [8], "classes": CLASSES, "model": "mlp", "normalise": "none"}
IMAGES: Mapping[str, Any] = {"inputs": [1, 8, 8], "classes": CLASSES, "model": "lenet"}
NAMES = ("anna", "bert", "carl", "dora", "emil")


@dataclass(frozen=True)
class Rows:
    """A site's rows, already split. As an owner's own shelf does, it shows a target's training rows without labels."""

    train: Data
    held_out: Data

    def view(self, view: View, role: Role) -> Data:
        if view is View.HELD_OUT:
            return self.held_out
        return replace(self.train, y=None) if role is Role.TARGET else self.train


def centres(d: int) -> Tensor:
    """The classes' centres (CLASSES, d): far apart against the clouds' width of 1, so that the best accuracy is near 1."""
    return 5.0 * torch.eye(CLASSES, d)


def turned(x: Tensor, angle: float) -> Tensor:
    """x (n, d) turned by an angle in the plane of the first two axes."""
    sin, cos = torch.sin(torch.tensor(angle)), torch.cos(torch.tensor(angle))
    plane = torch.stack([x[:, 0] * cos - x[:, 1] * sin, x[:, 0] * sin + x[:, 1] * cos], 1)
    return torch.cat([plane, x[:, 2:]], 1)


def blobs(n: int, domain: int, seed: int, inputs: tuple[int, ...] = (8,)) -> Data:
    """n rows of one domain: drawn round the centres, turned by 0.2 rad and moved by 0.3 for each step of the domain."""
    d = int(torch.tensor(inputs).prod())
    rng = torch.Generator().manual_seed(1000 * seed + domain)
    y = torch.arange(n) % CLASSES
    x = turned(centres(d)[y] + torch.randn(n, d, generator=rng), 0.2 * domain) + 0.3 * domain
    return Data(MemoryRows(x.view(n, *inputs)), y, torch.zeros(n, dtype=torch.int64), (f"domain-{domain}",))


def rows(domain: int, world: World, seed: int = 0) -> Rows:
    """One site of one domain."""
    return Rows(blobs(TRAIN, domain, 2 * seed, world.inputs), blobs(HELD_OUT, domain, 2 * seed + 1, world.inputs))


@dataclass(frozen=True)
class Opener:
    """How a simulated site opens its data, in whichever process."""

    domain: int
    seed: int

    def __call__(self, world: World, role: Role) -> Rows:
        return rows(self.domain, world, self.seed)


def opener(domain: int, seed: int = 0) -> Callable[[World, Role], Rows]:
    """How a simulated site opens its data."""
    return Opener(domain, seed)


def sites(names: tuple[str, ...] = NAMES[:3], seed: int = 0) -> dict[str, SimSite]:
    """Simulated sites, a domain each."""
    return {name: SimSite(opener(i, seed)) for i, name in enumerate(names)}


def experiment(method: str, roster: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """An experiment over features, with the preset `tiny`."""
    given = {"method": method, "preset": "tiny", "world": dict(FEATURES), "roster": dict(roster), "seed": 7}
    return given | more
