"""A toy method whose sites make values for each other: each round every site adds up what its peers gave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.handle import Handle
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import field, record
from tideline.core.run import ClientId
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step

CANARY = 1234.5678


@dataclass(frozen=True)
class Config:
    """Rounds, and whether each value is for the next site alone."""

    rounds: int = setting(3, low=1, doc="rounds")
    ring: bool = setting(False, doc="each value is for one peer")


@record
class Value:
    """What peers get."""

    v: Tensor = field("n", Exposure.WEIGHTS, audience=TO_PEERS, doc="numbers for peers")


@record
class State:
    """Each site's last value, and its first, which is never asked for again before the end."""

    last: dict[str, Handle[Value]]
    first: dict[str, Handle[Value]]


@record
class Given:
    """What a site is handed."""

    values: dict[str, Handle[Value]]


@record
class Made:
    """What a site gives."""

    value: Handle[Value]


@record
class Mine:
    """What a site keeps: all that it has got."""

    total: Tensor = field("n")


def begin(config: Config, world: World, roster: Any, rng: Any) -> State:
    return State({}, {})


def prepare(config: Config, site: Site) -> Mine:
    return Mine(torch.full((8,), CANARY + len(site.me)))


def passed_on(state: State, turn: Turn) -> Mapping[ClientId, Given]:
    """To each site what is for it."""
    names = [m.id for m in turn.roster]
    values = state.first if turn.round == turn.config.rounds and turn.round > 1 and not turn.config.ring else state.last
    return {name: Given({n: v for n, v in values.items() if n in givers(name, names, turn.config)}) for name in names}


def givers(name: ClientId, names: list[ClientId], config: Config) -> list[ClientId]:
    """Whose values are for a site."""
    return [names[names.index(name) - 1]] if config.ring else [n for n in names if n != name]


@step(metrics=("heard",))
def work(order: Given, memory: Mine, site: Site) -> Outcome[Made, Mine]:
    """Add up what came, and give the sum."""
    total = memory.total + sum(site.fetch(order.values[name]).v for name in sorted(order.values))
    names = sorted({*order.values, site.me})
    to = None if not site.config.ring else [n for n in ALL if n != site.me and givers(n, list(ALL), site.config) == [site.me]]
    return Outcome(Made(Handle.of(Value(total + torch.rand(8, generator=site.rng)), to)), Mine(total), {"heard": len(names) - 1})


ALL = tuple(map(ClientId, ("anna", "bert", "carl")))


def kept(state: State, replies: Replies[Made], turn: Turn) -> State:
    """The newest values, and the first."""
    last = {**state.last, **{name: replies[name].value for name in replies}}
    return State(last, state.first or last)


def plan(config: Config) -> Plan:
    return (Phase("pass", work, passed_on, kept),) * config.rounds


METHOD = Algorithm("passing", "nobody", "sites that pass values on", Config, State, begin, plan, Mine, prepare)
METHODS = (("passing", "tests.engine.passing:METHOD"),)
