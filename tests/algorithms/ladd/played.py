"""Small sites with images: those of two domains differ in how bright their images are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.algorithms.source_free import played as family
from tests.laws.case import Case
from tests.laws.laws import EVERYTHING
from tests.laws.stage import Stage
from tests.laws.values import raw
from tideline.engine.model.orders import Order
from tideline.engine.simulation.federation import SimSite

WORLD: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
BOTH = ("ladd", "ladd_pl")
TARGETS = sorted(family.TRUE)
NORM = "features.bottleneck.norm."


def played(
    method: str,
    stage: Stage | None = None,
    choose: Callable[[list[Order]], list[Order]] | None = None,
    more: Mapping[str, Any] | None = None,
    **config: Any,
) -> tuple[Stage, Any]:
    """One finished run on images."""
    return family.played(method, stage, choose, {"world": WORLD, **(more or {})}, **config)


def open_federation() -> Stage:
    """Sites whose owners forbid nothing."""
    return family.federation(**{name: replace(family.site(name), policy=EVERYTHING) for name in family.ROSTER})


class Open(Case):
    """A case whose sites forbid nothing."""

    def sites(self) -> dict[str, SimSite]:
        """Its sites."""
        return {name: replace(site, policy=EVERYTHING) for name, site in super().sites().items()}


def same(a: Any, b: Any) -> bool:
    """Whether weights are equal, bit for bit."""
    return a.keys() == b.keys() and all(raw(a[name]) == raw(b[name]) for name in a)
