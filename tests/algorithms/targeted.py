"""Small sites that teach one target: three with labels, of domains ever farther from it, and one without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.algorithms.remembered import run_player
from tests.laws.stage import Stage, hoarding_stage
from tests.synthetic import CLASSES, FEATURES, IMAGES, TRAIN, Rows, blobs
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.simulation.federation import SimSite

ROSTER = {"anna": "source", "bert": "source", "carl": "source", "dora": "target"}
DOMAINS = {"anna": 0, "bert": 1, "carl": 2, "dora": 1}
NORMED: Mapping[str, Any] = {**IMAGES, "model": "lenet_bn"}
POLICY = DEFAULT_POLICY | {(Exposure.METRIC, Audience.PEERS), (Exposure.STATISTIC, Audience.PEERS)}
WAITING = {"waiting": {"min_replies": 1, "deadline": 60.0}}


def site(name: str, n: int = TRAIN, change: Any = lambda data: data) -> SimSite:
    """A site with its own rows, whose owner lets statistics go to peers."""
    seed = 2 * sorted(DOMAINS).index(name)

    def opened(world: World, role: Role) -> Rows:
        rows = blobs(n, DOMAINS[name], seed, world.inputs)
        return Rows(change(rows), blobs(60, DOMAINS[name], seed + 1, world.inputs))

    return SimSite(opened, POLICY)


def mislabelled(data: Data) -> Data:
    """Every label is that of the next class."""
    assert data.y is not None
    return replace(data, y=(data.y + 1) % CLASSES)


def federation(**changed: SimSite) -> Stage:
    """The sites; nothing that was sent or kept is forgotten."""
    return hoarding_stage(METHODS, {name: site(name) for name in ROSTER} | changed)


played = run_player(federation, roster=ROSTER, world=dict(FEATURES))


def accuracy(stage: Stage, run: Any, name: str = "dora") -> float:
    """What a site was scored in the end."""
    return float(next(c["accuracy"] for c in stage.result(run)["clients"] if c["name"] == name))


def tables(stage: Stage, run: Any, name: str) -> list[dict[str, list[float]]]:
    """A table of each round that told it, by row."""
    reported = [p["tables"][name] for p in stage.result(run)["phases"] if name in p["tables"]]
    return [dict(zip(each["rows"], each["values"], strict=True)) for each in reported]
