"""KD3A: a target without labels learns what the models of labelled sources agree on, and weighs sources by it.

Feng et al., "KD3A: Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation", ICML 2021.

The tables of probabilities that the target votes by are in no message and no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.averaging.messages import counted
from tideline.algorithms.kd3a.private import PRIVATELY, noised_qualities, sets_of, unmixed, voters_row_by_row
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.family import EndCounts, Mine, Model
from tideline.algorithms.source_free.source import check_rows, network, parts
from tideline.core.algorithm import Algorithm, InitialWeights, RunModel, SiteModels
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.phase import MOST_VALUES, Folded, Phase, Plan, Replies, Table, Turn, to, to_all
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.rows import ANYTHING, Takes
from tideline.core.run import Role
from tideline.core.settings import BATCH, EPOCHS, ROUNDS, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import Loss, training_spends
from tideline.learning.local_training import COSINE, SCHEDULES, LocalTraining, loss_at, train_at
from tideline.learning.private.statistics import statistics_spend
from tideline.learning.private.words import NUMBER, SUMMED, TRAINED
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.divergences import batch_norm_distance
from tideline.numerics.labels import knowledge
from tideline.numerics.labels.knowledge import leave_one_out, shapley

LOCAL, MIXED, SHAPLEY = "local", "mixed", "shapley"
EXACT = 6  # sources up to which all 2^S sets are looked at


@dataclass(frozen=True)
class KD3A(EndCounts, LocalTraining):
    """Settings of KD3A."""

    rounds: int = setting(100, low=1, high=100_000, sizes=ROUNDS, doc="rounds, R")
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs a round, E")
    batch: int = setting(32, low=2, sizes=BATCH, doc="rows in a mini-batch")
    schedule: str = setting(COSINE, choices=SCHEDULES, doc="the rate over the rounds")
    gate: float = setting(0.9, low=0.0, high=1.0, doc="g of the first round: how sure a source must be to vote")
    last_gate: float = setting(0.95, low=0.0, high=1.0, doc="g of the last round; between them it rises in a straight line")
    distillation: str = setting(MIXED, choices=(MIXED, "paper"), doc="of mixed rows, as the code does, or as the paper prints it")
    focus: str = setting(SHAPLEY, choices=(SHAPLEY, "paper"), doc="consensus focus: Shapley value (up to 6 sources), or left out")
    smoothing: float = setting(0.9, low=0.0, high=1.0, doc="share of the last round's weights in the new ones")
    counted: bool = setting(False, doc="the paper's weights: a_T by counts of rows, a_k by n_k CF(k)")
    heads: str = setting(
        "averaged", choices=("averaged", LOCAL), doc="whether classifiers are averaged, or stay with their sites"
    )
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")


@record
class Trained:
    """Up, from a source: w_k. The target gets it as it is."""

    f: Weights = field(
        "like f",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        private=TRAINED,
        doc="the extractor as the source trained it, for the target",
    )
    g: Weights = field(
        "like g",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        private=TRAINED,
        doc="the classifier as the source trained it, for the target",
    )


@record
class Counted(Trained):
    """Up, from a source, where weights go by counts: the same, and n_k."""

    samples: int = field("", Exposure.COUNT, low=1, private=NUMBER, doc="labelled training rows at the source")


@record
class Lesson(Model):
    """Down, to the target: the common model, and the models of the sources, without names."""

    sources: tuple[Model, ...] = field(doc="w_k of each source that has answered")
    shares: Tensor = field("parts", doc="zeros, for the target and each source, which the target's weights take the place of")


@record
class Distilled:
    """Up, from the target: its model, and how much each model should weigh."""

    f: Weights = field("like f", Exposure.WEIGHTS, private=TRAINED, doc="the extractor after distillation")
    g: Weights | None = field(
        "like g", Exposure.WEIGHTS, private=TRAINED, doc="the classifier after distillation; none where heads are local"
    )
    a: Tensor = field(
        "parts", Exposure.STATISTIC, low=0, private=SUMMED, doc="weight of the target, and of each source by consensus focus"
    )


@record
class DistilledCounted(Distilled):
    """Up, from the target, where weights go by counts: the same, and n_T."""

    samples: int = field("", Exposure.COUNT, low=1, private=NUMBER, doc="training rows at the target, all without labels")


@record
class State(Model):
    """What the coordinator knows: the common model; where heads are local, its classifier is the one that all began from."""

    taught: dict[str, Model] = field(doc="w_k of the sources that have trained in this round")
    samples: dict[str, int] = field(doc="n_k of these, where weights go by counts")
    weights: dict[str, float] = field(doc="the smoothed weight of each site that has been in an average")


# At a site


@step(metrics=("loss",), spends=lambda config, privacy: training_spends(config.epochs, privacy))
def train(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Trained, Mine]:
    """E epochs of cross-entropy from w on the source's rows."""
    net = begun(order.f, order.g, memory, site)
    loss = descended(net, site, loss_at(site))
    made = parts(nets.weights_of(net))
    return Outcome(Trained(made.f, made.g), next_memory(made, memory, site), {"loss": loss})


def distilling(config: KD3A, privacy: Privacy) -> tuple[Charge, ...]:
    """The sums that weights are made of, and training."""
    return (*statistics_spend(privacy), *training_spends(config.epochs, privacy))


@step(metrics=("loss", "confident"), spends=distilling)
def distil(order: Lesson, memory: Mine, site: Site[KD3A]) -> Outcome[Distilled, Mine]:
    """Vote, distil, weigh."""
    check_rows(site)
    gate = gate_of(site.config, site.round)
    if site.private:
        p = voters_row_by_row(order.sources, site)
        agreed = knowledge.vote(p, gate)
        contributions, sure = noised_focus(order.sources, gate, site, site.private)
    else:
        p = torch.stack(list(voters(order.sources, site)))
        agreed = knowledge.vote(p, gate)
        contributions, sure = focus(p, gate, site.config), float(agreed.sure.double().mean())
    a = knowledge.shares(contributions, sure)
    net = begun(order.f, order.g, memory, site)
    numbered = replace(site, data=replace(site.data, y=torch.arange(len(site.data))))
    if site.config.distillation != MIXED:
        distilled = as_printed(agreed)
    else:
        distilled = unmixed(agreed) if site.private else mixed(agreed, site)
    loss = descended(net, numbered, distilled)
    made = parts(nets.weights_of(net))
    sent = Distilled(made.f, None if site.config.heads == LOCAL else made.g, a)
    return Outcome(sent, next_memory(made, memory, site), {"loss": loss, "confident": sure})


train_counted, distil_counted = counted(train, Counted), counted(distil, DistilledCounted)


def voters(sources: tuple[Model, ...], site: Site[KD3A]) -> Iterator[Tensor]:
    """p_k (n, K) of each source on the target's rows, float32: one model in memory, the others are files."""
    for done, h in enumerate(sources, 1):
        yield knowledge.finite(outputs(network(site, h.f, h.g), site.data.x, site.device).softmax(1))
        site.tick(done / (2 * len(sources)))


def focus(p: Tensor, gate: float, c: KD3A) -> Tensor:
    """CF(k) of each source (S,) by its tables p (S, n, K): what the quality of the consensus owes to it."""
    top, label = knowledge.strongest(p)

    def quality(T: tuple[int, ...]) -> float:
        return knowledge.quality(top[list(T)], label[list(T)], p.shape[2], gate)

    return game(c, len(p))(quality, len(p))


def noised_focus(sources: tuple[Model, ...], gate: float, site: Site[KD3A], meter: Meter) -> tuple[Tensor, float]:
    """CF(k) of each source (S,), and the share of rows of which some source is sure, in a run that protects rows."""
    S, how = len(sources), game(site.config, len(sources))
    sets = sets_of(S, exact=how is shapley)
    found, sure = noised_qualities(sources, sets, gate, site, meter)
    by_set = dict(zip(sets, found.tolist(), strict=True))
    return how(lambda T: by_set.get(T, 0.0), S), sure


def game(c: KD3A, S: int) -> Callable[[knowledge.Value, int], Tensor]:
    """What each of S sources adds, by the qualities of sets of them."""
    return shapley if c.focus == SHAPLEY and S <= EXACT else leave_one_out


def mixed(agreed: knowledge.Vote, site: Site[KD3A]) -> Loss:
    """Each row of a batch is mixed with another, by a share that the batch draws; it counts if the first of the two is sure."""

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        order = torch.randperm(len(x), generator=site.rng)
        share = knowledge.share_of_pair(torch.rand(3, generator=site.rng))
        at = rows.cpu()
        vote = (agreed.label[at], agreed.label[at[order]], agreed.sure[at].to(x.dtype))
        label, partner, weight = (each.to(x.device) for each in vote)
        logits = net(share * x + (1 - share) * x[order.to(x.device)])
        return knowledge.mixed_cross_entropy(logits, label, partner, share, weight)

    return loss


def as_printed(agreed: knowledge.Vote) -> Loss:
    """mean of n_V KL(pbar || h(x)); a row of which no source is sure counts for 0.001."""
    weight = torch.where(agreed.sure, agreed.support.float(), torch.tensor(knowledge.UNSURE))

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        at = rows.cpu()
        return knowledge.weighted_divergence(net(x), agreed.mean[at].to(x.device), weight[at].to(x.device))

    return loss


def gate_of(c: KD3A, r: int) -> float:
    """g of round r, from 1: in a straight line from the first round to the last."""
    return c.gate + (c.last_gate - c.gate) * (r - 1) / max(c.rounds - 1, 1)


def begun(f: Weights, g: Weights, memory: Mine, site: Site[KD3A]) -> nn.Module:
    """Where a site begins: the common model; with the site's own classifier where heads are local."""
    return network(site, f, own_head(g, memory, site))


def own_head(g: Weights, memory: Mine, site: Site[KD3A]) -> Weights:
    """The classifier that the site uses: the common one, or its own once it has one."""
    return memory.g if site.config.heads == LOCAL and memory.g else g


def next_memory(made: Model, memory: Mine, site: Site[KD3A]) -> Mine:
    """The next memory: the site's own classifier where heads are local, and whatever it is scored with."""
    return replace(memory, g=made.g) if site.config.heads == LOCAL else memory


def descended(net: nn.Module, site: Site[KD3A], loss: Loss) -> float:
    """E epochs of SGD in place; the mean loss of the last."""
    c: KD3A = site.config
    check_rows(site)
    return train_at(site, net, loss, epochs=c.epochs, batch=c.batch)


def used_now(order: Model, memory: Mine, site: Site[KD3A]) -> Mine:
    """The model that the site would use now. It stores that, and its owner may export it."""
    return Mine(order.f, own_head(order.g, memory, site))


# At the coordinator


def store_models(state: State, replies: Replies[Trained | Counted], turn: Turn[KD3A]) -> State:
    taught = {str(k): Model(reply.f, reply.g) for k, reply in replies.items()}
    counts = {str(k): reply.samples for k, reply in replies.items() if isinstance(reply, Counted)}
    return replace(state, taught=taught, samples=counts)


def lesson(state: State, turn: Turn[KD3A]) -> Lesson:
    """w and all w_k, in the order of their sources' names."""
    sources = tuple(state.taught[k] for k in sorted(state.taught))
    return Lesson(state.f, state.g, sources, torch.zeros(1 + len(sources), dtype=torch.float64))


def average(state: State, replies: Replies[Distilled | DistilledCounted], turn: Turn[KD3A]) -> Folded[State]:
    """w <- a_T w_T + sum_k a_k w_k, what batch norm measured included."""
    ((target, reply),) = replies.items()
    a = smoothed(state.weights, given(state, target, reply), turn.config.smoothing)
    models: dict[str, Model] = {**state.taught, target: Model(reply.f, reply.g or {})}
    f = weighted_sum((a[k], models[k].f) for k in a)
    g = state.g if turn.config.heads == LOCAL else classifier(a, models)
    made = State(f=f, g=g, taught={}, samples={}, weights={**state.weights, **a})
    return Folded(made, tables=tables(a, reply.f, state.taught))


def classifier(a: Mapping[str, float], models: Mapping[str, Model]) -> dict[str, Tensor]:
    """The average of the classifiers that were sent, which are all of them unless the target's agent is not ours."""
    sent = [k for k in a if models[k].g]
    return weighted_sum(zip(simplex([a[k] for k in sent]), (models[k].g for k in sent), strict=True))


def given(state: State, target: str, reply: Distilled | DistilledCounted) -> dict[str, float]:
    """The weights of this round, on the simplex, the target's first: as the target says; by counts, as the paper has it.

    By counts a_T = n_T / n, and a_k goes by n_k CF(k). Weights that are all 0, which no agent of ours sends, are equal.
    """
    names = [target, *sorted(state.taught)]
    a = dict(zip(names, simplex(reply.a.double().tolist()), strict=True))
    if not isinstance(reply, DistilledCounted):
        return a
    own = reply.samples / (reply.samples + sum(state.samples.values()))
    others = simplex([a[k] * state.samples[k] for k in names[1:]])
    return dict(zip(names, [own, *((1 - own) * each for each in others)], strict=True))


def simplex(values: list[float]) -> list[float]:
    """Numbers that are not negative, divided by their sum; equal ones where that is 0."""
    total = sum(values)
    return [value / total if total > 0 else 1 / len(values) for value in values]


def smoothed(old: Mapping[str, float], new: Mapping[str, float], share: float) -> dict[str, float]:
    """share old + (1 - share) new, over the sites of this round; a site that had no weight yet counts with its new one."""
    before = simplex([old.get(k, each) for k, each in new.items()])
    return {k: share * was + (1 - share) * each for was, (k, each) in zip(before, new.items(), strict=True)}


def tables(a: Mapping[str, float], own: Weights, taught: Mapping[str, Model]) -> dict[str, Table]:
    """The weight of each model, and how far what batch norm measured is from the target's."""
    names = tuple(sorted(a))[: MOST_VALUES // 2]
    weight = {"weight of each site": Table(names, ("weight",), tuple((a[k],) for k in names))}
    sources = simplex([a[k] for k in taught])
    terms = zip(sources, (h.f for h in taught.values()), strict=True)
    distance = batch_norm_distance(own, terms)
    return weight if distance is None else {**weight, "batch-norm distance": Table(("distance",), ("distance",), ((distance,),))}


START: source.Start[KD3A, State] = source.Start(
    State, lambda h, config, rng: State(f=h.f, g=h.g, taught={}, samples={}, weights={})
)


def common(config: KD3A, world: World, state: State) -> Weights:
    """The common model; none where each site has a classifier of its own."""
    return {} if config.heads == LOCAL else {**state.f, **state.g}


def plan(c: KD3A) -> Plan[KD3A, State]:
    """(train, distil) x R, scored; which classes are taken for which, if that is asked for."""
    # Counts leave a site only where they are used.
    teach, learn = (train_counted, distil_counted) if c.counted else (train, distil)
    work = (
        Phase("train", teach, ask=to(Turn.sources, Model), fold=store_models, asks=(Role.SOURCE,)),
        Phase("distil", learn, ask=to(Role.TARGET, lesson), fold=average, asks=(Role.TARGET,)),
    )
    score: Phase[KD3A, State] = source.score(Mine, to_all(Model), kept=used_now, asks=())
    return (*scored(c, work, score), *source.end_counts(c, source.predict_own, Mine))


CLAIMS = (
    "The target's tables of probabilities, votes and consensus never leave it; it sends its model and a weight for each.",
    "A source's model goes to the target as it is, in one list with those of the others, without names.",
    "The number of a site's rows is not sent, unless weights go by counts (counted: true).",
    "Not claimed: that a source which lies weighs nothing. Shapley values and smoothing leave it a part.",
    "Not claimed: that weights tell nothing about the target. They say whose data its own are like.",
)


def takes(c: KD3A) -> Takes:
    """Rows are mixed, unless it is done as the paper prints it."""
    return (
        Takes(why="mixes rows, which are amounts then (config.distillation: paper mixes none)")
        if c.distillation == MIXED
        else ANYTHING
    )


kd3a = Algorithm(
    name="kd3a",
    paper="Feng et al.: KD3A: Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation, 2021",
    summary="A site without labels learns what the sources' models agree on, and weighs them by it",
    config=KD3A,
    state=State,
    begin=START.begin,
    plan=plan,
    memory=Mine,
    prepare=source.prepare,
    fits=source.needs_one_target,
    takes=takes,
    presets={
        "tiny": {"rounds": 2, "batch": 16, "rate": 0.05, "gate": 0.5, "last_gate": 0.6},
        "demo": {"rounds": 10, "rate": 0.03, "gate": 0.8},
        # As measured in benchmarks/README.md.
        "digits": {"rounds": 20, "rate": 0.03, "gate": 0.8, "evaluate_every": 5},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    network="lenet_bn",
    keepsakes=source.keepsakes,
    result=(RunModel(common), SiteModels(source.own_model, roles=(Role.SOURCE, Role.TARGET))),
    initial_weights=InitialWeights(START.begin_with, source.needs_one_target),
    claims=CLAIMS,
    privately=PRIVATELY,
)
