"""Small sites with images: those of two domains differ in how bright their images are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.algorithms.remembered import run_player
from tests.algorithms.source_free import played as family
from tests.laws.case import Case
from tests.laws.laws import EVERYTHING
from tests.laws.stage import Stage
from tideline.engine.simulation.federation import SimSite

WORLD: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
BOTH = ("ladd", "ladd_pl")
TARGETS = sorted(family.TRUE)
NORM = "features.bottleneck.norm."


played = run_player(family.federation, roster=family.ROSTER, world=WORLD)


def open_federation() -> Stage:
    """Sites whose owners forbid nothing."""
    return family.federation(**{name: replace(family.site(name), policy=EVERYTHING) for name in family.ROSTER})


class Open(Case):
    """A case whose sites forbid nothing."""

    def sites(self) -> dict[str, SimSite]:
        """Its sites."""
        return {name: replace(site, policy=EVERYTHING) for name, site in super().sites().items()}
