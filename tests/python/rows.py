"""Rows of three classes that a small network learns, and sites of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tideline import Site

FAST: dict[str, Any] = {"method": "fedavg", "config": {"rounds": 2, "rate": 0.1}, "world": {"model": "mlp"}, "progress": False}


def rows(n: int = 60, seed: int = 0, width: int = 6) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, width, generator=rng) / 2
    x[torch.arange(n), y] += 2
    return x, y


def sites(**more: Any) -> dict[str, Site]:
    made = {"a": Site(train=rows()), "b": Site(train=rows(seed=1)), "c": Site(train=rows(seed=2), role="target")}
    return {**made, **more}


def build(world: Any, width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(world.inputs[0], width), nn.ReLU(), nn.Linear(width, world.classes))
