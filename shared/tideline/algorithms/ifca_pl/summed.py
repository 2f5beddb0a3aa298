"""The method where sums are secure: each site puts what it made of a model in that model's block, and zeros in all others.

The coordinator gets the sum of each block, and how many sites there are in it, and not which. So a site keeps its choice itself,
and is sent all k models to be scored with one. A block of one site is that site's model as it is: the contract says so.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from tideline.algorithms.averaging import scored
from tideline.algorithms.averaging.sums import by_rows, mean_of
from tideline.algorithms.ifca_pl.choosing import Config, Models, check_k, fitted, one_hot, scattered, spends
from tideline.algorithms.source_free import begun, source
from tideline.algorithms.source_free.family import Mine, Model
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.phase import Folded, Phase, Plan, Sums, Table, Turn, to
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import Role, Roster
from tideline.core.step import Outcome, Site, step
from tideline.learning.private.words import SUMMED, TRAINED
from tideline.numerics.aggregation.sums import SHARE, mean_from, shapes_of, terms

IN_EACH = "sites of each model"  # a table of each round
LONE = "where one site alone chose a model, what it made of that is in the sum as it is, without its name"


@record
class Put:
    """Up, to be added up: what a site made of a model, in the block of that model."""

    f: Weights = field(
        "like f",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        private=TRAINED,
        doc="the chosen model's backbone and bottleneck after local adaptation",
    )
    choice: Tensor = field(
        "k", Exposure.COUNT, low=0, private=SUMMED, doc="1 at the model that the site chose, 0 at the others: how many chose each"
    )


@record
class Offered:
    """Down, to be scored: h_S for a site that has not chosen, and all k models for one that has."""

    f: Weights = field(doc="f of the source model")
    models: tuple[Weights, ...] = field(doc="theta_1 .. theta_k")
    g: Weights = field(doc="the classifier of the source")


@record
class Choosing(Mine):
    """A site's memory: the model that is its own in the end, and its choice."""

    choice: int = field(doc="which model it chose last, from 1; 0: none yet")


@record
class State(Model):
    """What the coordinator knows: h_S and the k models."""

    models: tuple[Weights, ...] = field(doc="theta_1 .. theta_k; none before the source model is known")
    seed: int = field(doc="of what the first models differ by")


# At a site


def prepare(config: Config, site: Site[Config]) -> Choosing:
    return Choosing({}, {}, 0)


@step(metrics=("loss",), spends=spends)
def put(order: Models, memory: Choosing, site: Site[Config]) -> Outcome[Put, Choosing]:
    """The model that suits it best, adapted. Which one that is stays in its memory."""
    made = fitted(order, site)
    reply = Put(made.f, one_hot(made.best, 1 + len(order.others)))
    return Outcome(reply, replace(memory, choice=1 + made.best), {"loss": made.loss})


def with_choice(order: Offered, memory: Choosing, site: Site[Config]) -> Choosing:
    """As many models are asked for whatever was chosen: of fewer, those who chose the others would fail, and so be known."""
    check_k(len(order.models), site.config)
    return replace(memory, f=order.models[memory.choice - 1] if memory.choice else order.f, g=order.g)


def block(place: int, name: str) -> str:
    return f"model {place + 1}/{name}"


def blocks(order: Models, config: Config, world: World) -> dict[str, tuple[int, ...]]:
    shapes = shapes_of(order.f).items()
    return {block(j, name): shape for j in range(1 + len(order.others)) for name, shape in shapes}


def in_blocks(reply: Put, order: Models, site: Site[Config], asked: SecureSums) -> dict[str, Tensor]:
    """How far the site has moved the model that it chose, in that model's block; zeros in the others."""
    models, here = (order.f, *order.others), int(reply.choice.argmax())
    own = terms(reply.f, models[here], 1.0, asked.clip)
    nothing = {name: torch.zeros(()).expand(value.shape) for name, value in own.items()}
    return {block(j, name): value for j in range(len(models)) for name, value in (own if j == here else nothing).items()}


# At the coordinator


def of(h: Model, config: Config, seed: int) -> State:
    """k models about f_S."""
    rng = Generator().manual_seed(seed)
    return State(h.f, h.g, tuple(scattered(h.f, config.noise, rng) for _ in range(config.k)), seed)


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> State:
    h = source.drawn(world)
    return State(h.f, h.g, (), seed_from(rng))


def seed_from(rng: Generator) -> int:
    return int(torch.randint(2**31, (), generator=rng))


START: source.Start[Config, State] = source.Start(State, lambda h, c, rng: of(h, c, seed_from(rng)))
TAUGHT: Sums[Config, State] = mean_of(by_rows, {"f": "f", "g": "g"})


def take_source(total: Weights, state: State, turn: Turn[Config], asked: SecureSums) -> State:
    """With the sum of what the sources trained."""
    h = TAUGHT.fold(total, state, turn, asked)
    assert isinstance(h, State), "it reports nothing"
    return of(Model(h.f, h.g), turn.config, state.seed)


def models(state: State, turn: Turn[Config]) -> Models:
    first, *others = state.models
    return Models(first, tuple(others), state.g)


def fold(total: Weights, state: State, turn: Turn[Config], asked: SecureSums) -> Folded[State]:
    """theta_j: the plain mean of those who chose it, unchanged where nobody did; and how many did."""
    parts = [{name: total[block(j, name)] for name in shapes_of(f)} for j, f in enumerate(state.models)]
    made = tuple(dict(mean_from(part, f, asked.clip)) for part, f in zip(parts, state.models, strict=True))
    counts = tuple((float(part[SHARE]),) for part in parts)
    names = tuple(f"model {j}" for j in range(1, 1 + len(made)))
    return Folded(replace(state, models=made), tables={IN_EACH: Table(names, ("sites",), counts)})


SUMS: Sums[Config, State] = Sums(shapes=blocks, of=in_blocks, fold=fold, lone=LONE)


def plan(c: Config) -> Plan[Config, State]:
    work: Phase[Config, State] = Phase("adapt", put, ask=to(Role.TARGET, models), sums=SUMS, asks=(Role.TARGET,))
    score: Phase[Config, State] = source.score(Choosing, to(Role.TARGET, Offered), takes=Offered, kept=with_choice)
    taught = replace(TAUGHT, fold=take_source)
    return (*begun(c, START.take_source, memory=Choosing, sums=taught), *scored(c, (work,), score))


CLAIMS = (
    "Which model a site chose is not told: a coordinator that plays by the rules learns how many sites chose each.",
    "A model that a single site chose is that site's own: the coordinator has it, without a name, and all sites are sent it.",
    "Not claimed: that nobody can guess what a site chose. Its score is its own, and is told: of other models than were offered"
    " to choose from, it tells which one a site has.",
    "Counts of rows are not sent: all who chose a model count alike.",
)
