"""A method whose replies are noise of a given size: nothing in them can be compressed, and the seed decides every byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step

BYTE = 1 << 8


@dataclass(frozen=True)
class Config:
    """Settings of the noise."""

    rounds: int = setting(3, low=1, doc="rounds")
    mb: float = setting(0.01, low=0.0001, doc="size of a reply, in 10^6 bytes")
    tensors: int = setting(1, low=1, doc="tensors that a reply is made of")


@record
class Kept:
    """The state: what all replies so far come to."""

    model: Weights = field(doc="tensors of equal size")


@record
class Asked:
    """What a client is sent: little, whatever comes back."""

    hint: Tensor = field("n", doc="a few numbers of the state")


@record
class Noise:
    """What comes back."""

    model: Weights = field(exposure=Exposure.WEIGHTS, doc="random bits")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Kept:
    """A few random numbers."""
    return Kept({"w0": bits(4, rng)})


def bits(size: int, rng: Generator) -> Tensor:
    """Whole numbers of 8 random bits."""
    return torch.empty(size, dtype=torch.uint8).random_(0, BYTE, generator=rng)


@step()
def draw(order: Asked, memory: Nothing, site: Site) -> Outcome[Noise, Nothing]:
    """Random bits, moved by the hint, so that each round depends on those before."""
    size = max(int(site.config.mb * 1e6 / site.config.tensors), 4)
    drawn = {f"w{i}": bits(size, site.rng).bitwise_xor_(order.hint[0]) for i in range(site.config.tensors)}
    return Outcome(Noise(drawn), memory)


def to_all(state: Kept, turn: Turn) -> dict[ClientId, Asked]:
    """A hint to everybody."""
    return dict.fromkeys(turn.members(), Asked(state.model["w0"][:4].clone()))


def combine(state: Kept, replies: Replies[Noise], turn: Turn) -> Kept:
    """The replies, bit by bit; one of them in memory at a time."""
    total: dict[str, Tensor] = {}
    for reply in replies.values():
        for name, w in reply.model.items():
            total[name] = total[name].bitwise_xor_(w) if name in total else w.clone()
    return Kept(total)


def plan(config: Config) -> Plan:
    """The same exchange, over and over."""
    return (Phase("noise", draw, ask=to_all, fold=combine),) * config.rounds


PRESETS: Mapping[str, Mapping[str, Any]] = {}
noise = Algorithm("noise", "no paper", "Sends noise of a given size", Config, Kept, begin, plan, presets=PRESETS)
METHODS = (("noise", "benchmarks.noise:noise"),)
