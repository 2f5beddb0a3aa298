"""The sums of a run that protects rows: over rows shortened to `privacy.clip`, with noise on each number, in one charge.

A row changes the counts by 1, the sums of its class by its norm, and the products by its norm squared: each pair of two features
stands for both of its places in the matrix, so it counts sqrt(2) times.

Where units are protected, the mean over a unit's rows is in the sums, so that it changes them no more than a row does. A mean is
cut to whole numbers of a finer grid, towards zero: that makes no norm longer, and keeps sums exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from tideline import nets
from tideline.algorithms.gaussian_heads.projecting import projected
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.rows import Rows
from tideline.core.settings import Settings
from tideline.core.step import Site
from tideline.learning.loading.ahead import in_parts
from tideline.learning.private.releasing import REACH, release, whole_rows
from tideline.learning.private.units import Units, units_in
from tideline.numerics.labels import gaussian_heads as numerics
from tideline.numerics.labels.gaussian_heads import ClassSums

FINER = (1 << 20, 1 << 10)  # steps that a unit's mean of counts, and of sums by class, has in the place of one


def spends(config: Settings, privacy: Privacy) -> tuple[Charge, ...]:
    """One vector over all rows; before a run's noise is known, nothing."""
    return (Charge(privacy.noise),) if privacy.noise else ()


def noised(site: Site[Any], meter: Meter, least_rows: int, P: Tensor | None = None) -> ClassSums:
    """Sums of a site's rows, on the directions P. Of a class whose noised count is below least_rows nothing is told by class."""
    clip, y, K, d = meter.asked.clip, site.data.y, site.world.classes, nets.width(site.world) if P is None else P.shape[1]
    assert y is not None, "only labelled sites are asked"
    rows, columns, weight = twice(d)
    units = units_in(site.data, meter.asked)
    found, done, fine = numerics.no_sums(K, d), 0, (1, 1) if units is None else FINER
    for x, own in by_row(site.data.x, y) if units is None else by_unit(site.data.x, y, units):
        done += len(own)
        sums = numerics.class_sums(whole_rows(projected(x.flatten(1), P), clip), own, K)
        found += sums if units is None else mean_of(sums, len(own))
        site.tick(done / len(y))
    pairs = found.second[rows, columns] * weight
    sensitivities = [(found.count, fine[0]), (found.total, REACH * fine[1]), (pairs, REACH**2)]
    count, total, second = release(sensitivities, meter, by_unit=True)
    count, step = count / fine[0], clip / REACH
    there = count >= least_rows
    return ClassSums(count * there, total * there[:, None] * (step / fine[1]), second / weight * step**2)


def by_row(x: Rows, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """All rows with their labels, some at a time."""
    done = 0
    for part in in_parts(x):
        yield part, y[done : done + len(part)]
        done += len(part)


def by_unit(x: Rows, y: Tensor, units: Units) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows of each unit with their labels, all of one at once."""
    for unit in range(len(units)):
        rows = units.rows(unit)
        yield torch.cat(list(in_parts(x.at(rows)))), y[rows]


def mean_of(sums: ClassSums, n: int) -> ClassSums:
    """The means over n rows of sums of whole numbers, as whole numbers of finer steps."""
    count, total = (each * finer / n for each, finer in zip((sums.count, sums.total), FINER, strict=True))
    return ClassSums(count.trunc(), total.trunc(), (sums.second / n).trunc())


def twice(d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of the upper triangle of a matrix (d, d), and the root of how many places each stands for."""
    rows, columns = torch.triu_indices(d, d)
    return rows, columns, torch.where(rows == columns, 1.0, sqrt(2)).double()
