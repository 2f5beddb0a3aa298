"""Three small sites that play FedDaDiL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.algorithms.remembered import remembered
from tests.laws.stage import Stage, hoarding_stage
from tests.synthetic import FEATURES, Rows, blobs, experiment
from tideline.algorithms import METHODS
from tideline.algorithms.feddadil import Config, feddadil
from tideline.algorithms.feddadil.messages import Mine
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.privacy import Audience, Exposure
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId
from tideline.core.step import Data
from tideline.engine.simulation.federation import SimSite

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
ALREADY = {"world": {**FEATURES, "model": "linear"}}  # data that are features: no encoder
PLAIN = {"encoder_rounds": 0, "head_rounds": 0}
EVERYTHING = frozenset((e, a) for e in Exposure for a in Audience)


def site(domain: int, change: Any = lambda data: data, policy: Any = None) -> SimSite:
    """A site whose training rows a test may change."""
    rows = Rows(change(blobs(41, domain, 0)), blobs(60, domain, 1))
    made = SimSite(lambda world, role: rows)
    return made if policy is None else replace(made, policy=policy)


def federation(**changed: SimSite) -> Stage:
    """Three sites of three domains; none of their parts is forgotten."""
    sites = {name: site(i) for i, name in enumerate(ROSTER)}
    return hoarding_stage(METHODS, sites | changed)


@remembered
def played(stage: Stage | None = None, given: Mapping[str, Any] | None = None, **config: Any) -> tuple[Stage, Any]:
    """One finished run."""
    stage = stage or federation()
    run = stage.start(experiment("feddadil", ROSTER, config=config, **(ALREADY if given is None else given)))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    return stage, run


def memory(stage: Stage, run: Any, name: str) -> Mine:
    """What a site kept before its last answer, which changes nothing but that rows are gone then."""
    return memories(stage, run, name)[-2]


def left(stage: Stage, run: Any, name: str) -> Mine:
    """What a site keeps at the end."""
    return memories(stage, run, name)[-1]


def memories(stage: Stage, run: Any, name: str) -> list[Mine]:
    """What a site kept after each of its orders."""
    vault = stage.vaults[ClientId(name)]
    return [decode(Mine, head.memory[0][0], vault.parts(run), LAX) for head in vault.past if head.memory]


def scored(stage: Stage, run: Any, name: str) -> Mapping[str, float]:
    """The metrics of a site's last answer."""
    *_, last = [o for o in stage.journal.orders(run) if o.client == name]
    return last.metrics


def phases(**config: Any) -> list[str]:
    """The names of a plan's phases."""
    return [phase.name for phase in feddadil.plan(Config(**config))]


def few(n: int) -> Any:
    """The first rows only."""
    return lambda data: Data(MemoryRows(data.x.all()[:n]), data.y[:n], data.domain[:n], data.domains)


def of_images() -> dict[str, SimSite]:
    """The sites of the roster, with images."""
    return {
        n: SimSite(lambda w, r, i=i: Rows(blobs(41, i, 0, w.inputs), blobs(60, i, 1, w.inputs))) for i, n in enumerate(ROSTER)
    }
