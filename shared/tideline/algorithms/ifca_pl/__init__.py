"""IFCA with pseudo-labels (Ghosh et al.: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020), as Mori et al.
compare with it: prototype labels, fixed for the round, and information maximisation.

The coordinator keeps k models. Each round every site without labels takes the one that suits its rows best and adapts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Generator, Tensor

from tideline.algorithms.averaging import scored
from tideline.algorithms.ifca_pl import summed
from tideline.algorithms.ifca_pl.choosing import Config, Models, fitted, one_hot, scattered, spends
from tideline.algorithms.source_free import begun, known_too, method, source
from tideline.algorithms.source_free.family import Mine, Model
from tideline.algorithms.source_free.private import PRIVATELY
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.phase import Folded, Phase, Plan, Replies, Turn, to
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import EMPTY
from tideline.core.step import Outcome, Site, step
from tideline.learning.private.words import SUMMED, TRAINED
from tideline.numerics.aggregation.averaging import weighted_sum


@record
class Chosen:
    """Up: which model suited the site, and what it became there. Where no other site chose it, that goes to all as it is."""

    f: Weights = field(
        "like f",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        private=TRAINED,
        doc="the chosen model's backbone and bottleneck after local adaptation",
    )
    choice: Tensor = field(
        "k", Exposure.STATISTIC, low=0, private=SUMMED, doc="1 at the model that the site chose, 0 at the others"
    )


@record
class State(Model):
    """What the coordinator knows: h_S, with which a site that has not chosen is scored, and the k models."""

    models: tuple[Weights, ...] = field(doc="theta_1 .. theta_k; none before the source model is known")
    chosen: dict[str, int] = field(doc="the place of the model that each site chose last, from 0")


# At a site


@step(metrics=("loss",), spends=spends)
def choose(order: Models, memory: Mine, site: Site[Config]) -> Outcome[Chosen, Mine]:
    """The model that suits it best, adapted, and which one that is."""
    made = fitted(order, site)
    return Outcome(Chosen(made.f, one_hot(made.best, 1 + len(order.others))), memory, {"loss": made.loss})


# At the coordinator


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> State:
    """A network at random, which the sources train; the k models are made of what they send."""
    h = source.drawn(world)
    return State(h.f, h.g, (), {})


def models(state: State, turn: Turn[Config]) -> Models:
    first, *others = state.models
    return Models(first, tuple(others), state.g)


def own(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """The model that it chose last, as it is now, to every target; h_S to one that has not chosen."""
    made = [Model(f, state.g) for f in state.models]
    none = Model(state.f, state.g)
    return {k: made[state.chosen[k]] if k in state.chosen else none for k in turn.members(Role.TARGET)}


def model_of(state: State, site: str) -> Weights:
    """f of the model that a site chose last; f_S for one that has not chosen."""
    return state.models[state.chosen[site]] if site in state.chosen else state.f


def fold(state: State, replies: Replies[Chosen], turn: Turn[Config]) -> Folded[State]:
    """theta_j: the plain mean of the replies that chose it, unchanged where none did; and who chose which, if that changed."""
    now: dict[str, int] = {k: place(reply.choice) for k, reply in replies.items()}
    models = []
    for j, f in enumerate(state.models):
        members = [k for k in replies if now[k] == j]
        models.append(weighted_sum((1 / len(members), replies[k].f) for k in members) if members else f)
    chosen = dict(sorted({**state.chosen, **now}.items()))
    names = (tuple(ClientId(k) for k in chosen if chosen[k] == j) for j in range(len(models)))
    groups = {f"model {j}": members for j, members in enumerate(names, 1)} if chosen != state.chosen else EMPTY
    return Folded(replace(state, models=tuple(models), chosen=chosen), groups=groups)


def place(choice: Tensor) -> int:
    """Where a choice (k,) is largest, the first of equals: a place that exists, whatever a site says."""
    return int(choice.double().argmax())


# k models about f_S; no site has chosen yet.
START: source.Start[Config, State] = source.Start(
    State, lambda h, c, rng: State(h.f, h.g, tuple(scattered(h.f, c.noise, rng) for _ in range(c.k)), {})
)


def plan(c: Config) -> Plan[Config, State]:
    work = Phase("adapt", choose, ask=to(Role.TARGET, models), fold=fold, sampled=True, asks=(Role.TARGET,))
    return (*begun(c, START.take_source), *scored(c, (work,), source.score(Mine, own)))


def sizes(config: Config, world: World) -> Mapping[str, int]:
    """A choice is one of k."""
    return {"k": config.k}


CLAIMS = (
    "The choice tells the coordinator which sites have like data. No site is told another's choice.",
    "A model that a single site chose is that site's own, and is sent to all in the next round: so f is declared for peers.",
    "Not claimed: that a site cannot guess. A model that came back as it was is one that nobody chose.",
    "Counts of rows are not sent: all who chose a model count alike.",
)

NAME = "ifca_pl"
PAPER = "Ghosh et al.: An Efficient Framework for Clustered Federated Learning, 2020"
SUMMARY = "Sites without labels adapt the one of k models that suits them best"
NOISED = (*PRIVATELY, "a site chooses among the k models by noised sums of outputs and entropies, with the likeliest class")

where_summed: Algorithm[Config, summed.State, summed.Choosing] = method(
    NAME,
    PAPER,
    SUMMARY,
    Config,
    summed.plan,
    start=summed.START,
    begin=summed.begin,
    memory=summed.Choosing,
    prepare=summed.prepare,
    sizes=sizes,
    claims=summed.CLAIMS,
    privately=NOISED,
)

ifca_pl: Algorithm[Config, State, Mine] = method(
    NAME,
    PAPER,
    SUMMARY,
    Config,
    plan,
    start=START,
    begin=begin,
    sizes=sizes,
    claims=CLAIMS,
    result=known_too(model_of),
    privately=NOISED,
    summed=where_summed,
)
