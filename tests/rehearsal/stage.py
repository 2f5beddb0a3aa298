"""Sites whose rows one map moved, and federations that rehearse on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tideline.algorithms import METHODS
from tideline.core.algorithm import Methods
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role, RunId
from tideline.core.step import Data
from tideline.engine.coordinator.result import result_of
from tideline.engine.ports.site import SiteData
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.holdings import Holdings

CLASSES, D, TRAIN, HELD_OUT = 3, 6, 80, 40
SITES = ("anna", "bert", "carl", "dora", "emil", "fred")
ROSTER = {"anna": "source", "bert": "source", "carl": "source", "dora": "target"}
WORLD: Mapping[str, Any] = {"inputs": [D], "classes": CLASSES, "model": "linear"}
SHORT: Mapping[str, Any] = {"label": "short", "method": "fedavg", "config": {"rounds": 1}}
SITE: Mapping[str, Any] = {"label": "site", "method": "fedavg", "world": {"normalise": "site"}}
Relabel = Callable[[Tensor], Tensor]


def drawn(site: int, seed: int, n: int) -> Data:
    """n rows of a site: clouds round three centres, moved and stretched by the site."""
    rng = torch.Generator().manual_seed(1000 * seed + site)
    y = torch.arange(n) % CLASSES
    x = 2.0 * torch.eye(CLASSES, D)[y] + torch.randn(n, D, generator=rng)
    moved = x * (1 + 0.2 * site) + 0.3 * site
    return Data(MemoryRows(moved), y, torch.zeros(n, dtype=torch.int64), (f"domain-{site}",))


def holdings(site: int, relabel: Relabel = lambda y: y) -> Holdings:
    sides = drawn(site, 0, TRAIN), drawn(site, 1, HELD_OUT)
    train, held = (replace(each, y=relabel(each.y)) for each in sides if each.y is not None)
    return Holdings(train, held)


@dataclass(frozen=True)
class Opener:
    """How a site opens its data. broken: raises while the site plays the target."""

    site: int
    relabel: Relabel = lambda y: y
    broken: bool = False

    def __call__(self, world: World, role: Role) -> SiteData:
        if self.broken and role is Role.TARGET:
            raise OSError("the disk is away")
        return holdings(self.site, self.relabel)


def sites(**others: SimSite) -> dict[str, SimSite]:
    return {name: SimSite(Opener(i)) for i, name in enumerate(SITES)} | others


def federation(methods: Methods = METHODS, **others: SimSite) -> Federation:
    return Federation(methods, sites(**others))


def experiment(*candidates: Any, **more: Any) -> dict[str, Any]:
    """Of federated averaging with three rounds as no adaptation."""
    rehearse = {"candidates": list(candidates), **more.pop("rehearse", {})}
    given = {"config": {"rounds": 3, "rate": 0.1}, "world": dict(WORLD), "roster": dict(ROSTER), "seed": 7, "rehearse": rehearse}
    return given | more


def played(on: Federation, given: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an experiment, which completes."""
    result = on.run(on.start(given))
    assert result["status"] == "completed", result["cause"]
    return result


@cache
def short_rehearsal(then: str = "") -> tuple[Federation, dict[str, Any]]:
    """A rehearsal of one candidate that several tests look at, played once: the federation and the result."""
    on = federation()
    return on, played(on, experiment(SHORT, **({"then": then} if then else {})))


def shown(on: Federation, run: str) -> dict[str, Any]:
    return result_of(on.journal, RunId(run), on.clock.now())


def statuses(on: Federation, run: str) -> dict[str, str]:
    """Of a run and all that belong to it."""
    return {row.id.removeprefix(run): row.status.value for row in on.run_service.family(RunId(run))}


def outputs_of(on: Federation, site: str, run: str) -> tuple[str, ...]:
    """The digests of what a site keeps of a run's predictions."""
    head = on.agents[ClientId(site)].vault.head(RunId(run))
    return () if head is None else tuple(digest for digest, _ in head.outputs)
