"""A method for tests: sites say that they have begun and wait at a gate in the file system, then are scored."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Turn, unchanged
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate


@dataclass(frozen=True)
class Config:
    """Where the gate is."""

    rounds: int = setting(1, low=1, doc="exchanges")
    gate: str = setting("", doc="a folder; the first client waits there for a file named go; without one nobody waits")
    fails: bool = setting(False, doc="whether the step fails")


@record
class Guess:
    """What everybody predicts."""

    c: int = field(doc="a class")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Guess:
    return Guess(int(torch.randint(world.classes, (), generator=rng)))


@step()
def wait(order: Nothing, memory: Nothing, site: Site) -> Outcome[Nothing, Nothing]:
    config: Config = site.config
    if config.fails:
        raise ValueError("as it was asked to")
    if config.gate and site.me == "client-1":
        gate = Path(config.gate)
        with (gate / "begun").open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not (gate / "go").exists():
            site.tick(0.5)
            time.sleep(0.01)
    return Outcome(Nothing(), memory)


def nothing_to_all(state: Guess, turn: Turn) -> dict[ClientId, Nothing]:
    return dict.fromkeys(turn.members(), Nothing())


def guess_to_all(state: Guess, turn: Turn) -> dict[ClientId, Guess]:
    return dict.fromkeys(turn.members(), state)


def predict(order: Guess, memory: Nothing, site: Site, x: Tensor) -> Tensor:
    return torch.eye(site.world.classes)[order.c].expand(len(x), -1)


def plan(config: Config) -> Plan:
    return (Phase("wait", wait, ask=nothing_to_all, fold=unchanged), evaluate(guess_to_all, predict, takes=Guess)) * config.rounds


gate = Algorithm("gate", "no paper", "Waits at a gate", Config, Guess, begin, plan, presets={"tiny": {}})
METHODS = (("gate", "tests.cli.gate:gate"),)
