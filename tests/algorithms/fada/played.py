"""FADA played on a small shift, what its sites kept after each exchange, and single steps beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.algorithms.remembered import remembered
from tests.laws.stage import Stage, hoarding_stage
from tests.synthetic import FEATURES, Rows, experiment, rows, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.fada.messages import Contribution, Mine, State
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World, world_in
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.simulation.federation import SimSite

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
SMALL: Mapping[str, Any] = {"inputs": [1, 16, 16], "classes": 3, "model": "fada_small"}
LET_OUT = DEFAULT_POLICY | {(Exposure.FEATURES, Audience.COORDINATOR)}
# All rows are one mini-batch, so that whoever knows the rows knows the gradient.
WHOLE: Mapping[str, Any] = {"rounds": 1, "source_rounds": 0, "steps": 1, "batch": 64, "identify_steps": 1, "identify_batch": 64}


def federation(roster: Mapping[str, str] = ROSTER, **more: SimSite) -> Stage:
    """The sites; no part is forgotten, at a site neither."""
    return hoarding_stage(METHODS, sites(tuple(roster)) | more)


def letting_out(roster: Mapping[str, str] = ROSTER) -> Stage:
    """The sites, whose owners let features go to the coordinator."""
    stage = federation(roster)
    return federation(roster, **{name: replace(site, policy=LET_OUT) for name, site in stage.sites.items()})


@remembered
def played(
    method: str = "fada", *, stage: Stage | None = None, world: Mapping[str, Any] = FEATURES, **config: Any
) -> tuple[Stage, Any]:
    """One finished run."""
    stage = stage or federation()
    roster = {name: ROSTER.get(name, "target") for name in stage.sites}
    run = stage.start(experiment(method, roster, config=config, world=dict(world)))
    row = stage.play(run)
    assert row.status is Status.COMPLETED, row.cause
    return stage, run


def cursors(stage: Stage, run: Any, phase: str) -> list[int]:
    """The places of a phase in the plan."""
    return [i for i, fact in enumerate(stage.row(run).plan) if fact.phase == phase]


def memory_of(stage: Stage, run: Any, name: str, phase: str, number: int = 1) -> Mine:
    """What a site kept after a round of a phase."""
    at, vault = cursors(stage, run, phase)[number - 1], stage.vaults[ClientId(name)]
    head = next(head for head in vault.past if head.cursor == at)
    return decode(Mine, head.memory[0][0], vault.parts(run), LAX)


def state(stage: Stage, run: Any, phase: str = "", number: int = 1) -> State:
    """The coordinator's after a round of a phase; the last where none is named."""
    closed = stage.journal.rounds(run)
    found = next(r for r in closed if (r.phase, r.round) == (phase, number)) if phase else closed[-1]
    return decode(State, found.state[0][0], stage.parts, LAX)


def replied(stage: Stage, run: Any, phase: str, kind: type[Any], number: int = 1) -> dict[str, Any]:
    """What each site answered."""
    at = cursors(stage, run, phase)[number - 1]
    orders = [o for o in stage.journal.orders(run) if o.cursor == at and o.cursor != JOIN and o.reply]
    return {o.client: decode(kind, o.reply[0][0], stage.parts, LAX) for o in orders}


def contribution(stage: Stage, run: Any, name: str, number: int) -> Contribution:
    """What a source sealed in a round."""
    at = cursors(stage, run, "improve")[number - 1]
    (envelope,) = next(head.sealed for head in stage.vaults[ClientId(name)].past if head.cursor == at)
    given: Contribution = decode(Contribution, envelope.handle.digest, stage.vaults[ClientId(name)].parts(run), LAX)
    return given


def marks(stage: Stage, run: Any, phase: str) -> list[Mapping[str, tuple[str, ...]]]:
    """What people were told of single sites after each round of a phase."""
    return [r.marks for r in stage.journal.rounds(run) if r.phase == phase]


def network(mine: Mine, world: Mapping[str, Any] = FEATURES) -> nn.Module:
    """A site's own network."""
    return nets.loaded(world_in(dict(world)), mine.model)


def train(domain: int, world: Mapping[str, Any] = FEATURES) -> Data:
    """A site's training rows."""
    return rows(domain, world_in(dict(world))).train


def opened(change: Callable[[Data], Data]) -> SimSite:
    """A site with other training rows; a target's have no labels whatever they are."""

    def site_data(world: World, role: Role) -> Rows:
        whole = rows(0, world)
        return Rows(change(whole.train), whole.held_out)

    return SimSite(site_data)


def place(config: Mapping[str, Any], role: Role, data: Data, **more: Any) -> Site:
    """Where a step runs, by itself."""
    given = resolve(METHODS, "fada").configure(config, "tiny")
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    world = more.pop("world", World(**{**FEATURES, "inputs": tuple(FEATURES["inputs"])}))
    return Site(given, world, ClientId("carl"), role, data, more.pop("round", 1), rng, **more)


def close(a: Mapping[str, Tensor], b: Mapping[str, Tensor], most: float) -> None:
    """Weights that differ by so much at most."""
    assert a.keys() == b.keys()
    assert max(float((a[name].detach().double() - b[name].detach().double()).abs().max()) for name in a) <= most


def unlabelled(data: Data) -> Data:
    """As a target's training rows are seen."""
    return Data(data.x, None, data.domain, data.domains)
