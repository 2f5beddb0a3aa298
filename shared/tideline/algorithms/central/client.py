"""Central training at a site: its labelled training rows leave it, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tideline.algorithms.central.messages import Rows
from tideline.core.record import Nothing
from tideline.core.step import Outcome, Site, step

if TYPE_CHECKING:
    from tideline.algorithms.central import Central


@step(metrics=("samples",))
def pool(order: Nothing, memory: Nothing, site: Site[Central]) -> Outcome[Rows, Nothing]:
    """The rows with their labels; of more than `most_rows`, as many, drawn at random. Held-out rows stay."""
    c: Central = site.config
    x, y = site.data.x, site.data.y
    assert y is not None, "only labelled sites are asked"
    if len(x) > c.most_rows:
        chosen = torch.randperm(len(x), generator=site.rng)[: c.most_rows]
        x, y = x[chosen], y[chosen]
    return Outcome(Rows(x.float().flatten(1), y), memory, {"samples": len(y)})
