"""How sure a classifier is, and how far to trust it: calibration, sure pseudo-labels, density of outputs, evidence of
neighbours.

Calibration error: Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017 (eq. 5). Soft
neighbourhood density, how good a classifier is as seen from its outputs on data without labels: Saito, Kim, Teterwak, Sclaroff,
Darrell, Saenko, "Tune it the Right Way: Unsupervised Validation of Domain Adaptation via Soft Neighborhood Density", ICCV 2021;
equations 5 and 6 of Mori et al., appendix B.2.

Shapes: n rows, K, M or c classes, B = BINS bins of equal width over [0, 1]. A row's confidence is the probability of the class
that is predicted; bin b holds those in (b / B, (b + 1) / B].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tideline.numerics.clustering.cosine import unit

BINS = 20
NONE = -1
ROWS = 1024  # rows compared with all others at once


@dataclass(frozen=True)
class Tally:
    """Of each bin: rows predicted right (B,) and wrong (B,), int64, and the sum of their confidences (B,), float64."""

    right: Tensor
    wrong: Tensor
    confidence: Tensor

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.right + other.right, self.wrong + other.wrong, self.confidence + other.confidence)


def nothing() -> Tally:
    none = torch.zeros(BINS, dtype=torch.int64)
    return Tally(none, none, none.double())


def tally(logits: Tensor, y: Tensor) -> Tally:
    """Of rows with logits, or logarithms of probabilities, (n, K) and labels (n,). Outputs that are no numbers: confidence 0."""
    confidence, guess = logits.double().softmax(1).max(1)
    return binned(confidence.nan_to_num(0.0), guess == y)


def binned(confidence: Tensor, right: Tensor) -> Tally:
    """Of rows' confidences (n,) float64 in [0, 1], and whether each is predicted right (n,)."""
    place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
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


def confident(p: Tensor, most: float = 0.9) -> Tensor:
    """Labels (n,) int64 of outputs p (n, M): the likeliest class where its probability exceeds the class's threshold, else -1.

    A class's threshold is min(most, the median of the likeliest probabilities of its rows), so that about half of an unsure
    class's rows have a label, and all of a sure one's. The median of an even number is the mean of the two in the middle; ties
    go to the smallest class. Raises ValueError unless p is a matrix of finite numbers with at least one row.
    """
    if p.ndim != 2 or not p.numel() or not bool(torch.isfinite(p).all()):
        raise ValueError(f"Outputs are of shape {tuple(p.shape)}; at least one row of finite numbers was expected")
    p = p.double()
    top = p.amax(1)
    labels = (p == top[:, None]).int().argmax(1)
    threshold = p.new_full((p.shape[1],), most)
    for m in sorted(set(labels.tolist())):
        threshold[m] = top[labels == m].quantile(0.5).clamp(max=most)
    return labels.where(top > threshold[labels], torch.full_like(labels, NONE))


def surest(confidence: Tensor, labels: Tensor, quantile: float = 0.5) -> Tensor:
    """Which rows (n,) bool are at least as sure as that quantile of the rows with the same label.

    confidence (n,), labels (n,) int64. The quantile of m rows is the (1 + floor(quantile (m - 1)))-th of them in order: 0 keeps
    all, 1 the surest, and every label that is there keeps one. A confidence that is no number is not sure.
    """
    ranked = confidence.argsort(stable=True)
    by_label = ranked[labels[ranked].argsort(stable=True)]
    size = torch.bincount(labels)
    at = size.cumsum(0) - size + (quantile * (size - 1).clamp(min=0)).long()
    least = confidence[by_label][at.clamp(max=max(len(labels) - 1, 0))]
    return confidence >= least[labels]


def soft_density(p: Tensor, temperature: float = 0.05, block: int = 1024) -> float:
    """S = - mean_i sum_j P_ij log P_ij with P = softmax(Q / T) by rows and Q_ij = cos(p_i, p_j), j != i (eq. 5-6).

    For softmax outputs p (n, c). Between 0 and log(n - 1), which n equal rows reach: a classifier that says the same of
    everything looks best (see `collapsed`). 0 for fewer than two rows. Time O(n^2), in float64; memory: a copy of p and tiles of
    block^2. Raises ValueError unless temperature and block are positive, and outputs a matrix of finite numbers.
    """
    if not temperature > 0 or block < 1:
        raise ValueError(f"The temperature is {temperature} and the block {block}; both are positive")
    if p.ndim != 2:
        raise ValueError(f"Outputs are of shape {tuple(p.shape)}; a row for each sample was expected")
    u = unit(p)
    if len(u) < 2:
        return 0.0
    total = sum(float(entropies(u, at, block, temperature).sum()) for at in range(0, len(u), block))
    return total / len(u)


def entropies(u: Tensor, at: int, block: int, temperature: float) -> Tensor:
    """The entropies of the rows of P from `at` on, (block,), of unit rows u (n, c), one tile of columns after the other.

    With x_j = (Q_ij - 1) / T the entropy is log sum_j e^x_j - sum_j x_j e^x_j / sum_j e^x_j. The sums are kept divided by
    e^top, where top is the largest x so far.
    """
    rows = u[at : at + block]
    top = u.new_full((len(rows), 1), -2 / temperature)
    mass, moment = torch.zeros_like(top), torch.zeros_like(top)
    for other in range(0, len(u), block):
        x = (rows @ u[other : other + block].mT).sub_(1).div_(temperature)
        if other == at:
            x.fill_diagonal_(-torch.inf)
        higher = torch.maximum(top, x.amax(1, keepdim=True))
        e = (x - higher).exp_()
        if other == at:
            x.fill_diagonal_(0)  # with e = 0 there: no 0 times infinity
        shrunk = (top - higher).exp_()
        mass = mass * shrunk + e.sum(1, keepdim=True)
        moment = moment * shrunk + x.mul_(e).sum(1, keepdim=True)
        top = higher
    return (top + mass.log() - moment / mass).flatten()


def collapsed(p: Tensor, share: float = 0.95) -> bool:
    """Whether more than that share of the rows of p (n, c) have the same class as their likeliest; never for no rows."""
    return bool(len(p)) and int(p.argmax(1).bincount().amax()) / len(p) > share


def neighbours(z: Tensor, k: int) -> Tensor:
    """The k nearest other rows of each row of z (n, d): (n, k) int64. With fewer than k + 1 rows, all the others."""
    k = min(k, len(z) - 1)
    found = []
    for at in range(0, len(z), ROWS):
        distance = torch.cdist(z[at : at + ROWS], z)
        distance[torch.arange(len(distance)), torch.arange(at, at + len(distance))] = torch.inf
        found.append(distance.topk(k, largest=False).indices)
    return torch.cat(found)


def consistency(labels: Tensor, near: Tensor) -> float:
    """The mean share of a row's neighbours near (n, k) that get its own label; labels (n,)."""
    return float((labels[near] == labels.unsqueeze(1)).double().mean()) if near.numel() else 0.0


def disagreement(a: Tensor, b: Tensor) -> float:
    """The share of rows that two classifiers label differently; labels (n,)."""
    return float((a != b).double().mean())


def evidence(adapted: Tensor, plain: Tensor, near: Tensor) -> float:
    """rho: by how much neighbours agree better after adaptation, in units of the share of labels that it changed; 0 if it changed
    none. Labels (n,), near (n, k)."""
    changed = disagreement(adapted, plain)
    return (consistency(adapted, near) - consistency(plain, near)) / changed if changed else 0.0
