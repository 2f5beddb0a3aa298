"""A method that trades a model of random numbers: no two tensors, nor their changes, are alike in any form, as echo's are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator

from benchmarks.echo import Changed, Model, average, to_all
from tideline.core.algorithm import Algorithm
from tideline.core.phase import Phase, Plan
from tideline.core.record import Nothing
from tideline.core.run import Roster, World
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step


@dataclass(frozen=True)
class Config:
    """Settings of the trade."""

    rounds: int = setting(3, low=1, doc="rounds")
    mb: float = setting(1.0, low=0.001, doc="size of the model, in 10^6 bytes of float32")
    tensors: int = setting(8, low=1, doc="matrices that the model is made of")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Model:
    """Matrices of 100 columns."""
    rows = max(int(config.mb * 1e6 / 400 / config.tensors), 1)
    return Model({f"w{i}": torch.randn(rows, 100, generator=rng) for i in range(config.tensors)})


@step()
def move(order: Model, memory: Nothing, site: Site) -> Outcome[Changed, Nothing]:
    """Move every number to another place, at each site by another way."""
    by = 1 + sum(map(ord, site.me)) % 97
    return Outcome(Changed({name: w.view(-1).roll(by).view_as(w) for name, w in order.model.items()}), memory)


def plan(config: Config) -> Plan:
    """The same exchange, over and over."""
    return (Phase("trade", move, ask=to_all, fold=average),) * config.rounds


trade = Algorithm("trade", "no paper", "Trades a model of random numbers", Config, Model, begin, plan)
METHODS = (("trade", "benchmarks.trade:trade"),)
