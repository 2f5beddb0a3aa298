"""An attack by an operator: weights whose first layer is a bank of thresholds, and one step of which single rows can be read.

Unit i of the hidden layer is active where a row's projection lies above threshold i, and all units weigh alike in the output. So
neighbouring units' updates differ by the rows between their thresholds, and where that is one row, it is their quotient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tideline import nets
from tideline.core.asked.world import World

SCALE = 1e-3  # of the first layer, so that an update of it keeps all its digits
ATTACK = {"rounds": 1, "batch": 1_000_000, "rate": 100.0, "momentum": 0.0, "weight_decay": 0.0}
FIRST, LAST = ("features.1.weight", "features.1.bias"), ("classifier.weight", "classifier.bias")


def crafted(world: World, reach: float = 3.0) -> dict[str, Tensor]:
    """Weights of an `mlp`, with thresholds where rows of about unit variance are projected to."""
    made = nets.weights_of(nets.build(world))
    (weight, bias), (out, offset) = FIRST, LAST
    hidden, inputs = made[weight].shape
    direction = torch.linspace(0.5, 1.5, inputs)
    direction = direction / direction.norm()
    thresholds = torch.linspace(-reach, reach, hidden)
    made[weight] = SCALE * direction.expand(hidden, inputs).clone()
    made[bias] = -SCALE * thresholds
    made[out] = torch.zeros_like(made[out])
    made[out][0] = 1.0
    made[offset] = torch.zeros_like(made[offset])
    return made


def read_rows(before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
    """What neighbouring units' updates say of the rows between them: (m, inputs)."""
    weight, bias = FIRST
    moved = (after[weight] - before[weight]).double(), (after[bias] - before[bias]).double()
    between, by = moved[0].diff(dim=0), moved[1].diff()
    seen = by.abs() > 1e-9
    return between[seen] / by[seen, None]


def read_rows_of_units(before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
    """What single units' updates say of the rows that they were active for: (m, inputs)."""
    weight, bias = FIRST
    moved, by = (after[weight] - before[weight]).double(), (after[bias] - before[bias]).double()
    seen = by.abs() > 1e-7
    return moved[seen] / by[seen, None]


def recovered(rows: Tensor, guesses: Tensor) -> int:
    """Of how many rows (n, inputs) a guess is nearer than the nearest other row."""
    if not len(guesses):
        return 0
    rows, guesses = rows.double(), guesses.nan_to_num(1e6).double()
    apart = torch.cdist(rows, rows) + torch.diag(torch.full((len(rows),), torch.inf, dtype=torch.float64))
    return int((torch.cdist(rows, guesses).amin(dim=1) < apart.amin(dim=1)).sum())
