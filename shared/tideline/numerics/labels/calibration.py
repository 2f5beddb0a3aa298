"""How far a model's confidence can be believed: the histogram of right and wrong predictions, and the calibration error.

Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017 (eq. 5).

Shapes: n rows, K classes, B = BINS bins of equal width over [0, 1]. A row's confidence is the probability of the class that is
predicted; bin b holds those in (b / B, (b + 1) / B].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 20


@dataclass(frozen=True)
class Tally:
    """Of each bin: rows predicted right (B,) and wrong (B,), int64, and the sum of their confidences (B,), float64."""

    right: Tensor
    wrong: Tensor
    confidence: Tensor

    def __add__(self, other: Tally) -> Tally:
        """The tally of both sets of rows."""
        return Tally(self.right + other.right, self.wrong + other.wrong, self.confidence + other.confidence)


def nothing() -> Tally:
    """The tally of no row."""
    none = torch.zeros(BINS, dtype=torch.int64)
    return Tally(none, none, none.double())


def tally(logits: Tensor, y: Tensor) -> Tally:
    """Of rows with logits, or logarithms of probabilities, (n, K) and labels (n,). Outputs that are no numbers: confidence 0."""
    confidence, guess = logits.double().softmax(1).max(1)
    confidence = confidence.nan_to_num(0.0)
    place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    right = guess == y
    return Tally(
        torch.bincount(place[right], minlength=BINS),
        torch.bincount(place[~right], minlength=BINS),
        torch.bincount(place, weights=confidence, minlength=BINS),
    )


def calibration_error(t: Tally) -> float:
    """sum_b (n_b / n) |acc(b) - conf(b)|, in [0, 1]. Raises ValueError for no row."""
    n = int((t.right + t.wrong).sum())
    if not n:
        raise ValueError("The calibration error of no row does not exist")
    return float((t.right - t.confidence).abs().sum()) / n
