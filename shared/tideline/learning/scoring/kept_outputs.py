"""What a target keeps of a run's last scoring: its predictions for rows whose labels no step saw. They stay where the rows are.

A later run of the same site's labels may compare them (`tideline.learning.rehearsal`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from tideline.core.record import field, record
from tideline.core.rows import Rows
from tideline.core.step import Data, Site
from tideline.learning.scoring.telling import on

C = TypeVar("C")
MOST_ROWS, MOST_VALUES = 20_000, 1 << 24  # of one side: more rows would tell little more


@record
class Outputs:
    """Logarithms of probabilities, float16, of `chosen` rows: training ones and held-out ones."""

    training: Tensor = field("n classes")
    held_out: Tensor = field("h classes")


def kept_outputs(site: Site[C], predict: Callable[[Site[C]], Tensor | None]) -> Outputs | None:
    """What predict(site) makes of the site's training rows and held-out ones; None where it is no target, or has no model.

    predict: outputs (n, classes) of the rows in `site.data`, which come without labels; None where there is nothing to predict
    with, or no row.
    """
    if site.training is None:
        return None
    sides = [predict(on(site, unlabelled(site, rows))) for rows in (site.training, site.data.x)]
    empty = torch.empty(0, site.world.classes)
    if all(side is None for side in sides):
        return None
    return Outputs(*(empty.half() if side is None else side.float().log_softmax(1).half() for side in sides))


def unlabelled(site: Site[C], rows: Rows) -> Data:
    """The chosen ones of some rows."""
    chosen = choose(len(rows), site.world.classes)
    return replace(site.data, x=rows.at(chosen), y=None, domain=torch.zeros(len(chosen), dtype=torch.int64), bare=None)


def choose(n: int, classes: int) -> Tensor:
    """Which of n rows are kept: all, or as many as there is room for, evenly spread; (k,) int64, sorted."""
    most = max(min(n, MOST_ROWS, MOST_VALUES // classes), 1)
    return torch.arange(n) if n <= most else torch.linspace(0, n - 1, most, dtype=torch.float64).long()


def mean_of(outs: Sequence[Tensor]) -> Tensor:
    """The mean probabilities of several models' outputs (n, classes), as logarithms; of one its outputs as they are."""
    if len(outs) == 1:
        return outs[0]
    p = torch.stack([out.float().softmax(1) for out in outs]).mean(0)
    return p.clamp_min(torch.finfo(torch.float32).tiny).log()
