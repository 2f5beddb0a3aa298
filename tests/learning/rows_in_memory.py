"""Rows in memory, and a site that holds them, for tests of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site


def data_of(x: Tensor, y: Tensor | Sequence[int] | None = None, **more: Any) -> Data:
    """Return rows of one domain, `d`, with labels or without."""
    labels = None if y is None else torch.as_tensor(y)
    return Data(MemoryRows(x), labels, torch.zeros(len(x), dtype=torch.int64), ("d",), **more)


def site_of(data: Data | None, world: World, role: Role = Role.TARGET, **more: Any) -> Site[Any]:
    """Return what a step gets at the site `anna` of these rows."""
    return Site(None, world, ClientId("anna"), role, data, 1, torch.Generator().manual_seed(0), **more)  # type: ignore[arg-type]
