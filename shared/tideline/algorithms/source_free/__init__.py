"""Source-free adaptation: sites without labels adapt a model whose source data are gone.

The references of Mori et al. (Federated Source-free Domain Adaptation for Classification: Weighted Cluster Aggregation for
Unlabeled Data): the source model as it is; SHOT at each site alone; SHOT under federated averaging, plain or with FedProx's term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.averaging.sums import by_rows, mean_of
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.adapting import adapt, near, own_labels
from tideline.algorithms.source_free.family import DEMO, TINY, Adapting, Counted, Mine, Model, Source, Taught, of_source
from tideline.algorithms.source_free.private import PRIVATELY, Penalty, adapting_spends
from tideline.core.algorithm import Algorithm, InitialWeights, Result, RunModel, SiteModels
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Sums, Turn, to
from tideline.core.record import Nothing, Record, Weights
from tideline.core.rows import ANYTHING, Takes
from tideline.core.run import Role, Roster
from tideline.core.settings import EMPTY, ROUNDS, Plain, Settings, pull, setting
from tideline.core.step import Outcome, Site, Step, step
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum

A = TypeVar("A", bound=Adapting)
C = TypeVar("C", bound=Settings)
P = TypeVar("P", bound=Source)
S = TypeVar("S")
M = TypeVar("M")
LEAST = 2  # rows of a site that adapts
CAST = (Role.SOURCE, Role.TARGET, Role.TARGET)
SHOT_PAPER = "Liang, Hu, Feng: Do We Really Need to Access the Source Data? Source Hypothesis Transfer, 2020"


@dataclass(frozen=True)
class SourceOnly(Source):
    """Settings of the source model alone."""

    rounds: int = setting(0, low=0, high=0, sizes=ROUNDS, doc="always 0: nothing is adapted")


@dataclass(frozen=True)
class Shot(Adapting):
    """Settings of SHOT at each site alone."""

    score_own: bool = setting(
        True,
        later=True,
        doc="whether sites' own models are scored; false: nothing leaves of what is learnt, which costs nothing then",
    )


@dataclass(frozen=True)
class FedProx(Adapting):
    """Settings of SHOT under FedProx."""

    mu: float = setting(1e-2, low=0.0, sizes=pull("rate"), doc="weight of the proximal term; 0 is SHOT under FedAvg, bit for bit")


def spends_alone(config: Shot, privacy: Privacy) -> tuple[Charge, ...]:
    """Adaptation that a scoring tells of; nothing where none does."""
    return adapting_spends(lambda c: False)(config, privacy) if config.score_own else ()


@step(metrics=("loss", "samples"), spends=spends_alone)
def alone(order: Model, memory: Mine, site: Site[Shot]) -> Outcome[Nothing, Mine]:
    """E epochs of SHOT on the site's own model, labels anew before each; h_S is where it begins. Nothing leaves.

    In a run that protects rows a model that is scored later has noise; another one never leaves the site, and has none.
    """
    if site.private and not site.config.score_own:
        if len(site.data) < LEAST:  # a refusal would tell
            return Outcome(Nothing(), memory)
        site = replace(site, private=None)
    net = source.network(site, memory.f or order.f, order.g)
    loss = adapt(net, site, own_labels(site), fixed=False)
    mine = Mine(layers.backbone_of(nets.weights_of(net)), order.g)
    return Outcome(Nothing(), mine, {"loss": loss, "samples": len(site.data)})


# The model that the site has made; h_S, which came, where it has made none yet.
SCORE_OWN: Phase[Settings, Model] = source.score(
    Mine, kept=lambda order, memory, site: memory if memory.f else Mine(order.f, order.g), name="score_own"
)


def plan_of_shot(c: Shot) -> Plan[Shot, Model]:
    """Source, its score, then each target alone."""
    work: Phase[Shot, Model] = Phase("adapt", alone, ask=to(Role.TARGET, Model), sampled=True, asks=(Role.TARGET,))
    if not c.score_own:
        return (*begun_alone(c), *(work,) * c.rounds)
    grade: Phase[Shot, Model] = SCORE_OWN
    return (*begun_alone(c), *scored(c, (work,), grade))


def begun(
    c: P, fold: Callable[[S, Replies[Taught], Turn[P]], S], memory: type[Record] = Mine, sums: Sums[P, S] | None = None
) -> Plan[P, S]:
    """The exchanges with the sources, and what the source model scores at the targets. memory: the method's memory type. sums: of
    what they send, where the method needs single replies nowhere else.
    """
    sources = to(Turn.sources, Model)
    teach = Phase("source", source.training(memory), ask=sources, fold=fold, sums=sums, asks=(Role.SOURCE,))
    return (*(teach,) * c.source_rounds, source.source_only(memory))


def begun_alone(c: P) -> Plan[P, Model]:
    """The same of a method whose state is the network alone, and which looks at no single model."""
    return begun(c, source.ALONE.take_source, sums=mean_of(by_rows, {"f": "f", "g": "g"}))


def averaged(penalty: Callable[[A, Model], Penalty] | None = None) -> Callable[[A], Plan[A, Model]]:
    """The plan of SHOT under averaging: f down, f_k up, the mean by n_k; labels by the model that came, for the whole round.

    penalty: FedProx's term; FedAvg has none of its own.
    """

    def run(order: Model, memory: Mine, site: Site[A]) -> Outcome[Counted, Mine]:
        net = source.network(site, order.f, order.g)
        loss = adapt(net, site, own_labels(site), penalty=penalty(site.config, order) if penalty else None)
        f = layers.backbone_of(nets.weights_of(net))
        return Outcome(Counted(f, site.samples), memory, {"loss": loss, "samples": len(site.data)})

    adapting = Step(name="adapt", run=run, takes=Model, keeps=Mine, gives=Counted, metrics=("loss", "samples"))
    paid = replace(adapting, spends=adapting_spends())
    adapted = mean_of(by_rows, {"f": "f"})
    work = Phase("adapt", paid, ask=to(Role.TARGET, Model), fold=mean, sampled=True, sums=adapted, asks=(Role.TARGET,))
    return lambda c: (*begun_alone(c), *scored(c, (work,), source.score(Mine)))


def mean(state: Model, replies: Replies[Counted], turn: Turn[Source]) -> Model:
    """f <- sum_k (n_k / n) f_k, buffers with the same shares; g stays."""
    n = sum(reply.samples for reply in replies.values())
    return Model(weighted_sum((reply.samples / n, reply.f) for reply in replies.values()), state.g)


# What a site's memory holds in the end: the model that it is scored with.
OWN: tuple[SiteModels[Settings, object, Mine]] = (SiteModels(source.own_model),)
# Of methods with one model, h, for all sites.
COMMON: tuple[RunModel[Settings, Model], SiteModels[Settings, object, Mine]] = (
    RunModel(lambda config, world, state: {**state.f, **state.g}),
    *OWN,
)


def known_too(models: Callable[[S, str], Weights]) -> Result[C, S, M]:
    """A site keeps its own model, and the coordinator knows it: models(state, site) is its f."""

    def known(config: C, world: World, state: S, site: str) -> Weights:
        return {**models(state, site), **state.g}  # type: ignore[attr-defined]

    return (SiteModels(source.own_model, known),)  # type: ignore[arg-type]


def method(
    name: str,
    paper: str,
    summary: str,
    config: type[C],
    plan: Callable[[C], Plan[C, S]],
    *,
    start: source.Start[C, S],
    begin: Callable[[C, World, Roster, Generator], S] | None = None,
    memory: type[M] = Mine,  # type: ignore[assignment]
    prepare: Callable[[C, Site[C]], M] = source.prepare,  # type: ignore[assignment]
    keepsakes: Callable[[C, M], Mapping[str, Mapping[str, Tensor]]] = source.keepsakes,  # type: ignore[assignment]
    check: Callable[[C, World, Roster], None] = lambda config, world, roster: None,
    takes: Callable[[C], Takes] = lambda config: ANYTHING,
    presets: Mapping[str, Mapping[str, Plain]] | None = None,
    sizes: Callable[[C, World], Mapping[str, int]] = lambda config, world: EMPTY,
    notes: Callable[[C, World], tuple[str, ...]] = lambda config, world: (),
    notes_with_weights: Callable[[C, World, Roster], tuple[str, ...]] = lambda config, world, roster: (),
    network: str = "lenet_bn",
    claims: tuple[str, ...] = (),
    result: Result[C, S, M] = OWN,  # type: ignore[assignment]
    privately: tuple[str, ...] = PRIVATELY,
    unprotected: str = "",
    summed: Algorithm[C, Any, Any] | None = None,
) -> Algorithm[C, S, M]:
    """A member of the family. Unless it is said otherwise, a site keeps its own model, which the coordinator does not know."""
    return Algorithm(
        name=name,
        paper=paper,
        summary=summary,
        config=config,
        state=start.state,
        begin=begin or start.begin,
        plan=plan,
        memory=memory,
        prepare=prepare,
        fits=source.with_check(source.needs_both, check),
        takes=takes,
        presets=presets or {"tiny": TINY, "demo": DEMO},
        cast=CAST,
        network=network,
        keepsakes=keepsakes,
        sizes=sizes,
        notes=notes,
        claims=claims,
        initial_weights=InitialWeights(start.begin_with, source.with_check(source.needs_targets, check), notes_with_weights),
        result=result,
        privately=() if unprotected else privately,
        unprotected=unprotected,
        summed=summed,
    )


source_model: Algorithm[SourceOnly, Model, Mine] = method(
    "source_model",
    "Reference point: the source model, applied to the target unchanged",
    "The model of a labelled source, as it is",
    SourceOnly,
    lambda c: (*begun_alone(c), source.score(Mine)),
    start=source.ALONE,
    result=COMMON,
    privately=(),
    presets={"tiny": of_source(TINY), "demo": of_source(DEMO)},
)

shot: Algorithm[Shot, Model, Mine] = method(
    "shot",
    SHOT_PAPER,
    "Each site without labels adapts the source model alone",
    Shot,
    plan_of_shot,
    start=source.ALONE,
    privately=(*PRIVATELY, "with config.score_own false a target's model has no noise: it stays there, and nothing tells of it"),
)

fedavg_shot: Algorithm[Adapting, Model, Mine] = method(
    "fedavg_shot",
    f"{SHOT_PAPER}; McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017",
    "Sites without labels adapt one common model",
    Adapting,
    averaged(),
    start=source.ALONE,
    result=COMMON,
)

fedprox_pl: Algorithm[FedProx, Model, Mine] = method(
    "fedprox_pl",
    f"{SHOT_PAPER}; Li et al.: Federated Optimization in Heterogeneous Networks, 2020",
    "Sites without labels adapt one common model, kept near it",
    FedProx,
    averaged(lambda c, order: near(c.mu, order.f)),
    start=source.ALONE,
    result=COMMON,
)
