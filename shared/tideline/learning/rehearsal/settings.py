"""What a rehearsal compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.core.settings import EMPTY, setting
from tideline.numerics.rehearsal.choice import RULES, VOTE


@dataclass(frozen=True)
class Rehearsing:
    """Settings that follow from an experiment's `rehearse`; each list of runs is in the order of the candidates.

    rehearsals: of each labelled site that played the target, the runs in which it did.
    """

    candidates: tuple[str, ...] = setting((), doc="names of the candidates; the first is no adaptation")
    rehearsals: Mapping[str, tuple[str, ...]] = setting(EMPTY, doc="site: the runs in which it played the target")
    at_targets: tuple[str, ...] = setting((), doc="the runs in which the targets are adapted to")
    rule: str = setting(VOTE, choices=RULES, doc="what decides")
    rounds: int = setting(1, low=1, high=1, doc="it has one")

    @property
    def sites(self) -> tuple[str, ...]:
        """Who played the target, sorted."""
        return tuple(sorted(self.rehearsals))
