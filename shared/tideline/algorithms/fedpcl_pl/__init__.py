"""FedPCL with pseudo-labels (Tan et al.: Federated Learning from Pre-Trained Models: A Contrastive Learning Approach, NeurIPS
2022), as Mori et al. compare with it.

The source's feature extractor stays as it is. Each site without labels trains a small head over it, which never leaves; what
sites share are prototypes: the mean projection of each class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.source_free import begun, method, source
from tideline.algorithms.source_free.adapting import seen
from tideline.algorithms.source_free.family import DEMO, TINY, Local, Mine, Model, Taught
from tideline.algorithms.source_free.private import seen_rows
from tideline.algorithms.source_free.source import network
from tideline.core.algorithm import SiteModels
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn, to
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.settings import BATCH, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import fit_at, training_spends
from tideline.learning.local_training import optimiser, rate_at
from tideline.learning.private.statistics import Bound, each_row, statistics, statistics_spend
from tideline.learning.private.words import SUMMED
from tideline.nets.forms import PROTOTYPES
from tideline.numerics.labels.prototypes import Sets, class_means, classified, contrast, mean_prototypes, pseudo_labels

# At a site

HIDDEN, WIDTH = 512, 256
LEAST = 5  # rows of a class that is sent: the mean of fewer would nearly be one of them


@dataclass(frozen=True)
class Config(Local):
    """Settings of FedPCL. The local SGD trains a site's head alone."""

    batch: int = setting(32, low=1, sizes=BATCH, doc="rows in a mini-batch")
    tau: float = setting(70.0, low=1e-6, doc="temperature of the softmax over prototypes; 0.07 with normalise: true")
    normalise: bool = setting(False, doc="projections and prototypes of unit length")


@record
class Common:
    """Down: what all sites have in common."""

    f: Weights = field(doc="f_S, which never changes")
    g: Weights = field(doc="g_S, which never changes")
    seed: int = field(doc="seed of the projection head's initialisation")
    mean: Tensor = field("classes width", doc="Cbar^c, the mean over the sites that have the class; zeros where none has")
    present: Tensor = field("classes", doc="which classes have a prototype")


@record
class Lesson:
    """Down, to train: what is common, and every site's prototypes, without a word of whose they are."""

    common: Common = field(doc="what all sites have in common")
    each: Tensor = field("sites classes width", doc="C_j^c of each site that sent any; zeros where it has none of the class")
    there: Tensor = field("sites classes", doc="which of them exist")


@record
class Described:
    """Up: a site's prototypes. They go to all sites as they are."""

    prototypes: Tensor = field(
        "classes width",
        Exposure.STATISTIC,
        audience=TO_BOTH,
        private=SUMMED,
        doc="C_i^c, the mean projection of the rows with each pseudo-label, for all sites; zeros for fewer than 5 rows",
    )
    counts: Tensor = field(
        "classes", Exposure.COUNT, low=0, private=SUMMED, doc="rows with each pseudo-label; 0 for a class of fewer than 5"
    )


@record
class Memory(Mine):
    """A site's memory: h_S and its own head. Empty before its first exchange."""

    head: Weights = field(doc="the site's own projection head p")
    mean: Tensor = field(doc="Cbar^c (classes, width), as the site was sent them last")
    present: Tensor = field(doc="which classes have a prototype (classes,)")


@record
class State(Model):
    """What the coordinator knows: h_S and all prototypes."""

    seed: int = field(doc="seed of every site's projection head")
    prototypes: dict[str, Tensor] = field(doc="C_i^c (classes, width) as each site sent them last")
    counts: dict[str, Tensor] = field(doc="its rows of each class (classes,)")


def prepare(config: Config, site: Site[Config]) -> Memory:
    """No head yet: its seed comes with the first order."""
    return Memory(f={}, g={}, head={}, mean=torch.zeros(0, 0), present=torch.zeros(0, dtype=torch.bool))


@step(spends=lambda config, privacy: statistics_spend(privacy))
def describe(order: Common, memory: Memory, site: Site[Config]) -> Outcome[Described, Memory]:
    """The first prototypes, by the head as it was drawn."""
    head = head_of(order, memory, site)
    if site.private:
        return Outcome(noised(order, head, site, site.private), next_memory(order, head))
    z, labels = labelled_rows(order, site)
    return Outcome(described(head, z, labels, site), next_memory(order, head))


def learning(config: Config, privacy: Privacy) -> tuple[Charge, ...]:
    """Prototypes, and training."""
    return (*statistics_spend(privacy), *training_spends(config.epochs, privacy))


@step(metrics=("loss",), spends=learning)
def learn(order: Lesson, memory: Memory, site: Site[Config]) -> Outcome[Described, Memory]:
    """E epochs of SGD on the head alone, and the prototypes by the head as it then is."""
    c: Config = site.config
    z, labels = (likeliest_rows if site.private else labelled_rows)(order.common, site)
    head = head_of(order.common, memory, site)
    mean = sets(order.common.mean[None], order.common.present[None], site)
    each = sets(order.each, order.there, site)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return contrast(aligned(net(x), c), y, mean, each, c.tau)

    by = optimiser(c, head.parameters(), rate_at(c, c.rate, site.round, c.rounds), c.momentum, c.weight_decay)
    rows = replace(site.data, x=MemoryRows(z), y=labels)
    value = fit_at(site, head, loss, by, epochs=c.epochs, batch=c.batch, data=rows, clip=c.clip_gradient)
    common = order.common
    sent = noised(common, head, site, site.private) if site.private else described(head, z, labels, site)
    return Outcome(sent, next_memory(common, head), {"loss": value})


def predict(order: Common, memory: Memory, site: Site[Config], x: Tensor) -> Tensor:
    """z . Cbar^c for the classes that have a prototype; the source model's outputs where none has."""
    net = network(site, order.f, order.g)
    if not bool(order.present.any()):
        return outputs(net, x, site.device)
    head, c = head_of(order, memory, site), site.config
    z = aligned(outputs(head, nets.features(net, x, site.device), site.device), c)
    return classified(z, aligned(order.mean, c), order.present)


def labelled_rows(order: Common, site: Site[Config]) -> tuple[Tensor, Tensor]:
    """f_S of the site's rows (n, q), and their prototype labels (n,): the same each round, as f_S is frozen."""
    given = seen(network(site, order.f, order.g), site)
    return given.z, pseudo_labels(given.z, given.p).labels


def likeliest_rows(order: Common, site: Site[Config]) -> tuple[Tensor, Tensor]:
    """The same in a run that protects rows: features, and the class that the source model says of each row by itself."""
    net, q = network(site, order.f, order.g), nets.width(site.world)

    def of(x: Tensor) -> Tensor:
        z, p = seen_rows(net, x)
        return torch.cat([z, p.argmax(1, keepdim=True).to(z.dtype)], 1)

    found = each_row(site, of)
    return found[:, :q], found[:, q].long()


def noised(order: Common, head: nn.Module, site: Site[Config], meter: Meter) -> Described:
    """C_i^c in a run that protects rows: noised sums of projections by noised counts, of classes with enough of these.

    A projection counts with its length, privacy.clip at most; those of unit length with 1.
    """
    net, M = network(site, order.f, order.g), site.world.classes
    longest = 1.0 if site.config.normalise else meter.asked.clip

    def of(x: Tensor) -> list[Tensor]:
        z, p = seen_rows(net, x)
        hot = functional.one_hot(p.argmax(1), M).double()
        projected = aligned(head.eval()(z), site.config)
        return [hot, hot[:, :, None] * projected[:, None, :]]

    count, total = statistics(site, meter, of, (Bound(1.0, M), Bound(longest, M * WIDTH)))
    counts = count.round().clamp_min(0).long()
    counts *= counts >= max(LEAST, site.least_per_class)
    means = total.view(M, WIDTH) / counts.clamp_min(1)[:, None]
    return Described((means * (counts > 0)[:, None]).float(), counts)


def described(head: nn.Module, z: Tensor, labels: Tensor, site: Site[Config]) -> Described:
    """C_i^c of the classes with enough rows."""
    projected = aligned(outputs(head, z, site.device), site.config)
    return Described(*class_means(projected, labels, site.world.classes, max(LEAST, site.least_per_class)))


def aligned(z: Tensor, c: Config) -> Tensor:
    """Rows (..., w) of unit length, where that is asked for; zeros stay."""
    return functional.normalize(z, dim=-1) if c.normalise else z


def sets(prototypes: Tensor, present: Tensor, site: Site[Config]) -> Sets:
    """Prototypes (S, M, w) as projections are compared with them, on the site's device."""
    return Sets(aligned(prototypes, site.config).to(site.device), present.to(site.device))


def head_of(order: Common, memory: Memory, site: Site[Config]) -> nn.Module:
    """The site's own head, on its device; in the beginning that of the common seed."""
    head = drawn(order.seed, nets.width(site.world))
    if memory.head:
        head.load_state_dict(dict(memory.head))
    return head.to(site.device)


def drawn(seed: int, q: int) -> nn.Module:
    """p: q -> 512 -> ReLU -> 256, the same for the same seed."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Linear(q, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))


def next_memory(order: Common, head: nn.Module) -> Memory:
    weights: Weights = nets.weights_of(head)
    return Memory(f=order.f, g=order.g, head=weights, mean=order.mean, present=order.present)


# At the coordinator


def gathered(state: State, world: World) -> Sets:
    """All sites' prototypes, in the order of their names; without sites that have none."""
    known = [(state.prototypes[k], state.counts[k] >= LEAST) for k in sorted(state.prototypes)]
    known = [(prototypes, there) for prototypes, there in known if bool(there.any())]
    if not known:
        return Sets(torch.zeros(0, world.classes, WIDTH), torch.zeros(0, world.classes, dtype=torch.bool))
    return Sets(torch.stack([prototypes for prototypes, _ in known]), torch.stack([there for _, there in known]))


def common(state: State, turn: Turn[Config]) -> Common:
    mean = mean_prototypes(gathered(state, turn.world))
    return Common(f=state.f, g=state.g, seed=state.seed, mean=mean.prototypes[0], present=mean.present[0])


def lesson(state: State, turn: Turn[Config]) -> Lesson:
    each = gathered(state, turn.world)
    return Lesson(common(state, turn), each.prototypes, each.present)


def collect(state: State, replies: Replies[Described], turn: Turn[Config]) -> State:
    """The prototypes of those who answered, beside the last of the others."""
    prototypes: dict[str, Tensor] = {**state.prototypes, **{str(k): r.prototypes.float() for k, r in replies.items()}}
    counts: dict[str, Tensor] = {**state.counts, **{str(k): r.counts for k, r in replies.items()}}
    return replace(state, prototypes=prototypes, counts=counts)


# One seed for all heads; no site has sent a prototype yet.
START: source.Start[Config, State] = source.Start(
    State, lambda h, c, rng: State(f=h.f, g=h.g, seed=int(torch.randint(2**31, (), generator=rng)), prototypes={}, counts={})
)


def take_source(state: State, replies: Replies[Taught], turn: Turn[Config]) -> State:
    """h_S beside the seed of before."""
    return replace(state, **vars(source.mean_of(replies)))


def plan(c: Config) -> Plan[Config, State]:
    """Source, its score, the first prototypes, then rounds."""
    first = (Phase("describe", describe, ask=to(Role.TARGET, common), fold=collect, asks=(Role.TARGET,)),) if c.rounds else ()
    work = Phase("learn", learn, ask=to(Role.TARGET, lesson), fold=collect, sampled=True, asks=(Role.TARGET,))
    grade: Phase[Config, State] = source.score(
        Memory,
        to(Role.TARGET, common),
        takes=Common,
        kept=lambda order, memory, site: next_memory(order, head_of(order, memory, site)),
        predict=predict,
    )
    return (*begun(c, take_source, Memory), *first, *scored(c, (work,), grade))


def sizes(config: Config, world: World) -> Mapping[str, int]:
    """A prototype for each class, of the head's width."""
    return {"classes": world.classes, "width": WIDTH}


def model_of(config: Config, world: World, memory: Memory) -> Weights:
    """All that the site predicts with, by the names of the form's tensors."""
    if not memory.f:
        return {}
    network = {f"network.{name}": w for name, w in {**memory.f, **memory.g}.items()}
    head = {f"head.{name}": w for name, w in memory.head.items()}
    return {**network, **head, "mean": memory.mean, "present": memory.present}


def keepsakes(config: Config, memory: Memory) -> Mapping[str, Mapping[str, Tensor]]:
    """The frozen network, the site's head over its features, and the mean prototypes that projections are compared with."""
    if not memory.f:
        return {}
    prototypes = {"mean": memory.mean, "present": memory.present}
    return {"model": {**memory.f, **memory.g}, "head": memory.head, "prototypes": prototypes}


CLAIMS = (
    "No model leaves a site that adapts: its head stays, and the source's model is not changed.",
    "A site's prototypes go to all sites as they are, in one list with those of the others, without names.",
    "A class with fewer than 5 rows of its pseudo-label is not sent, and its count is told as 0.",
    "Not claimed: that prototypes tell nothing about rows. Each is the mean of as few as 5 projections, by a head whose first"
    " weights all sites know.",
    "Not claimed: that a site's prototypes cannot be followed from round to round. They stay in one place of the list.",
)

fedpcl_pl = method(
    "fedpcl_pl",
    "Tan et al.: Federated Learning from Pre-Trained Models: A Contrastive Learning Approach, 2022",
    "Sites without labels share prototypes over the source's frozen features",
    Config,
    plan,
    memory=Memory,
    prepare=prepare,
    sizes=sizes,
    keepsakes=keepsakes,
    result=(SiteModels(model_of, form=PROTOTYPES, options=lambda config: {"normalise": config.normalise}),),
    start=START,
    claims=CLAIMS,
    privately=(
        "pseudo-labels are the source model's likeliest classes, row by row: prototypes of rows would need noise each round",
        "prototypes are noised sums by noised counts; a projection counts with a length of privacy.clip at most",
    ),
    # With dot products as they are, heads have to grow first, for which a demonstration is too short.
    presets={"tiny": TINY, "demo": {**DEMO, "normalise": True, "tau": 0.07}},
)
