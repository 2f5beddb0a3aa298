"""Rows of a world to try a network with: n of *inputs, numbers or token ids."""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.rows import dtype_of


def blank(world: World, n: int = 2, device: torch.device | str | None = None) -> Tensor:
    """Rows of zeros (n, *inputs), of a device, or of torch's current one."""
    return torch.zeros((n, *world.inputs), dtype=dtype_of(world), device=device)


def drawn(world: World, n: int, seed: int) -> Tensor:
    """Rows (n, *inputs) on the CPU, the same everywhere: numbers in [-1, 1), or token ids."""
    rng = torch.Generator().manual_seed(seed)
    if world.tokens:
        return torch.randint(world.vocabulary, (n, *world.inputs), generator=rng, device="cpu")
    return torch.rand((n, *world.inputs), generator=rng, device="cpu") * 2 - 1
