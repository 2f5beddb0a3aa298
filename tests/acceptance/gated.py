"""A method whose step waits at a gate in the file system, so that a test can choose the moment at which a process dies.

Everybody adds its count of steps so far to a vector, so that a step done twice, or lost, changes the bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Config:
    """Where the gate is, and what happens behind it."""

    rounds: int = setting(3, low=1, doc="exchanges")
    gate: str = setting("", doc="a folder; round 2 waits there for a file named go")
    dies: int = setting(0, low=0, doc="how often the first client's trainer kills itself in round 2")
    closing: bool = setting(False, doc="whether the coordinator waits there too, before it folds round 2")
    size: int = setting(4, low=1, doc="elements of the vector")


@record
class Vector:
    """What is sent and kept."""

    v: Tensor = field("n", Exposure.STATISTIC, doc="the vector")


@record
class Count:
    """How many steps this client has done."""

    steps: int = field(doc="steps so far")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Vector:
    return Vector(torch.randn(config.size, generator=rng))


def prepare(config: Config, site: Site) -> Count:
    return Count(0)


@step()
def add(order: Vector, memory: Count, site: Site) -> Outcome[Vector, Count]:
    pass_gate(site)
    noise = torch.randn(order.v.shape, generator=site.rng)
    return Outcome(Vector(order.v + noise + memory.steps), Count(memory.steps + 1))


def pass_gate(site: Site) -> None:
    """Say that the step has begun; wait for `go`; die as often as asked for."""
    config: Config = site.config
    if site.round != 2 or not config.gate:
        return
    gate = Path(config.gate)
    begun = gate / f"begun-{site.me}"
    with begun.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(begun.read_text().split()) <= config.dies and site.me == "a":
        os._exit(7)
    wait_at(gate, None, lambda: site.tick(0.5))


def wait_at(gate: Path, name: str | None, tick: Callable[[], None]) -> None:
    """Wait for `go`; or, under a name, for `go-NAME`, saying that somebody waits."""
    if name is not None:
        with (gate / f"begun-{name}").open("a") as file:
            file.write(f"{os.getpid()}\n")
    while not (gate / (f"go-{name}" if name else "go")).exists():
        tick()
        time.sleep(0.01)


def to_all(state: Vector, turn: Turn) -> dict[ClientId, Vector]:
    return dict.fromkeys(turn.members(), state)


def mean(state: Vector, replies: Replies[Vector], turn: Turn) -> Vector:
    if turn.config.closing and turn.round == 2:
        wait_at(Path(turn.config.gate), "closing", lambda: None)
    return Vector(sum((r.v for r in replies.values()), torch.zeros_like(state.v)) / len(replies))


def plan(config: Config) -> Plan:
    """The same exchange, over and over."""
    return (Phase("add", add, ask=to_all, fold=mean),) * config.rounds


gated = Algorithm(
    "gated",
    "no paper",
    "Waits at a gate",
    Config,
    Vector,
    begin,
    plan,
    memory=Count,
    prepare=prepare,
    presets={"tiny": {"rounds": 3}},
)


@record
class Matrix:
    """What is sent and kept: w (24, 24)."""

    model: Weights = field(doc="a matrix")


@record
class Moved:
    """What is answered."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="the matrix, moved")


def begin_weights(config: Config, world: World, roster: Roster, rng: Generator) -> Matrix:
    return Matrix({"w": torch.randn(24, 24, generator=rng)})


@step()
def move(order: Matrix, memory: Nothing, site: Site) -> Outcome[Moved, Nothing]:
    """Wait at the gate, then add noise; nothing is remembered."""
    pass_gate(site)
    return Outcome(Moved({"w": order.model["w"] + torch.randn(24, 24, generator=site.rng)}), memory)


def mean_weights(state: Matrix, replies: Replies[Moved], turn: Turn) -> Matrix:
    return Matrix({"w": sum((r.model["w"] for r in replies.values()), torch.zeros(24, 24)) / len(replies)})


def plan_weights(config: Config) -> Plan:
    """The same exchange, over and over."""
    return (Phase("move", move, ask=to_all, fold=mean_weights),) * config.rounds


gated_weights = Algorithm(
    "gated_weights", "no paper", "Waits at a gate", Config, Matrix, begin_weights, plan_weights, presets={"tiny": {"rounds": 3}}
)
METHODS = (("gated", "tests.acceptance.gated:gated"), ("gated_weights", "tests.acceptance.gated:gated_weights"))
