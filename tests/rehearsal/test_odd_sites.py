"""Sites with few rows, and with few classes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch import Tensor

from tests.rehearsal.stage import SHORT, SITE, Opener, drawn, experiment, federation, played
from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.engine.simulation.federation import SimSite
from tideline.learning.formats.holdings import Holdings

SELF = {"label": "self-training", "method": "self_training", "config": {"rounds": 3}}


@dataclass(frozen=True)
class Few:
    """A site of so many rows to train on, and one held out."""

    site: int
    rows: int

    def __call__(self, world: World, role: Role) -> Holdings:
        return Holdings(drawn(self.site, 0, self.rows), drawn(self.site, 1, 1))


@dataclass(frozen=True)
class TwoClasses:
    """Labels of which the last never occurs."""

    def __call__(self, y: Tensor) -> Tensor:
        return y.clamp_max(1)


@pytest.mark.nightly(job="numbers")
def test_a_target_with_three_rows() -> None:
    """It is adapted to like any other, and its interval is wide."""
    result = played(federation(dora=SimSite(Few(3, 3))), experiment(SHORT, SITE, SELF, then="run"))
    (target,) = result["verdict"]["targets"]
    assert target["accuracy"]["high"] - target["accuracy"]["low"] > 0.3


@pytest.mark.nightly(job="numbers")
def test_a_labelled_site_with_two_rows() -> None:
    """It plays, and its two rows and one count as they are."""
    result = played(federation(bert=SimSite(Few(1, 2))), experiment(SHORT, SITE, then="run"))
    assert result["verdict"]["rehearsed_at"] == ["anna", "bert", "carl"]


def test_a_site_that_lacks_a_class() -> None:
    """It plays with the classes that it has."""
    result = played(federation(carl=SimSite(Opener(2, TwoClasses()))), experiment(SHORT, "gaussian_heads", then="run"))
    assert "carl" in result["verdict"]["rehearsed_at"] and not result["verdict"]["candidates_left_out"]
