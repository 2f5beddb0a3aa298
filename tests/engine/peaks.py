"""A toy method whose model is best in a round that its settings name: the state and each site's memory count the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from tests.synthetic import CLASSES, FEATURES
from tideline.core.algorithm import Algorithm, RunModel, SiteModels
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate


@dataclass(frozen=True)
class Config:
    """Rounds, the one whose model is right, and sites that the rounds up to there pass over."""

    rounds: int = setting(4, low=0, doc="rounds")
    peak: int = setting(2, low=0, doc="the round whose model is right")
    absent: tuple[str, ...] = setting((), doc="sites that are asked in the first round alone")
    scored: tuple[str, ...] = setting((), doc="sites that are only scored")
    alone: bool = setting(False, doc="the coordinator goes on by itself between a scoring and the next round")


@record
class Count:
    """Rounds so far, as the coordinator counts them."""

    w: Tensor = field("1", doc="rounds")


@record
class Mine:
    """The same at a site: what it was sent last."""

    w: Tensor = field("1", doc="rounds")


@record
class Grown:
    """What a site tells: another number in each round."""

    w: Tensor = field("1", Exposure.STATISTIC, doc="rounds")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Count:
    return Count(torch.zeros(1))


def prepare(config: Config, site: Site[Config]) -> Mine:
    return Mine(torch.zeros(1))


@step()
def grow(order: Count, memory: Mine, site: Site[Config]) -> Outcome[Grown, Mine]:
    """Keep the count that the round comes to."""
    return Outcome(Grown(order.w + len(site.me)), Mine(order.w.round() + 1))


def judged(state: Count, turn: Turn[Config]) -> dict[ClientId, Count]:
    absent = turn.config.absent if turn.round > 1 else ()
    return {name: state for name in turn.members() if name not in absent}


def asked(state: Count, turn: Turn[Config]) -> dict[ClientId, Count]:
    return {name: each for name, each in judged(state, turn).items() if name not in turn.config.scored}


def counted(state: Count, replies: Replies[Grown], turn: Turn[Config]) -> Count:
    return Count(state.w.round() + 1)


def alone(state: Count, replies: Replies[Nothing], turn: Turn[Config]) -> Count:
    """A part of a round, so that a state after this is told from the one that was scored."""
    return Count(state.w + 0.25)


def predict(order: Count, memory: Mine, site: Site[Config], x: Tensor) -> Tensor:
    """Right at the peak: the clouds of tests.synthetic lie far out along their class's axis."""
    out = x[:, :CLASSES]
    return out if int(order.w) == site.config.peak else -out


def plan(config: Config) -> Plan[Config, Count]:
    score: Phase[Config, Count] = evaluate(judged, predict, takes=Count, keeps=Mine)
    between = (Phase("between", None, fold=alone),) if config.alone else ()
    return (Phase("grow", grow, asked, counted), score, *between) * config.rounds


def of_run(config: Config, world: World, state: Count) -> Weights:
    return {"w": state.w}


def of_site(config: Config, world: World, memory: Mine) -> Weights:
    return {"w": memory.w} if memory.w else {}


METHOD = Algorithm(
    "peaks",
    "nobody",
    "a count that is right once",
    Config,
    Count,
    begin,
    plan,
    Mine,
    prepare,
    result=(RunModel(of_run), SiteModels(of_site, roles=(Role.SOURCE, Role.TARGET))),
)
TELLS_NOTHING = replace(METHOD, name="tells_nothing", plan=lambda config: tuple(replace(p, report=None) for p in plan(config)))
METHODS = (("peaks", "tests.engine.peaks:METHOD"),)
EXPERIMENT: Mapping[str, Any] = {
    "method": "peaks",
    "world": FEATURES,
    "roster": {"anna": "source", "bert": "source", "carl": "target"},
    "selection": "accuracy",
    "seed": 7,
}
