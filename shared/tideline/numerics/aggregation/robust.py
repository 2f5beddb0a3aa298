"""Folds of N updates that a few wrong ones cannot lead far astray: clipping, median, trimmed mean, Krum and multi-Krum.

An update w_i is a mapping of names to tensors, the same names, shapes and dtypes for all; updates come by the name of their
sender and are read in the order of these names, so that the order of arrival changes no bit. f is how many of the N may be
anything at all. Krum: Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017. Median and trimmed mean by coordinates: Yin, Chen,
Ramchandran, Bartlett, ICML 2018. Norm bounding: Sun, Kairouz, Suresh, McMahan, 2019.

Memory: updates that are mapped files stay on disk. Median, trimmed mean and Krum read BLOCK numbers of all updates at once,
clipping at one update at a time; beside that there is the result. Open are all updates at once, but for clipping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.numerics.aggregation.averaging import weighted_sum

Weights = Mapping[str, Tensor]
Sender = TypeVar("Sender", bound=str)
Updates: TypeAlias = Mapping[Sender, Weights]
Rows = NDArray[Any]  # of any dtype that fields have

BLOCK = 1 << 22  # numbers of all updates together that are read at once


def least(rule: str, f: int) -> int:
    """How many updates a rule needs when f may be wrong: a majority of right ones; for Krum 2 more. KeyError for others."""
    return {"median": 2 * f + 1, "trimmed_mean": 2 * f + 1, "krum": 2 * f + 3, "multi_krum": 2 * f + 3}[rule]


def need(rule: str, updates: Updates[Sender], f: int) -> None:
    """Raises ValueError where there are too few updates for f wrong ones."""
    if f < 0 or len(updates) < max(1, least(rule, f)):
        raise ValueError(f"{rule} needs {max(1, least(rule, f))} updates for {f} wrong ones; there are {len(updates)}")


def median(updates: Updates[Sender], f: int = 0) -> dict[str, Tensor]:
    """The middle of the N values of each coordinate; for even N halfway between the two in the middle.

    With N >= 2 f + 1 it lies between the least and the largest value of the right updates. Whole numbers take the lower of the
    two. O(N log N) for each coordinate. Raises ValueError for fewer updates.
    """
    need("median", updates, f)
    low, high = (len(updates) - 1) // 2, len(updates) // 2
    return by_coordinates(updates, lambda rows: halfway(rows[low], rows[high]))


def trimmed_mean(updates: Updates[Sender], f: int) -> dict[str, Tensor]:
    """The mean of the values of each coordinate without the f least and the f largest of them.

    With N >= 2 f + 1 it lies between the least and the largest value of the right updates. f = 0 is the plain mean; equal
    values give themselves, bit for bit. Whole numbers take the lower median. Raises ValueError for fewer updates.
    """
    need("trimmed_mean", updates, f)
    return by_coordinates(updates, lambda rows: sorted_mean(rows[f : len(rows) - f]))


def krum(updates: Updates[Sender], f: int) -> Sender:
    """Whose update has the least Krum score: of the senders, one. Raises ValueError for fewer than 2 f + 3 updates."""
    return nearest(updates, f, 1, "krum")[0]


def multi_krum(updates: Updates[Sender], f: int) -> tuple[Sender, ...]:
    """The m = N - f - 2 senders with the least Krum scores, sorted by name; the fold is the plain mean of their updates.

    m as in Damaskinos, El Mhamdi, Guerraoui, Guirguis, Rouault, MLSys 2019. Raises ValueError for fewer than 2 f + 3 updates.
    """
    return nearest(updates, f, len(updates) - f - 2, "multi_krum")


def nearest(updates: Updates[Sender], f: int, m: int, rule: str) -> tuple[Sender, ...]:
    """The m senders with the least scores, sorted by name; of equal scores the first name's. Raises ValueError."""
    need(rule, updates, f)
    names = sorted(updates)
    scores = krum_scores(squared_distances([updates[name] for name in names]), f)
    best = sorted(range(len(names)), key=lambda i: (float(scores[i]), i))[:m]
    return tuple(names[i] for i in sorted(best))


def krum_scores(distances: Tensor, f: int) -> Tensor:
    """s_i = the sum of |w_i - w_j|^2 over the N - f - 2 updates j that lie nearest to i. distances (N, N), squared; s (N,)."""
    others = distances.clone().fill_diagonal_(math.inf)
    return others.sort(dim=1).values[:, : len(distances) - f - 2].sum(dim=1)


def squared_distances(updates: Sequence[Weights]) -> Tensor:
    """|w_i - w_j|^2 over all floating coordinates, of all pairs, in float64: (N, N). O(N^2) for each coordinate."""
    total = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for _, _, rows in blocks(updates, floating=True):
        block = torch.from_numpy(rows.astype(np.float64))
        for i in range(len(block)):
            for j in range(i):
                total[i, j] += (block[i] - block[j]).square_().sum()
    return total + total.T


def distance(start: Weights, update: Weights) -> float:
    """|w_i - w| over all floating coordinates, in float64."""
    total = 0.0
    for w, v in ((start[name], update[name]) for name in start if start[name].is_floating_point()):
        for at in range(0, w.numel(), BLOCK):
            total += float((flat(v)[at : at + BLOCK].double() - flat(w)[at : at + BLOCK].double()).square_().sum())
    return math.sqrt(total)


def clip(
    start: Weights, updates: Updates[Sender], shares: Mapping[Sender, float], bound: float = 0.0
) -> tuple[dict[str, Tensor], dict[Sender, float]]:
    """w + sum_i a_i c_i (w_i - w), and the c_i by sender. shares: the a_i, which sum to one.

    c_i = min(1, M / |w_i - w|), M = `bound`; 0 stands for the lower median of the norms, which fewer than half of the updates
    cannot move out of the others' range. If no update is shortened: sum_i a_i w_i, bit for bit.
    Whole numbers have no length and take the lower median. Each update is read twice. Raises ValueError without updates.
    """
    if not updates:
        raise ValueError("clip needs 1 update; there are 0")
    names = sorted(updates)
    norms = {name: distance(start, updates[name]) for name in names}
    most = bound or sorted(norms.values())[(len(norms) - 1) // 2]
    factors = {name: 1.0 if norm <= most else most / norm for name, norm in norms.items()}
    rest = sum(shares[name] * (1.0 - factors[name]) for name in names)  # the start's share, if updates are shortened
    terms = ((shares[n] * factors[n], updates[n]) for n in names)
    total = weighted_sum(chain(terms, [(rest, start)] if rest else []))
    whole = [name for name, w in start.items() if not w.is_floating_point()]
    counters = median({sender: {name: updates[sender][name] for name in whole} for sender in updates}) if whole else {}
    return total | counters, factors


def by_coordinates(updates: Updates[Sender], fold: Callable[[Rows], Rows]) -> dict[str, Tensor]:
    """A fold of the sorted values of each coordinate: rows (N, b) in rising order to (b,). Whole numbers: the lower median."""
    opened = [updates[name] for name in sorted(updates)]
    folded = {name: torch.empty(w.shape, dtype=w.dtype) for name, w in opened[0].items()}
    for name, at, rows in blocks(opened):
        rows.sort(axis=0)
        values = fold(rows) if opened[0][name].is_floating_point() else rows[(len(rows) - 1) // 2]
        folded[name].view(-1)[at : at + len(values)] = torch.from_numpy(np.ascontiguousarray(values))
    return folded


def blocks(updates: Sequence[Weights], floating: bool = False) -> Iterator[tuple[str, int, Rows]]:
    """Field by field, piece by piece: a name, where in the field, and the values of all updates there (N, b).

    Values are as wide as their field or wider, so that nothing is lost. Raises ValueError where updates differ in their fields.
    """
    first, size = updates[0], max(1, BLOCK // len(updates))
    for name, w in first.items():
        if any(u.keys() != first.keys() or u[name].shape != w.shape or u[name].dtype != w.dtype for u in updates):
            raise ValueError(f"Updates differ in the names, shapes or dtypes of their fields at {name}")
        if w.is_floating_point() or not floating:
            fields = [flat(u[name]) for u in updates]
            for at in range(0, w.numel(), size):
                yield name, at, np.stack([wide(f[at : at + size]) for f in fields])


def flat(w: Tensor) -> Tensor:
    """A tensor's coordinates in a row, without a copy where they lie in one."""
    return w.detach().reshape(-1)


def wide(w: Tensor) -> Rows:
    """Values in a dtype that NumPy sorts. Zeros have no sign: which of two equal values comes first must not show."""
    if not w.is_floating_point():
        return w.to(torch.int64).numpy()
    return (w.to(torch.promote_types(w.dtype, torch.float32)) + 0.0).numpy()


def halfway(a: Rows, b: Rows) -> Rows:
    """(a + b) / 2 without overflow; equal values give themselves."""
    return np.where(a == b, a, a / 2 + b / 2)


def sorted_mean(rows: Rows) -> Rows:
    """The mean of sorted rows (n, b), summed in float64 from the least on: equal values give themselves."""
    base, last = rows[0].astype(np.float64), rows[-1].astype(np.float64)
    mean: Rows = base + (rows - base).sum(axis=0) / len(rows)
    return np.clip(mean, base, last)
