"""Central training: one model on the pooled rows of all labelled sites. The reference for what federated methods could reach.

It is no federated method: rows leave their sites. Owners allow that in their policies, or no site joins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import PRESETS, Training, at_random, learners, needs_teachers, predict, scored
from tideline.algorithms.averaging.messages import Model
from tideline.core.algorithm import Algorithm, InitialWeights, RunModel
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, StepFailed
from tideline.core.phase import Folded, Phase, Plan, Replies, Table, Turn, folded, marked, to, to_all
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.rows import MemoryRows, dtype_of
from tideline.core.run import Roster
from tideline.core.settings import EPOCHS, ROUNDS, setting
from tideline.core.step import Data, Outcome, Site, step
from tideline.learning.evaluate import evaluate
from tideline.learning.fit import fit
from tideline.learning.local_training import criterion, optimiser_of
from tideline.learning.scoring.telling import Histogram

Scored: TypeAlias = "Callable[[State, Replies[Histogram], Turn[Central]], State | Folded[State]]"
LEAST = 2  # rows in all, so that a batch has a variance, which batch norm needs
LOST = "rounds of training that were not taken"


@dataclass(frozen=True)
class Central(Training):
    """Settings of central training."""

    rounds: int = setting(10, low=0, high=100_000, sizes=ROUNDS, doc="rounds of training, R; R x E epochs in all")
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="epochs on the pooled rows a round, E")
    most_rows: int = setting(100_000, low=1, high=100_000_000, doc="rows that a site sends at most; of more, drawn at random")


@record
class Rows:
    """Up: a site's labelled training rows, as the world's network takes them, each in one line of numbers."""

    x: Tensor = field("n inputs", Exposure.SAMPLES, doc="the training rows themselves")
    y: Tensor = field("n", Exposure.SAMPLES, low=0, doc="their labels")


@record
class Held:
    """The rows of one site while the coordinator trains. No dims: sites have different numbers of rows."""

    x: Tensor = field(doc="training rows (n, inputs)")
    y: Tensor = field(doc="their labels (n,)")


@record
class State:
    """What the coordinator knows: the model, and until it is trained the rows of every site."""

    model: Weights = field(doc="parameters and buffers of the network, by name")
    rows: dict[str, Held] = field(doc="what each site sent; none from the last round of training on")
    lost: int = field(doc="rounds of training whose numbers did not stay finite, so that the model stayed as it was")


# At a site


@step(metrics=("samples",))
def pool(order: Nothing, memory: Nothing, site: Site[Central]) -> Outcome[Rows, Nothing]:
    """The rows with their labels; of more than `most_rows`, as many, drawn at random. Held-out rows stay."""
    c: Central = site.config
    x, y = site.data.x, site.data.y
    assert y is not None, "only labelled sites are asked"
    if len(x) > c.most_rows:
        chosen = torch.randperm(len(x), generator=site.rng)[: c.most_rows]
        x, y = x.at(chosen), y[chosen]
    return Outcome(Rows(x.all("central training").to(dtype_of(site.world)).flatten(1), y), memory, {"samples": len(y)})


# At the coordinator


def begin_from(config: Central, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    return State(weights, {}, 0)


def gather(state: State, replies: Replies[Rows], turn: Turn[Central]) -> Folded[State]:
    """The rows of those that can be learnt from. Raises StepFailed where too few are left to learn anything."""
    rows: dict[str, Held] = {k: Held(given.x, given.y) for k, given in replies.items() if usable(given, turn)}
    n = sum(len(given.y) for given in rows.values())
    if n < LEAST:
        what = f"{n} labelled rows were gathered that can be learnt from; training needs {LEAST}"
        raise StepFailed(what, "Look at what the sites' data folders hold: tideline data check")
    return Folded(replace(state, rows=rows), marked({"left out": (k for k in replies if k not in rows)}))


def usable(given: Rows, turn: Turn[Central]) -> bool:
    """Whether there are rows, no more than were asked for, and labels and token ids are the world's: they may be any numbers."""
    y, most = given.y.double(), turn.config.most_rows
    classes = bool(((y == y.floor()) & (y < turn.world.classes)).all())
    return 0 < len(y) <= most and classes and known(given.x, turn.world)


def known(x: Tensor, world: World) -> bool:
    """Whether token ids are of the vocabulary. Numbers may be any."""
    return not world.tokens or (not x.is_floating_point() and bool(((x >= 0) & (x < world.vocabulary)).all()))


def learn(state: State, replies: Replies[Nothing], turn: Turn[Central]) -> State:
    """E epochs on all rows. Weights that are no longer finite are not taken; after the last round the rows are let go."""
    c: Central = turn.config
    net = nets.loaded(turn.world, state.model)
    data = pooled(state, turn.world)
    measure = criterion(c, data.y, turn.world.classes)
    by = optimiser_of(c, net.parameters(), turn.round)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return measure(net(x), y)

    fit(net, data, loss, by, epochs=c.epochs, batch=c.batch, rng=turn.rng, clip=c.clip_gradient)
    made = nets.weights_of(net)
    finite = all(bool(torch.isfinite(w).all()) for w in made.values())
    rows = state.rows if turn.round < c.rounds else {}
    return State(made, rows, state.lost) if finite else State(state.model, rows, state.lost + 1)


def pooled(state: State, world: World) -> Data:
    """The rows of all sites, in the order of their names; the domains are the sites."""
    names = tuple(sorted(state.rows))
    x = torch.cat([state.rows[k].x.to(dtype_of(world)) for k in names]).view(-1, *world.inputs)
    y = torch.cat([state.rows[k].y.long() for k in names])
    domain = torch.cat([torch.full((len(state.rows[k].y),), i) for i, k in enumerate(names)])
    return Data(MemoryRows(x), y, domain, names)


def telling(fold: Scored) -> Scored:
    """The tables of a scoring, and whether rounds of training before it were not taken: those have no tables of their own."""

    def both(state: State, replies: Replies[Histogram], turn: Turn[Central]) -> State | Folded[State]:
        given = fold(state, replies, turn)
        if not state.lost:
            return given
        count = Table(("rounds so far",), ("not finite",), ((float(state.lost),),))
        return replace(folded(given), tables={**folded(given).tables, LOST: count})

    return both


def plan(c: Central) -> Plan[Central, State]:
    """Pool, then (learn, score) x R. Learning sends no orders: it is a computation on the coordinator."""
    first = Phase("pool", pool, ask=to(learners, Nothing), fold=gather)
    work = Phase("learn", None, fold=learn)
    score: Phase[Central, State] = evaluate(to_all(Model), predict, takes=Model, confidence=c.confidence)
    rounds = scored(c, (work,), replace(score, fold=telling(score.fold)))
    return (first, *rounds) if c.rounds else rounds


def fits(config: Central, world: World, roster: Roster) -> None:
    """The network fits the world, and a client has labels. Raises ConfigRefused, RosterRefused."""
    nets.check(world)
    needs_teachers(config, roster)
    if config.patience:
        what = f"config.patience is {config.patience}, and with central the coordinator trains, which has no rows for validation"
        raise ConfigRefused(what, "Leave patience out", path="config.patience")


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
    name="central",
    paper="Reference point: one model on the pooled data, as in the comparisons of federated learning",
    summary="One model, trained at the coordinator on the labelled sites' rows, which leave them",
    config=Central,
    augments=False,
    state=State,
    begin=at_random(begin_from),
    plan=plan,
    fits=fits,
    presets=PRESETS,
    notes=notes,
    sizes=sizes,
    claims=CLAIMS,
    unprotected="rows themselves leave their sites",
    # Initial weights may be scored, in no rounds, where no client has labels.
    initial_weights=InitialWeights(
        begin_from, lambda c, world, roster: fits(c, world, roster) if c.rounds else nets.check(world)
    ),
    result=(RunModel(lambda config, world, state: state.model),),
)
