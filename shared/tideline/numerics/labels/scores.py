"""Scores of a classifier beside accuracy, each with a 95 % interval: of counts by class, of probabilities, and without labels.

A share has Wilson's interval (Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927).
Other scores have the bootstrap's percentiles over DRAWS resamples of the rows (Efron, "Bootstrap methods: another look at the
jackknife", Annals of Statistics 7, 1979), widened where need be to hold the score itself. Where an area under a curve has too
many rows and classes for that, its interval is the normal one by its influence function, to which the bootstrap tends (DeLong,
DeLong, Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic curves", Biometrics
44, 1988).

Shapes: n rows, K classes, B resamples. A class counts in a mean only where there are rows to judge it by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.numerics.labels.confidence import Tally, calibration_error

Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile
DRAWS = 200
MOST_CELLS = 1 << 20  # numbers that resamples of an area under a curve may take: B n K
SUM_OFF = 1e-3  # by how much the probabilities of a row may miss 1
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A score, its 95 % interval, and the number of rows that it is of."""

    value: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class ByClass:
    """Rows by class, (..., K) float64: predicted right, having the label, and predicted as that class."""

    right: Floats
    rows: Floats
    taken: Floats


def probabilities(out: Tensor) -> Tensor:
    """Probabilities (n, K) float64 of outputs, which are logits, logarithms of probabilities, or probabilities already.

    They are taken as probabilities where all are in [0, 1] and each row sums to 1. Rows with outputs that are no numbers: all 0.
    """
    p = out.double()
    return (p if are_probabilities(p) else p.softmax(1)).nan_to_num(0.0)


def are_probabilities(out: Tensor) -> bool:
    """Whether outputs (n, K) are probabilities already."""
    p = out.double()
    return bool(((p >= 0) & (p <= 1)).all()) and bool(((p.sum(1) - 1).abs() < SUM_OFF).all())


def share_right(out: Tensor, y: Tensor) -> float:
    """The share of rows whose largest output is their label: out (n, classes), y (n,), n > 0."""
    return int((out.argmax(1) == y).sum()) / len(y)


def confusion(guess: Tensor, y: Tensor, classes: int) -> Tensor:
    """Rows by label and prediction, (K, K) int64."""
    return torch.bincount(y * classes + guess, minlength=classes * classes).view(classes, classes)


def by_class(matrix: Tensor) -> Tensor:
    """Rows of each class that are predicted right, that have its label, and that are taken for it: (3, K)."""
    return torch.stack([matrix.diagonal(), matrix.sum(1), matrix.sum(0)])


def wilson(right: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; (0, 1) of no rows."""
    if n <= 0:
        return 0.0, 1.0
    p, z2 = right / n, Z95 * Z95
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return min(max(middle - half, 0.0), p), max(min(middle + half, 1.0), p)


def point(matrix: Tensor, name: str) -> float:
    """`accuracy`, `balanced_accuracy` or `macro_f1` of a confusion matrix (K, K) with at least one row, without an interval."""
    counts = ByClass(*by_class(matrix).double().numpy())
    if name == "accuracy":
        return float(counts.right.sum() / counts.rows.sum())
    return float(balanced_accuracy(counts) if name == "balanced_accuracy" else macro_f1(counts))


def share(right: float, n: float, rows: int | None = None) -> Score:
    """A share with Wilson's interval. rows: on how many it stands, where n counts each of them several times."""
    m = int(n) if rows is None else rows
    low, high = wilson(right * m / n, m)
    return Score(right / n, low, high, m)


def mean_where(values: Floats, there: NDArray[np.bool_]) -> Floats:
    """The means over the last axis of what is there; 0 where nothing is."""
    total = np.where(there, values, 0.0).sum(-1)
    return np.asarray(total / np.maximum(there.sum(-1), 1), np.float64)


def balanced_accuracy(counts: ByClass) -> Floats:
    """The mean recall over the classes that have rows, (...)."""
    return mean_where(counts.right / np.maximum(counts.rows, 1e-300), counts.rows > 0)


def macro_f1(counts: ByClass) -> Floats:
    """The mean of 2 right / (rows + taken) over the classes that some row has, or is taken for, (...)."""
    either = counts.rows + counts.taken
    return mean_where(2 * counts.right / np.maximum(either, 1e-300), either > 0)


def around(value: float, draws: Floats, rows: int) -> Score:
    """A score with the percentiles of its resamples; those that are no number do not count."""
    sound = draws[np.isfinite(draws)]
    low, high = np.percentile(sound, (2.5, 97.5)) if sound.size else (value, value)
    return Score(value, min(float(low), value), max(float(high), value), rows)


def counted(matrix: Tensor, rows: int, seed: int) -> dict[str, Score]:
    """`accuracy`, `balanced_accuracy` and `macro_f1` of a confusion matrix (K, K) with at least one row.

    rows: on how many rows it stands, fewer than it counts where several models were scored on each.
    """
    i, j = np.nonzero(matrix.numpy())
    n = matrix.numpy()[i, j].astype(np.float64)
    classes, rng = matrix.shape[0], np.random.RandomState(seed % 2**32)
    drawn = rng.multinomial(rows, n / n.sum(), size=DRAWS).astype(np.float64)
    sums = [np.zeros((DRAWS, classes)) for _ in range(3)]
    for into, at, cells in zip(sums, (i, i, j), (i == j, slice(None), slice(None)), strict=True):
        np.add.at(into.T, at[cells], drawn.T[cells])
    return scored(by_class(matrix), rows, ByClass(*sums))


def counted_by_class(counts: Tensor, rows: int, seed: int) -> dict[str, Score]:
    """The same of rows by class (3, K) alone, see `by_class`: resampled class by class."""
    right, of, taken = counts.double().numpy()
    scale, rng = rows / of.sum(), np.random.RandomState(seed % 2**32)
    size, others = np.rint(of * scale).astype(np.int64), np.rint((of.sum() - of) * scale).astype(np.int64)
    hits = rng.binomial(size, right / np.maximum(of, 1), size=(DRAWS, len(of)))
    misses = rng.binomial(others, np.clip((taken - right) / np.maximum(of.sum() - of, 1), 0, 1), size=(DRAWS, len(of)))
    whole = np.broadcast_to(size, hits.shape)
    return scored(counts, rows, ByClass(*(each.astype(np.float64) for each in (hits, whole, hits + misses))))


def scored(counts: Tensor, rows: int, resampled: ByClass) -> dict[str, Score]:
    right, of, taken = counts.double().numpy()
    found = ByClass(right, of, taken)
    return {
        "accuracy": share(float(right.sum()), float(of.sum()), rows),
        "balanced_accuracy": around(float(balanced_accuracy(found)), balanced_accuracy(resampled), rows),
        "macro_f1": around(float(macro_f1(found)), macro_f1(resampled), rows),
    }


@dataclass(frozen=True)
class Order:
    """Rows in the order of their probability of each class. All (K', n), for the classes that some rows have and others do not.

    at      the row at each place
    first   how many rows have less than the row at a place; last: how many have no more
    of      whether the row at a place is of the class
    """

    at: Tensor
    first: Tensor
    last: Tensor
    of: Tensor


def ordered(p: Tensor, y: Tensor) -> Order | None:
    """Of probabilities (n, K), and labels (n,); None where no class has rows both in it and out of it."""
    n = len(y)
    count = torch.bincount(y, minlength=p.shape[1])
    judged = ((count > 0) & (count < n)).nonzero().flatten()
    if not len(judged):
        return None
    value, at = p[:, judged].mT.contiguous().sort(dim=1)
    first, last = (torch.searchsorted(value, value, right=right) for right in (False, True))
    return Order(at, first, last, y[at] == judged[:, None])


def areas(o: Order, weight: Tensor) -> Tensor:
    """The mean area under the curves of the classes by rows' weights (B, n): (B,), NaN where no class has both sides.

    The chance that a row of the class has a higher probability of it than a row of another, where ties count half.
    """
    w = weight[:, o.at]  # (B, K', n)
    others = torch.nn.functional.pad((w * ~o.of).cumsum(2), (1, 0))
    below = (others.gather(2, o.first.expand_as(w)) + others.gather(2, o.last.expand_as(w))) / 2
    pairs = (w * o.of).sum(2) * others[..., -1]
    area = (w * o.of * below).sum(2) / pairs.where(pairs > 0, torch.nan)
    return area.nanmean(1)


def auroc(p: Tensor, y: Tensor) -> float | None:
    """The area under the receiver operating characteristic of each class against the rest, their plain mean (`Order`)."""
    o = ordered(p, y)
    return None if o is None else float(areas(o, torch.ones(1, len(y), dtype=torch.float64)))


def auroc_score(p: Tensor, y: Tensor, seed: int) -> Score | None:
    """`auroc` with its interval: resampled, or by the influence function where that would take too many numbers."""
    o, n = ordered(p, y), len(y)
    if o is None:
        return None
    value = float(areas(o, torch.ones(1, n, dtype=torch.float64)))
    if DRAWS * o.at.numel() > MOST_CELLS:
        half = Z95 * spread(o, n)
        return Score(value, max(value - half, 0.0), min(value + half, 1.0), n)
    weight = np.random.RandomState(seed % 2**32).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    return around(value, areas(o, torch.from_numpy(weight).double()).numpy(), n)


def spread(o: Order, n: int) -> float:
    """The standard error of the mean area: of each row, its influence on the areas of all classes together."""
    of = o.of.double()
    positives = of.sum(1, keepdim=True)
    sides = []
    for side in (1 - of, of):
        total = torch.nn.functional.pad(side.cumsum(1), (1, 0))
        sides.append((total.gather(1, o.first) + total.gather(1, o.last)) / 2)
    wins = sides[0] / (n - positives)  # the share of the others that a row of the class is above
    area = (wins * of).sum(1, keepdim=True) / positives
    losses = 1 - sides[1] / positives
    each = torch.where(o.of, (wins - area) / positives, (losses - area) / (n - positives))
    rows = torch.zeros(n, dtype=torch.float64).index_add_(0, o.at.flatten(), each.flatten()) / len(o.at)
    return float(rows.square().sum().sqrt())


def calibration_score(t: Tally, seed: int) -> Score:
    """The calibration error with its interval: rows are resampled by bin, with their bin's mean confidence."""
    right, wrong, confidence = (each.double().numpy() for each in (t.right, t.wrong, t.confidence))
    cells, per_bin = np.concatenate([right, wrong]), right + wrong
    n = int(cells.sum())
    drawn = np.random.RandomState(seed % 2**32).multinomial(n, cells / n, size=DRAWS)
    hits, misses = drawn[:, : len(right)], drawn[:, len(right) :]
    off = np.abs(hits - confidence / np.maximum(per_bin, 1) * (hits + misses)).sum(1) / n
    return around(calibration_error(t), off.astype(np.float64), n)


def entropy(p: Tensor) -> float:
    """The mean entropy of rows' probabilities (n, K) in units of log K: 0 where all are sure, 1 where none is. No labels."""
    return float(torch.special.entr(p).sum(1).mean()) / math.log(p.shape[1])


def information(p: Tensor) -> float:
    """How much predictions tell of their rows: the entropy of the mean prediction less the mean entropy, in units of log K.

    Near 1 where rows are sure and classes are alike in number; 0 where all rows are taken for the same. No labels.
    """
    return float(torch.special.entr(p.mean(0)).sum()) / math.log(p.shape[1]) - entropy(p)
