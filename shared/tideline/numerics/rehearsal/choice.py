"""Candidates of adaptation weighed by what they gained where they were rehearsed.

Shapes: s sites at which was rehearsed, m candidates; the first candidate is no adaptation, whose gain is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

SOFTNESS = 0.02  # tau, in accuracy: a candidate that gained so much less weighs 1 / e


def mean_gains(gains: Tensor, likeness: Tensor) -> Tensor:
    """(m,): the gains (s, m) of rehearsals, weighed by likeness (s,)."""
    return likeness.double() @ gains.double()


def vote(gains: Tensor, likeness: Tensor, softness: float = SOFTNESS) -> Tensor:
    """The weight of each candidate's predictions (m,), summing to one, from gains (s, m) of rehearsals.

    Candidates that lost on average have none. The others, no adaptation among them, have exp(mean gain / softness): a clear
    winner decides alone, and where gains are small the vote is a mean of all that did no harm.
    """
    score = mean_gains(gains, likeness)
    w = torch.where(score >= 0, ((score - score.max()) / softness).exp(), torch.zeros_like(score))
    return w / w.sum()


def best(gains: Tensor, likeness: Tensor) -> int:
    """The candidate that gained most on average; 0, no adaptation, where none gained."""
    score = mean_gains(gains, likeness)
    at = int(score.argmax())
    return at if float(score[at]) > 0 else 0
