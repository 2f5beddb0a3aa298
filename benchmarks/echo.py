"""A method that moves a model of a given size and does next to nothing with it: what is left is the cost of transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from tideline.algorithms.averaging.sums import alike, mean_of
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step
from tideline.numerics.aggregation.averaging import weighted_sum


@dataclass(frozen=True)
class Config:
    """Settings of the echo."""

    rounds: int = setting(6, low=1, doc="rounds")
    mb: float = setting(1.0, low=0.001, doc="size of the model, in 10^6 bytes")
    tensors: int = setting(8, low=1, doc="tensors that the model is made of")


@record
class Model:
    """The model, both ways down and as state."""

    model: Weights = field(doc="tensors of equal size")


@record
class Changed:
    """The model as a client changed it."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="every element changed")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Model:
    """Ones, in float32."""
    size = max(int(config.mb * 1e6 / 4 / config.tensors), 1)
    return Model({f"w{i}": torch.full((size,), float(i + 1)) for i in range(config.tensors)})


@step()
def change(order: Model, memory: Nothing, site: Site) -> Outcome[Changed, Nothing]:
    """Add a number of this client's own to every element."""
    mine = 1e-3 * (1 + sum(map(ord, site.me)) % 97)
    return Outcome(Changed({name: w + mine for name, w in order.model.items()}), memory)


def to_all(state: Model, turn: Turn) -> dict[ClientId, Model]:
    """The model to everybody."""
    return dict.fromkeys(turn.members(), state)


def average(state: Model, replies: Replies[Changed], turn: Turn) -> Model:
    """The plain mean."""
    return Model(weighted_sum((1 / len(replies), reply.model) for reply in replies.values()))


def plan(config: Config) -> Plan:
    """The same exchange, over and over."""
    return (Phase("echo", change, ask=to_all, fold=average, sums=mean_of(alike)),) * config.rounds


PRESETS: Mapping[str, Mapping[str, Any]] = {}
echo = Algorithm("echo", "no paper", "Moves a model of a given size", Config, Model, begin, plan, presets=PRESETS)
METHODS = (("echo", "benchmarks.echo:echo"),)
