"""A method that learns nothing and tells much: losses, accuracies of several kinds, and metrics numbered at their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from tests.laws.stage import Stage, registered
from tests.synthetic import NAMES, experiment, sites
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, View, step
from tideline.engine.coordinator.result import result_of

ROSTER = {"anna": "source", "bert": "target", "carl": "target"}


@dataclass(frozen=True)
class Config:
    """Its settings."""

    rounds: int = setting(3, low=1, doc="exchanges")


@record
class Model:
    """What is sent: named tensors."""

    model: Weights = field(doc="named tensors")


@record
class Echo:
    """What comes back: the same."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="what was sent, and a little more")


@step(metrics=("loss", "steady"))
def send(order: Model, memory: Nothing, site: Site) -> Outcome[Echo, Nothing]:
    changed = {name: tensor + site.round for name, tensor in order.model.items()}
    return Outcome(Echo(changed), memory, {"loss": 1.0 / site.round, "steady": 3.0})


@step(metrics=("accuracy", "source_only", "accuracy_b", "accuracy_a", "line_0", "line_2", "line_10", "top_5"), view=View.HELD_OUT)
def score(order: Model, memory: Nothing, site: Site) -> Outcome[Nothing, Nothing]:
    """Tell numbers; what only targets tell is not told by a source."""
    told = {"accuracy": 0.25 * site.round, "source_only": 0.25}
    if site.role is Role.TARGET:
        lift = 0.1 if site.me == "carl" else 0.0
        told |= {"accuracy_b": 0.5 + lift, "accuracy_a": 0.4 + lift, "top_5": 5.0}
        told |= {"line_0": 0.0, "line_10": 1.0 * site.round, "line_2": 0.5}
    return Outcome(Nothing(), memory, told)


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Model:
    return Model({"w": torch.zeros(100)})


def to_all(state: Model, turn: Turn) -> dict[ClientId, Model]:
    return dict.fromkeys(turn.members(), state)


def first(state: Model, replies: Replies[Echo], turn: Turn) -> Model:
    """The first answer, changed, so that no site holds it."""
    return Model({name: tensor + 0.5 for name, tensor in next(iter(replies.values())).model.items()})


def plan(c: Config) -> Plan:
    return (Phase("send", send, ask=to_all, fold=first),) * c.rounds + (Phase("score", score, ask=to_all),) * 2


echo = Algorithm("echo", "No paper", "Tells much", Config, Model, begin, plan, presets={"tiny": {}})


def told(history: bool = True) -> dict[str, Any]:
    on = Stage(registered(echo), sites(NAMES[:3]))
    run = on.start(experiment("echo", ROSTER))
    assert on.play(run).status == "completed", on.row(run).cause
    return result_of(on.journal, run, on.clock.now(), history)
