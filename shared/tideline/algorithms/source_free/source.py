"""The source model h_S: trained where the source's data are, or given as a file; then the source leaves.

Targets score it, and the model that is their own in the end stays with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from torch import Generator, Tensor, nn

from tideline import nets
from tideline.algorithms.source_free.family import EndCounts, Mine, Model, Source, Taught
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.phase import Phase, Plan, Replies, Turn, to, to_all
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import Settings
from tideline.core.step import AnyStep, Outcome, Site, Step
from tideline.learning.evaluate import Offer, Predict, confused, evaluate, label_shift, outputs
from tideline.learning.fit import fit_at, training_spends
from tideline.learning.local_training import loss_at, optimiser, rate_at
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum

A = TypeVar("A", bound=Settings)
A_contra = TypeVar("A_contra", bound=Settings, contravariant=True)
S = TypeVar("S")
M = TypeVar("M")
T = TypeVar("T")
K = TypeVar("K", bound=Mine)


def prepare(config: Settings, site: Site[Settings]) -> Mine:
    return Mine({}, {})


def parts(h: Weights) -> Model:
    """h = g o f in its parts."""
    return Model(layers.backbone_of(h), layers.classifier_of(h))


def network(site: Site[Settings], f: Weights, g: Weights) -> nn.Module:
    """g o f, on the site's device."""
    return nets.loaded(site.world, {**f, **g}, site.device)


def drawn(world: World) -> Model:
    """A network at random, which the sources train."""
    return parts(nets.weights_of(nets.build(world)))


@dataclass(frozen=True)
class Start(Generic[A_contra, S]):
    """The first states of a method that begins with a source model h: each is of(h, config, rng)."""

    state: type[S]
    of: Callable[[Model, A_contra, Generator], S]

    def begin(self, config: A_contra, world: World, roster: Roster, rng: Generator) -> S:
        """With a network at random, which the sources train."""
        return self.of(drawn(world), config, rng)

    def begin_with(self, config: A_contra, world: World, roster: Roster, rng: Generator, h: Weights) -> S:
        return self.of(parts(h), config, rng)

    def take_source(self, state: S, replies: Replies[Taught], turn: Turn[A_contra]) -> S:
        """With the source model that the sources trained."""
        return self.of(mean_of(replies), turn.config, turn.rng)


ALONE: Start[Settings, Model] = Start(Model, lambda h, config, rng: h)


def training(memory_type: type[M]) -> AnyStep:
    """Cross-entropy with smoothed labels on the source's rows. memory_type: the method's, which stays as it is."""

    def run(order: Model, memory: M, site: Site[Source]) -> Outcome[Taught, M]:
        message, metrics = trained(order.f, order.g, site)
        return Outcome(message, memory, metrics)

    made = Step(name="train", run=run, takes=Model, keeps=memory_type, gives=Taught, metrics=("loss", "samples"))
    return replace(made, spends=source_spends, by_unit=True)


def source_spends(config: Source, privacy: Privacy) -> tuple[Charge, ...]:
    """What an exchange with a source costs."""
    return training_spends(config.source_epochs, privacy)


def trained(
    f: Weights, g: Weights, site: Site[Source], change: Callable[[Tensor], Tensor] | None = None
) -> tuple[Taught, dict[str, float]]:
    """What a source sends after its epochs, and what it tells. change(x (b, *inputs)): what each batch is trained on instead."""
    c: Source = site.config
    check_rows(site)
    net = network(site, f, g)
    rate = rate_at(c, c.source_rate, site.round, c.source_rounds)
    by = optimiser(c, net.parameters(), rate, c.source_momentum, c.source_weight_decay)
    labels = loss_at(site)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return labels(net, change(x) if change else x, y)

    value = fit_at(site, net, loss, by, epochs=c.source_epochs, batch=c.source_batch, clip=c.clip_gradient, patience=c.patience)
    made = parts(nets.weights_of(net))
    return Taught(made.f, made.g, site.samples), {"loss": value, "samples": len(site.data)}


def check_rows(site: Site[Settings]) -> None:
    """Raises DataRefused for a site with a single row, whose batch has no variance. In a run that protects rows there is none,
    and a refusal would tell.
    """
    if len(site.data) < 2 and not site.private:
        raise DataRefused(
            "The site has a single training row, and batch norm wants two or more", "Leave the site out, or give it more data"
        )


def mean_of(replies: Replies[Taught]) -> Model:
    """h_S: the mean over sources by their numbers of rows. Of one source, its model."""
    n = sum(reply.samples for reply in replies.values())
    f = weighted_sum((reply.samples / n, reply.f) for reply in replies.values())
    return Model(f, weighted_sum((reply.samples / n, reply.g) for reply in replies.values()))


def with_check(
    needs: Callable[[A, World, Roster], None], check: Callable[[A, World, Roster], None]
) -> Callable[[A, World, Roster], None]:
    """The `fits` of a method that has a check of its own beside what its family needs."""

    def fits(config: A, world: World, roster: Roster) -> None:
        needs(config, world, roster)
        check(config, world, roster)

    return fits


def needs_both(config: Settings, world: World, roster: Roster) -> None:
    """A network with a classifier of its own, a source with labels, and a site to adapt. Raises ConfigRefused, RosterRefused."""
    needs_targets(config, world, roster)
    check_source(roster, "and the run brings no source model", ", or bring the model as a file: weights: FILE")


def needs_targets(config: Settings, world: World, roster: Roster) -> None:
    """What a run needs that brings its source model. Raises ConfigRefused, RosterRefused."""
    check_network(world)
    check_peers(roster, "it trains on sources' labels and adapts targets")
    if not any(m.role is Role.TARGET for m in roster):
        raise RosterRefused("No member of the roster is a target, so nobody adapts", "Add a site as target", path="roster")


def needs_one_target(config: Settings, world: World, roster: Roster) -> None:
    """What methods need that adapt to one target and train their sources to the end. Raises ConfigRefused, RosterRefused."""
    needs_targets(config, world, roster)
    targets = sorted(m.id for m in roster if m.role is Role.TARGET)
    if len(targets) > 1:
        what = f"{', '.join(targets)} are targets, and this method adapts to one"
        raise RosterRefused(what, "Leave one of them, and start a run for each of the others", path=f"roster.{targets[1]}")
    check_source(roster, "so nobody can teach")


def check_source(roster: Roster, why: str, more: str = "") -> None:
    """Raises RosterRefused without a source that has labels."""
    if not any(m.role is Role.SOURCE and m.labelled for m in roster):
        what = f"No member of the roster is a source with labels, {why}"
        raise RosterRefused(what, f"Give a labelled site the role source{more}", path="roster")


def check_peers(roster: Roster, uses: str) -> None:
    """Raises RosterRefused for a peer. uses: what the method does with the other roles."""
    peer = min((m.id for m in roster if m.role is Role.PEER), default=None)
    if peer:
        what = f"{peer} is a peer, of which this method makes no use: {uses}"
        raise RosterRefused(what, "Make it a source or a target", path=f"roster.{peer}")


def check_network(world: World) -> None:
    """The network is h = g o f with a linear g, and both train. Raises ConfigRefused."""
    template = nets.template(world)
    if not layers.parameters(layers.classifier_of(template)):
        what = f"the classifier of {world.model} is frozen, which sources train"
        raise ConfigRefused(what, "Let it train, too: 'classifier.*'", path="world.trains")
    if not layers.parameters(layers.backbone_of(template)):
        what = f"world.model is {world.model}, which has nothing below its classifier that could adapt"
        todo = "Use a network with features, such as lenet_bn or resnet18 (docs/networks.md)"
        raise ConfigRefused(what, todo, path="world.model")


def members_of(members: Mapping[str, int], cluster: int) -> tuple[ClientId, ...]:
    """The sites of a cluster, sorted. members: the cluster of each site."""
    return tuple(ClientId(k) for k in sorted(members) if members[k] == cluster)


def predict(order: Model, memory: M, site: Site[Settings], x: Tensor) -> Tensor:
    return outputs(network(site, order.f, order.g), x, site.device)


def predict_own(order: T, memory: Mine, site: Site[Settings], x: Tensor) -> Tensor:
    return outputs(network(site, memory.f, memory.g), x, site.device)


def source_only(memory: type[M], offer: Offer[S, A, Model] | None = None) -> Phase[A, S]:
    """h_S as it came, scored once: the baseline of adaptation. memory: the method's memory type, which stays as it is."""
    ask = offer or to(Role.TARGET, Model)
    phase = evaluate(ask, predict, takes=Model, keeps=memory, name="source_only", metrics=("source_only",))
    return replace(phase, sampled=False, asks=(Role.TARGET,))


def with_model(order: Model, memory: K, site: Site[Settings]) -> K:
    return replace(memory, f=order.f, g=order.g)


def score(
    memory: type[M],
    offer: Offer[S, A, T] | None = None,
    *,
    takes: type[T] = Model,  # type: ignore[assignment]
    kept: Callable[[T, M, Site[A]], M] = with_model,  # type: ignore[assignment]
    predict: Predict[T, M, A] = predict_own,  # type: ignore[assignment]
    name: str = "score",
    asks: tuple[Role, ...] = (Role.TARGET,),
) -> Phase[A, S]:
    """The model that each target would use now. It stays in the target's memory, which the owner may export.

    memory: the method's memory type. kept(order, memory, site): the memory with that model. predict(order, memory, site, x): its
    outputs, by that memory. name: of the step. asks: as in a phase.
    """

    ask = offer or to(Role.TARGET, takes)
    return replace(evaluate(ask, predict, takes=takes, keeps=memory, name=name, phase="score", kept=kept), asks=asks)


def end_counts(
    c: EndCounts,
    predict: Predict[Nothing, M, A],
    memory: type[M],
    *,
    targets: Offer[S, A, Nothing] | None = None,
    everybody: Offer[S, A, Nothing] | None = None,
) -> Plan[A, S]:
    """What sites count in the end, as `c` asks: confusions of classes on held-out rows, and training rows of each class.

    predict(order, memory, site, x): outputs of the site's own model. targets, everybody: who is asked, if not all of them.
    """
    taken = confused(targets or to(Role.TARGET, Nothing), predict, keeps=memory)
    shift = label_shift(everybody or to_all(Nothing), predict, keeps=memory)
    return (*(taken,) * c.confusion, *(shift,) * c.label_shift)


def own_model(config: Settings, world: World, memory: Mine) -> Weights:
    """The site's own model, once there is one."""
    return {**memory.f, **memory.g} if memory.f else {}


def keepsakes(config: Settings, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """The site's own model as one state dict, once there is one."""
    return {"model": {**memory.f, **memory.g}} if memory.f else {}
