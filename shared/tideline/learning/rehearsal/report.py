"""What a rehearsal reports: tables of its rounds, which results read (`engine.coordinator.verdicts`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from tideline.core.phase import ACCURACIES, EXPECTED, EXPECTED_COLUMNS, GAIN_COLUMNS, GAIN_OF, GAINS, WEIGHT_OF, Table, Turn
from tideline.core.run import ClientId
from tideline.learning.rehearsal.settings import Rehearsing
from tideline.learning.rehearsal.state import State
from tideline.numerics.rehearsal.expectation import Expectation, over_sites

if TYPE_CHECKING:
    from tideline.learning.rehearsal.choosing import Rehearsed

UNKNOWN = Expectation(-1.0, -1.0, -1.0)


@dataclass(frozen=True)
class AtTarget:
    """What is expected at a target: of the gain and of the accuracy, None where nothing tells; each candidate's weight (m,).

    changed: the share of its rows that is predicted otherwise than without adaptation.
    """

    gain: Expectation | None
    accuracy: Expectation | None
    weights: Tensor
    distance: float
    unlike: bool
    changed: float = 0.0

    @property
    def line(self) -> tuple[float, ...]:
        """In the order of EXPECTED_COLUMNS."""
        gain, accuracy = self.gain or UNKNOWN, self.accuracy or UNKNOWN
        known = float(self.gain is not None), float(self.accuracy is not None)
        return (*known, *ends(gain), *ends(accuracy), self.distance, float(self.unlike), self.changed)


def ends(of: Expectation) -> tuple[float, float, float]:
    return of.value, of.low, of.high


def rehearsals(of: Rehearsed, state: State, turn: Turn[Rehearsing]) -> dict[str, Table]:
    """Accuracies and gains by site and candidate, in [0, 1], over training rows and held-out ones; each candidate's mean gain."""
    if not of.sites:
        return {}
    at = list(of.sites), list(of.candidates)
    sites, candidates = tuple(turn.config.sites[i] for i in at[0]), tuple(turn.config.candidates[i] for i in at[1])
    rows, right, gained, lost = (getattr(state, name)[at[0]][:, at[1]] for name in ("rows", "right", "gained", "lost"))
    means = [over_sites(*each) for each in zip(gained.T, lost.T, rows.T, strict=True)]
    return {
        ACCURACIES: table(sites, candidates, right / rows.clamp_min(1)),
        GAINS: table(sites, candidates, of.gains),
        GAIN_OF: Table(candidates, GAIN_COLUMNS, tuple(map(ends, means))),
    }


def expectations(found: Mapping[ClientId, AtTarget], turn: Turn[Rehearsing]) -> dict[str, Table]:
    """What is expected at each target, and each candidate's weight there."""
    if not found:
        return {}
    shares = tuple(tuple(map(float, each.weights.tolist())) for each in found.values())
    return {
        EXPECTED: Table(tuple(found), EXPECTED_COLUMNS, tuple(each.line for each in found.values())),
        WEIGHT_OF: Table(tuple(found), turn.config.candidates, shares),
    }


def table(rows: tuple[str, ...], columns: tuple[str, ...], values: Tensor) -> Table:
    return Table(rows, columns, tuple(tuple(map(float, row)) for row in values.tolist()))
