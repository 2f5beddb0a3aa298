"""How much each of several players adds to what they reach together.

Shapley, "A value for n-person games", 1953. A game's value is a function of a set of players, given as their numbers in rising
order; they are 0 .. S - 1.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import factorial

import torch
from torch import Tensor

Value = Callable[[tuple[int, ...]], float]


def shapley(value: Value, S: int) -> Tensor:
    """phi_k = sum over sets T without k of |T|! (S - |T| - 1)! / S! (v(T + k) - v(T)): (S,) float64.

    They sum to v(all) - v(none). Asks for the value of each of the 2^S sets once.
    """
    v = {T: value(T) for size in range(S + 1) for T in combinations(range(S), size)}
    phi = torch.zeros(S, dtype=torch.float64)
    for T, worth in v.items():
        t = len(T)
        for k in set(range(S)) - set(T):
            added = v[tuple(sorted((*T, k)))] - worth
            phi[k] += factorial(t) * factorial(S - t - 1) / factorial(S) * added
    return phi


def leave_one_out(value: Value, S: int) -> Tensor:
    """v(all) - v(all without k): (S,) float64. Asks for S + 1 values."""
    everybody = tuple(range(S))
    whole = value(everybody)
    return torch.tensor([whole - value(tuple(j for j in everybody if j != k)) for k in everybody], dtype=torch.float64)
