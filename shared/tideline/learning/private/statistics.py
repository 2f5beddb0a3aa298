"""Statistics of all rows of a site under noise, for methods that train as well: sums to which each row adds what is bounded.

A row adds to each sum a vector, of a norm that its `Bound` declares and `clip_to_grid` holds it to. Sums of whole numbers are
exact, so one row more changes each of them by its bound at most, whatever the arithmetic before it did. What a row adds may
depend on that row and on what everybody knows alone; a network must not look at the rows beside it, which `check_private` sees
to, and is given as many rows each time. Nothing reports progress: parts of a pass would tell how many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor

from tideline.core.asked.private import Charge, Meter, Privacy, together
from tideline.core.rows import part_size
from tideline.core.step import Site
from tideline.learning.loading.ahead import in_parts, moved
from tideline.learning.private.releasing import release
from tideline.learning.private.summing import clip_to_grid

WHOLE = 1 << 28  # steps of the grid that the bound of a row has: sums of 2^22 rows are not too large to be released
AT_ONCE = 256  # rows that pass through a network together, at most: always as many
HELD = 1 << 23  # numbers of what they add to sums
Found = TypeVar("Found")
Of = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Bound:
    """What a row adds to a sum at most: the norm of a vector of so many numbers. A longer one is shortened to it."""

    most: float
    numbers: int


def noise_of_sums(privacy: Privacy) -> float:
    """The noise of statistics, in their sensitivity: noise / sqrt(rate), with which they cost about what an epoch costs.

    An epoch is 1 / rate steps, each of which costs about (rate / noise)^2 of what one sum over all rows costs at noise 1.
    """
    assert privacy.noise is not None, "a run that has begun names its noise"
    return privacy.noise / sqrt(privacy.rate)


def statistics_spend(privacy: Privacy, times: int = 1) -> tuple[Charge, ...]:
    """What so many vectors of statistics cost; before a run's noise is known, none."""
    return (Charge(noise_of_sums(privacy), 1.0, times),) if privacy.noise else ()


def spend_rest(meter: Meter, said: Iterable[Charge]) -> None:
    """Charge what a step says that it spends and has not: orders differ in what they ask for, and all cost alike."""
    spent = {(each.noise, each.rate): each.times for each in together(meter.spent)}
    for each in together(said):
        if (times := each.times - spent.get((each.noise, each.rate), 0)) > 0:
            meter.spend(replace(each, times=times))


def statistics(site: Site[Any], meter: Meter, of: Of, bounds: Sequence[Bound]) -> list[Tensor]:
    """Sums over the site's training rows with Gaussian noise, float64, in one charge: for each bound (numbers,).

    of(x (m, *inputs)): what the rows add to each sum, (m, *shape) of `numbers` numbers. The noise of each sum has the standard
    deviation noise_of_sums * most * sqrt(len(bounds)).
    """
    sums = [torch.zeros(bound.numbers, dtype=torch.float64) for bound in bounds]
    for m, found in row_by_row(site, of, sum(bound.numbers for bound in bounds)):
        for total, part, bound in zip(sums, found, bounds, strict=True):
            total += bounded(part[:m], bound).sum(0)
    noised = release([(total, float(WHOLE)) for total in sums], meter, noise_of_sums(meter.asked))
    return [each * (bound.most / WHOLE) for each, bound in zip(noised, bounds, strict=True)]


def bounded(rows: Tensor, bound: Bound) -> Tensor:
    """What rows (m, *shape) add to a sum, (m, numbers): whole numbers of steps of most / WHOLE, of a norm of WHOLE at most."""
    made = rows.detach().cpu().double().reshape(len(rows), bound.numbers).clone()
    clip_to_grid(made, bound.most, WHOLE)
    return made


def row_by_row(site: Site[Any], of: Callable[[Tensor], Found], numbers: int = 1) -> Iterator[tuple[int, Found]]:
    """of(x (m, *inputs)) of all training rows in order, and how many of these rows there are: the last ones are filled up.

    So m is always the same, and how many rows there are has no part in the last digits of what a network says of each. numbers:
    that are found of a row, about.
    """
    x = site.data.x
    size = max(1, min(AT_ONCE, part_size(x.shape), HELD // numbers))
    for part in in_parts(x, size):
        if not len(part):
            break
        full = moved(part, site.device)[torch.arange(size).clamp(max=len(part) - 1)]
        with torch.no_grad():
            found = of(full)
        yield len(part), found


def each_row(site: Site[Any], of: Callable[[Tensor], Tensor]) -> Tensor:
    """of(x (m, *inputs)) -> (m, *shape), of all training rows: (n, *shape) on the processor. Nothing of it may leave."""
    found = [part[:m].cpu() for m, part in row_by_row(site, of)]
    return torch.cat(found) if found else of(torch.zeros(1, *site.data.x.shape, device=site.device))[:0].cpu()
