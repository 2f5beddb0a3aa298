"""A method that learns nothing and groups its sites, and tells tables of them, as it is asked to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Generator

from tests.laws.stage import Stage, registered
from tests.synthetic import NAMES, experiment, sites
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.phase import Folded, Phase, Plan, Replies, Table, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
# Words that stand in no message of a run but for those that this method tells people.
NORTH, SOUTH, WEIGHT = "the-north-cluster", "the-south-cluster", "the-weight-of-each"
# Words and numbers of a table for admins alone.
SECRET, DEPTH, WIDTH, NUMBER = "the-place-of-each", "the-depth", "the-width", 0.718281828


@dataclass(frozen=True)
class Config:
    """Its settings. fault: a name of FAULTS, told in the last round."""

    rounds: int = setting(3, low=1, doc="exchanges")
    fault: str = setting("", doc="what is told that is not kept")
    secret: bool = setting(False, doc="whether a table for admins is told too")


@record
class Count:
    """The state, and what is sent."""

    n: int = field(doc="rounds so far")


@record
class Size:
    """What comes back."""

    n: int = field("", Exposure.COUNT, doc="the round")


@step()
def count(order: Count, memory: Nothing, site: Site) -> Outcome[Size, Nothing]:
    """The round."""
    return Outcome(Size(site.round), memory)


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Count:
    """Nothing is counted."""
    return Count(0)


def to_all(state: Count, turn: Turn) -> dict[ClientId, Count]:
    """The state."""
    return dict.fromkeys(turn.members(), state)


def groups(turn: Turn) -> dict[str, tuple[ClientId, ...]]:
    """The first site alone, and from round 3 on the second with it; a group that nobody is in."""
    everybody, cut = turn.members(), 1 if turn.round < 3 else 2
    return {SOUTH: everybody[cut:], NORTH: everybody[:cut], "nobody": ()}


def weights(turn: Turn) -> Table:
    """A third of the round for each site of a role."""
    rows = turn.members()
    return Table(rows, tuple(Role), tuple(tuple(turn.round / 3 if role in "source" else 0 for role in Role) for _ in rows))


def secret(turn: Turn) -> Table:
    """A table that admins alone are shown."""
    return Table((DEPTH, WIDTH), ("at",), ((NUMBER + turn.round,), (NUMBER,)), admins=True)


def fold(state: Count, replies: Replies[Size], turn: Turn) -> Folded[Count]:
    """Groups and a table, or a fault; the mark says who came first."""
    given: dict[str, Any] = {"groups": groups(turn), "tables": {WEIGHT: weights(turn)}}
    if turn.config.secret:
        given["tables"] |= {SECRET: secret(turn)}
    if turn.round == turn.config.rounds and turn.config.fault:
        given |= FAULTS[turn.config.fault]
    return Folded(Count(state.n + len(replies)), {"first": (next(iter(replies)),)}, **given)


def plan(c: Config) -> Plan:
    """Exchanges with words for people, then one that has none."""
    return (Phase("count", count, ask=to_all, fold=fold),) * c.rounds + (Phase("quiet", count, ask=to_all),)


def wide(rows: int, columns: int, value: float = 0.5) -> Table:
    """A table of one value."""
    return Table(tuple(f"r{i}" for i in range(rows)), tuple(f"c{i}" for i in range(columns)), ((value,) * columns,) * rows)


A, B, NOBODY = ClientId("anna"), ClientId("bert"), ClientId("nobody")
# What no round may tell, and the numbers that it may.
FAULTS: Mapping[str, Mapping[str, Any]] = {
    "stranger": {"groups": {"one": (A, NOBODY)}},
    "two groups": {"groups": {"one": (A, B), "two": (B,)}},
    "twice": {"groups": {"one": (A, A)}},
    "long group": {"groups": {"g" * 201: (A,)}},
    "nameless group": {"groups": {"": (A,)}},
    "numbered group": {"groups": {1: (A,)}},
    "no table": {"tables": {"t": [[1.0]]}},
    "too many values": {"tables": {"one": wide(100, 100), "two": wide(1, 1)}},
    "too many tables": {"tables": {f"t{i}": wide(1, 1) for i in range(33)}},
    "long table": {"tables": {"t" * 201: wide(1, 1)}},
    "two lines": {"tables": {"a\nb": wide(1, 1)}},
    "long row": {"tables": {"t": Table(("r" * 201,), ("c",), ((1.0,),))}},
    "same column": {"tables": {"t": Table(("r",), ("c", "c"), ((1.0, 2.0),))}},
    "ragged": {"tables": {"t": Table(("r", "s"), ("c",), ((1.0,), (1.0, 2.0)))}},
    "no rows": {"tables": {"t": Table((), ("c",), ())}},
    "nan": {"tables": {"t": wide(2, 2, float("nan"))}},
    "infinite": {"tables": {"t": wide(2, 2, float("-inf"))}},
    "half a secret": {"tables": {"t": Table(("r",), ("c",), ((1.0,),), admins=1)}},  # type: ignore[arg-type]
    "odd drawing": {"tables": {"t": Table(("r",), ("c",), ((1.0,),), drawn="cake")}},
    "text": {"tables": {"t": Table(("r",), ("c",), (("much",),))}},  # type: ignore[arg-type]
    "as much as there may be": {"tables": {"t" * 200: wide(100, 100)}, "groups": {"g" * 200: (A,)}},
}
clusters = Algorithm("clusters", "No paper", "Groups its sites", Config, Count, begin, plan, presets={"tiny": {}})


def played(**config: Any) -> tuple[Stage, Any]:
    """A run of it that has ended."""
    on = Stage(registered(clusters), sites(NAMES[:3]))
    run = on.start(experiment("clusters", ROSTER, config=config))
    on.play(run)
    return on, run
