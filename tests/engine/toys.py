"""A tiny method that can be told to misbehave, and a stage to play it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from tests.laws.stage import Stage
from tests.synthetic import NAMES, experiment, sites
from tideline.core.algorithm import Algorithm, Methods
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate


@dataclass(frozen=True)
class Config:
    """What the toy does, and what goes wrong: `fault` at the client `who` in round `when`."""

    rounds: int = setting(3, low=0, doc="rounds")
    fault: str = setting("", doc="what goes wrong")
    who: str = setting("bert", doc="where")
    when: int = setting(2, low=0, doc="in which round")
    floor: int | None = setting(None, doc="the phase's own least number of replies")


@record
class Sum:
    """The coordinator's state, and what it sends: v (d,) and named tensors."""

    v: Tensor = field("d", doc="a vector")
    model: Weights = field(doc="named tensors")


@record
class Part:
    """A site's answer."""

    v: Tensor = field("d", Exposure.STATISTIC, doc="the vector, moved")
    model: Weights = field("like model", Exposure.WEIGHTS, doc="the tensors, moved")


@record
class Diary:
    """A site's memory: how often it has worked, and a sum of what it was sent."""

    times: int = field(doc="steps run")
    seen: Tensor = field("d", doc="sum of v over the steps")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Sum:
    if config.fault == "begin":
        raise ValueError("begin is broken")
    return Sum(torch.randn(4, generator=rng), {"w": torch.randn(3, 2, generator=rng)})


def prepare(config: Config, site: Site) -> Diary:
    return Diary(0, torch.zeros(4))


@step(metrics=("loss",))
def work(order: Sum, memory: Diary, site: Site) -> Outcome[Part, Diary]:
    """Move everything by a random step and a little memory."""
    moved = order.v + torch.randn(4, generator=site.rng) + 0.1 * memory.seen
    good = Outcome(
        Part(moved, {"w": order.model["w"] + torch.randn(3, 2, generator=site.rng)}),
        Diary(memory.times + 1, memory.seen + order.v),
        {"loss": float(moved.norm())},
    )
    c: Config = site.config
    return faulty(c.fault, good) if site.me == c.who and site.round == c.when else good


def faulty(fault: str, good: Outcome[Any, Any]) -> Any:
    """What a step must not give."""
    match fault:
        case "raises":
            raise ValueError("the label of row 3 is SECRET")
        case "metric undeclared":
            return replace(good, metrics={"loss": 1.0, "spy": 2.0})
        case "metric infinite":
            return replace(good, metrics={"loss": float("inf")})
        case "metric text":
            return replace(good, metrics={"loss": "SECRET"})
        case "message of another type":
            return replace(good, message=Nothing())
        case "memory of another type":
            return replace(good, memory=Nothing())
        case "nothing at all":
            return None
        case "nan":
            return replace(good, message=replace(good.message, v=good.message.v * float("nan")))
        case "shape":
            return replace(good, message=replace(good.message, model={"w": torch.zeros(2, 2)}))
        case "name":
            return replace(good, message=replace(good.message, model={"u": torch.zeros(3, 2)}))
        case "key":
            return replace(good, message=replace(good.message, model={7: torch.zeros(3, 2)}))
    return good


def to_all(state: Sum, turn: Turn) -> Mapping[ClientId, Sum]:
    if turn.config.fault == "stranger":
        return {ClientId("nobody"): state}
    if turn.config.fault == "ask" and turn.round == turn.config.when:
        raise KeyError("ask is broken")
    return dict.fromkeys(turn.members(), state)


def mean(state: Sum, replies: Replies[Part], turn: Turn) -> Sum:
    if turn.config.fault == "tell" and turn.round == turn.config.when:
        raise ZeroDivisionError("tell is broken")
    if turn.config.fault == "infinite" and turn.round == turn.config.when:
        return replace(state, v=state.v * float("inf"))
    n = len(replies)
    v = sum((reply.v / n for reply in replies.values()), torch.zeros(4))
    return Sum(
        0.5 * state.v + v + torch.randn(4, generator=turn.rng),
        {"w": sum((r.model["w"] / n for r in replies.values()), torch.zeros(3, 2))},
    )


def predict(order: Sum, memory: Diary, site: Site, x: Tensor) -> Tensor:
    return x[:, :3]


def plan(c: Config) -> Plan:
    move = Phase("move", work, ask=to_all, fold=mean, floor=c.floor, sampled=True)
    score = evaluate(lambda state, turn: dict.fromkeys(turn.members(), state), predict, takes=Sum, keeps=Diary)
    return (move,) * c.rounds + (score,)


toy = Algorithm(
    "toy", "No paper", "Moves a vector about", Config, Sum, begin, plan, Diary, prepare, presets={"tiny": {"rounds": 3}}
)
METHODS: Methods = (("toy", "tests.engine.toys:toy"), ("fedavg", "tideline.algorithms.averaging:fedavg"))
# What an order of a plain run tells its site.
BRIEF_KEYS = frozenset(["method", "config", "world", "threads", "keeps", "contract", "role", "version", "scoring", "intent"])
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}


def stage(**changed: Any) -> Stage:
    """Three sites."""
    return Stage(METHODS, sites(NAMES[:3]) | changed)


def start(on: Stage, *, rounds: int = 3, fault: str = "", config: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """A run of the toy."""
    settings = {"rounds": rounds, "fault": fault, **(config or {})}
    return on.start(experiment("toy", more.pop("roster", ROSTER), config=settings, **more))


def until(on: Stage, run: Any, cursor: int) -> None:
    """Play until an exchange is open and nobody has answered it."""
    for action in on.actions(run):
        action()
        if on.row(run).cursor == cursor:
            return
    raise AssertionError(f"{on.row(run).status}: {on.row(run).cause}")
