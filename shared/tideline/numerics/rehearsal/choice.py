"""Candidates of adaptation weighed by what they gained where they were rehearsed.

Shapes: s sites at which was rehearsed, m candidates; the first candidate is no adaptation, whose gain is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

VOTE, MEAN, BOUND, SIMILAR = RULES = ("vote", "mean", "bound", "similar")
SOFTNESS = 0.02  # tau, in accuracy: a candidate that gained so much less weighs 1 / e


def mean_gains(gains: Tensor, likeness: Tensor) -> Tensor:
    """(m,): the gains (s, m) of rehearsals, weighed by likeness (s,)."""
    return likeness.double() @ gains.double()


def vote(gains: Tensor, likeness: Tensor, softness: float = SOFTNESS) -> Tensor:
    """The weight of each candidate's predictions (m,), summing to one, from gains (s, m) of rehearsals.

    Candidates that gained nothing on average have none. The others, and no adaptation, have exp(mean gain / softness): a clear
    winner decides alone, and where gains are small the vote is a mean of all that helped.
    """
    score = mean_gains(gains, likeness)
    helps = score > 0
    helps[0] = True
    w = torch.where(helps, ((score - score[helps].max()) / softness).exp(), torch.zeros_like(score))
    return w / w.sum()


def best(gains: Tensor, likeness: Tensor, errors: float = 0.0) -> int:
    """The candidate that gained most on average, less so many standard errors over sites; 0, no adaptation, where none gained."""
    score = mean_gains(gains, likeness)
    if errors and len(gains) > 1:
        score = score - errors * gains.double().std(0) / len(gains) ** 0.5
    at = int(score.argmax())
    return at if float(score[at]) > 0 else 0


def weights(rule: str, gains: Tensor, likeness: Tensor) -> Tensor:
    """The weight of each candidate's predictions (m,), summing to one, by a rule of RULES; all on the first without a rehearsal.

    likeness: how alike the target's shift is to that at each site, of which the rule `similar` alone makes use.
    """
    m = gains.shape[1]
    alike = torch.full((len(gains),), 1 / max(len(gains), 1), dtype=torch.float64) if rule != SIMILAR else likeness
    if not len(gains):
        return one_hot(0, m)
    return vote(gains, alike) if rule == VOTE else one_hot(best(gains, alike, errors=float(rule == BOUND)), m)


def one_hot(at: int, m: int) -> Tensor:
    made = torch.zeros(m, dtype=torch.float64)
    made[at] = 1
    return made
