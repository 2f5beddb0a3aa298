"""Weights that are drawn where nobody else draws: torch's global generator is one for all threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from tideline import nets
from tideline.core.asked.world import World
from tideline.learning.backbones import fresh
from tideline.nets import registry


def held_elsewhere() -> bool:
    """Whether another thread would have to wait before it draws."""
    free = list[bool]()

    def look() -> None:
        free.append(nets.DRAWING.acquire(blocking=False))
        if free[0]:
            nets.DRAWING.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return not free[0]


@pytest.mark.parametrize("seed", [None, 3])
def test_nobody_else_draws_meanwhile(seed: int | None) -> None:
    """Two simulations in two threads of a program have the numbers of their own seeds."""
    held = list[bool]()

    def build(world: World) -> nn.Module:
        held.append(held_elsewhere())
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, world.classes))

    with registry.beside({"mine": build}):
        made: dict[str, Any] = fresh(World(inputs=(4,), classes=2, model="mine"), seed)
    assert len(made) == 4 and all(isinstance(w, torch.Tensor) for w in made.values())
    assert len(held) > 1 and all(held)
