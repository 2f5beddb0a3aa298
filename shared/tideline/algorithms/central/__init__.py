"""Central training: one model on the pooled rows of all labelled sites. The reference for what federated methods could reach.

It is no federated method: rows leave their sites. Owners allow that in their policies, or no site joins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tideline import nets
from tideline.algorithms.averaging import PRESETS, Training, needs_teachers, predict, scored
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.central import client, server
from tideline.algorithms.central.messages import State
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.record import Nothing
from tideline.core.run import Roster, World
from tideline.core.settings import setting
from tideline.learning.evaluate import evaluate


@dataclass(frozen=True)
class Central(Training):
    """Settings of central training."""

    rounds: int = setting(10, low=0, high=100_000, doc="rounds of training, R; R x E epochs in all")
    epochs: int = setting(1, low=1, doc="epochs on the pooled rows a round, E")
    most_rows: int = setting(100_000, low=1, high=100_000_000, doc="rows that a site sends at most; of more, drawn at random")


def plan(c: Central) -> Plan[Central, State]:
    """Pool, then (learn, score) x R. Learning asks nobody: it is a computation on the coordinator."""
    pool = Phase("pool", client.pool, ask=server.to_learners, fold=server.gather)
    learn = Phase("learn", None, fold=server.learn)
    score = evaluate(server.model_to_all, predict, takes=Model, confidence=c.confidence)
    rounds = scored(c, learn, replace(score, fold=server.telling(score.fold)))
    return (pool, *rounds) if c.rounds else rounds


def fits(config: Central, world: World, roster: Roster) -> None:
    """The network fits the world, and somebody has labels. Raises ConfigRefused, RosterRefused."""
    nets.check(world)
    needs_teachers(config, roster)


def fits_brought(config: Central, world: World, roster: Roster) -> None:
    """The same; but weights that were brought may be scored, in no rounds, where nobody has labels."""
    return fits(config, world, roster) if config.rounds else nets.check(world)


def sizes(config: Central, world: World) -> Mapping[str, int]:
    """A row is as long as the world says."""
    return {"inputs": math.prod(world.inputs)}


def notes(config: Central, world: World) -> tuple[str, ...]:
    """That this is what federated learning is there to avoid."""
    return (
        "data leave the sites: each labelled site sends its training rows and their labels to the coordinator, which trains on"
        f" them; a site with more than {config.most_rows} sends as many, drawn at random",
    )


CLAIMS = (
    "Training rows and their labels leave the site as they are, once. Held-out rows do not, and neither do a target's rows.",
    "The coordinator lets the rows go with the last round of training. Those of a run that ends before stay with its last state.",
    "No other site is told anything of them but the model that was trained on all.",
)

central: Algorithm[Central, State, Nothing] = Algorithm(
    "central",
    "Reference point: one model on the pooled data, as in the comparisons of federated learning",
    "One model, trained at the coordinator on the labelled sites' rows, which leave them",
    Central,
    State,
    server.begin,
    plan,
    fits=fits,
    presets=PRESETS,
    notes=notes,
    sizes=sizes,
    claims=CLAIMS,
    initial_weights=InitialWeights(server.begin_from, fits_brought),
)
