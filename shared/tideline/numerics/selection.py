"""Which of several classifiers to trust where no label is known: what their guesses alone tell."""

from __future__ import annotations

import torch
from torch import Tensor

RULES = ("density", "information", "entropy")
TEMPERATURE = 0.05  # of the neighbourhoods' softmax, as in Saito et al., ICCV 2021
ROWS = 1024


def merit(rule: str, guess: Tensor, z: Tensor) -> float:
    """What probabilities (n, n_c) of rows with features z (n, d) are worth by a rule; larger is better. Raises ValueError."""
    if rule not in RULES:
        raise ValueError(f"The rule is {rule!r}; it is one of {', '.join(RULES)}")
    return {"density": density, "information": information, "entropy": certainty}[rule](guess)


def entropy(p: Tensor) -> Tensor:
    """Entropy of each row of probabilities (..., n_c): (...), in nats."""
    entropies: Tensor = torch.special.entr(p).sum(-1)
    return entropies


def certainty(guess: Tensor) -> float:
    """Minus the mean entropy of the guesses."""
    return -float(entropy(guess).mean())


def information(guess: Tensor) -> float:
    """Entropy of the mean guess minus mean entropy of the guesses: certain of each row, and not of one class for all."""
    return float(entropy(guess.mean(0)) - entropy(guess).mean())


def density(guess: Tensor) -> float:
    """Soft neighbourhood density (Saito et al., ICCV 2021): mean entropy of the rows' softmax over likeness to others."""
    unit = torch.nn.functional.normalize(guess, dim=1)
    total = 0.0
    for at in range(0, len(unit), ROWS):
        likeness = unit[at : at + ROWS] @ unit.mT / TEMPERATURE
        likeness[torch.arange(len(likeness)), torch.arange(at, at + len(likeness))] = -torch.inf
        total += float(entropy(likeness.softmax(1)).sum())
    return total / max(len(unit), 1)
