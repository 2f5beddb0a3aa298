"""What the programs of the other simulators share: rows and network as in benchmarks/simulation.py, and the last line."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

sys.path.insert(1, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.measure import grown  # noqa: F401 - for the programs beside this one

TRAIN, HELD_OUT, BATCH, RATE, MOMENTUM, DECAY = 20, 4, 10, 0.05, 0.9, 5e-4
Rows = tuple[torch.Tensor, torch.Tensor]


class Net(torch.nn.Sequential):
    """64-64-10."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


@cache
def digits() -> Rows:
    """All digits, each pixel in 0..1: (1797, 64) and (1797,)."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16.0, dtype=torch.float32), torch.tensor(y)


@cache
def rows(client: int) -> tuple[Rows, Rows]:
    """The rows that a client trains on, and those that it holds out."""
    x, y = digits()
    drawn = torch.tensor(np.random.RandomState(client).choice(len(x), TRAIN + HELD_OUT, replace=False))
    train, held_out = drawn.split(TRAIN)
    return (x[train], y[train]), (x[held_out], y[held_out])


def asked_for() -> tuple[int, int, int]:
    """The command line: clients, rounds that are measured, and how many clients take part in a round."""
    clients, rounds, *cohort = map(int, sys.argv[1:])
    return clients, rounds, cohort[0] if cohort else clients


def report(ends: list[float], memory_mb: float, accuracy: float) -> None:
    """Print the last line. ends: when each round ended, in seconds; the first is the one that warms up."""
    took = [after - before for before, after in itertools.pairwise(ends)]
    print(json.dumps({"seconds": statistics.median(took), "memory_mb": memory_mb, "accuracy": accuracy}))
