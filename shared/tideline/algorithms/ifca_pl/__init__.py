"""IFCA with pseudo-labels (Ghosh et al.: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020), as Mori et al.
compare with it: prototype labels, fixed for the round, and information maximisation.

The coordinator keeps k models. Each round every site without labels takes the one that suits its rows best and adapts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.source_free import begun, known_too, method, source
from tideline.algorithms.source_free.adapting import adapt, labelled, own_labels, seen
from tideline.algorithms.source_free.family import Adapting, Mine, Model
from tideline.algorithms.source_free.private import PRIVATELY, adapting_spends, seen_rows, shares
from tideline.algorithms.source_free.source import network
from tideline.core.algorithm import Algorithm
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.phase import Folded, Phase, Plan, Replies, Turn, to
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import EMPTY, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.private.statistics import Bound, statistics, statistics_spend
from tideline.learning.private.words import SUMMED, TRAINED
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.labels.prototypes import information_maximisation

LEAST = torch.finfo(torch.float32).tiny  # of a probability, so that its logarithm is finite


@dataclass(frozen=True)
class Config(Adapting):
    """Settings of IFCA."""

    k: int = setting(3, low=1, high=100, doc="models; as many as there are domains, where that is known")
    noise: float = setting(0.01, low=0.0, doc="by how much the first k models differ, in units of each tensor's deviation")


@record
class Models:
    """Down: the k models, of which the site takes one."""

    f: Weights = field(doc="theta_1")
    others: tuple[Weights, ...] = field(doc="theta_2 .. theta_k")
    g: Weights = field(doc="the classifier of the source")


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


def spends(config: Config, privacy: Privacy) -> tuple[Charge, ...]:
    """The choice, and adaptation."""
    return (*statistics_spend(privacy), *adapting_spends()(config, privacy))


@step(metrics=("loss",), spends=spends)
def choose(order: Models, memory: Mine, site: Site[Config]) -> Outcome[Chosen, Mine]:
    """E epochs from the model with the least F, the first of equals. One network is in memory; the models are files."""
    models = (order.f, *order.others)
    net = network(site, order.f, order.g)
    if site.private:
        suits = noised_unfitness(net, models, order.g, site, site.private)
    else:
        suits = [unfitness(filled(net, {**f, **order.g}), site) for f in models]
    best = suits.index(min(suits))
    loss = adapt(filled(net, {**models[best], **order.g}), site, own_labels(site))
    f = layers.backbone_of(nets.weights_of(net))
    return Outcome(Chosen(f, functional.one_hot(torch.tensor(best), len(models)).float()), memory, {"loss": loss})


def filled(net: nn.Module, h: Weights) -> nn.Module:
    """The network with other weights, in place."""
    net.load_state_dict(dict(h))
    return net


def unfitness(net: nn.Module, site: Site[Config]) -> float:
    """F(theta) = L_IM + the cross-entropy with theta's own pseudo-labels, over all rows, in evaluation mode.

    Infinite for a model whose outputs are not finite, so that one that another site spoilt is not chosen.
    """
    given = seen(net, site)
    if not bool(torch.isfinite(given.z).all()) or not bool(torch.isfinite(given.p).all()):
        return math.inf
    log_p = given.p.double().clamp_min(LEAST).log()
    labels = labelled(given, site.config).labels
    return float(information_maximisation(log_p) + functional.nll_loss(log_p, labels))


def noised_unfitness(net: nn.Module, models: tuple[Weights, ...], g: Weights, site: Site[Config], meter: Meter) -> list[float]:
    """F of each model in a run that protects rows, from one vector of noised sums: the mean output, the mean entropy, and the
    mean cross-entropy with the likeliest class. A row's are log M at most, and 0 for a row whose outputs are not finite.
    """
    M, rows = site.world.classes, meter.asked.rows

    def of(x: Tensor) -> list[Tensor]:
        outs = torch.stack([seen_rows(filled(net, {**f, **g}), x)[1] for f in models], 1).double()
        log_p = outs.clamp_min(LEAST).log()
        costs = torch.stack([-(outs * log_p).sum(2), -log_p.amax(2)], 2)
        return [outs, costs]

    k = len(models)
    bounds = (Bound(math.sqrt(k), k * M), Bound(math.sqrt(2 * k) * math.log(M), k * 2))
    outs, costs = statistics(site, meter, of, bounds)
    o = [shares(each, rows) for each in outs.view(k, M)]
    return [float((p * p.log()).sum() + cost.sum() / rows) for p, cost in zip(o, costs.view(k, 2), strict=True)]


# At the coordinator


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> State:
    """A network at random, which the sources train; the k models are made of what they send."""
    h = source.drawn(world)
    return State(h.f, h.g, (), {})


def scattered(f: Weights, noise: float, rng: Generator) -> dict[str, Tensor]:
    """f + N(0, s^2), s = noise times the standard deviation of each tensor that is trained; what batch norm measures stays."""
    made, trained = dict(f), layers.parameters(f)
    for name in sorted(trained):
        w = f[name]
        s = noise * float(w.double().std(correction=0))
        made[name] = w + s * torch.randn(w.shape, generator=rng, dtype=w.dtype)
    return made


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

ifca_pl: Algorithm[Config, State, Mine] = method(
    "ifca_pl",
    "Ghosh et al.: An Efficient Framework for Clustered Federated Learning, 2020",
    "Sites without labels adapt the one of k models that suits them best",
    Config,
    plan,
    start=START,
    begin=begin,
    sizes=sizes,
    claims=CLAIMS,
    result=known_too(model_of),
    privately=(*PRIVATELY, "a site chooses among the k models by noised sums of outputs and entropies, with the likeliest class"),
)
