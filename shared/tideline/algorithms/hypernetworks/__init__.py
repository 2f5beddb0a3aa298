"""What methods share whose coordinator generates each client's model by a hypernetwork: settings, messages and a client's half.

Embeddings and the hypernetwork itself are never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import Training, needs_teachers
from tideline.algorithms.averaging.messages import Model
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import Roster, World
from tideline.core.settings import nearest, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import OPTIMISERS, cross_entropy, fit_at, optimiser
from tideline.nets.layers import parameters
from tideline.numerics.aggregation.hypernetwork import HIDDEN, LAYERS, K, Shapes, total

LINEAR, CHUNKED = "linear", "chunked"
GB, FLOAT = 1e9, 4
NAMED = 4  # names in a refusal

S = TypeVar("S")
METRICS = ("first_loss", "loss", "samples")


@dataclass(frozen=True)
class Hyper(Training):
    """Settings that both methods have, over those of local training."""

    server_optimiser: str = setting("adam", choices=OPTIMISERS, doc="of the hypernetwork's parameters and embeddings")
    server_rate: float = setting(1e-3, low=0.0, doc="its learning rate, alpha")
    server_weight_decay: float = setting(1e-5, low=0.0, doc="its weight decay")
    server_clip: float = setting(50.0, low=1e-6, doc="largest norm of its gradient, with sgd")
    embedding_size: int = setting(
        0, low=0, high=10_000, doc="numbers of a client's embedding, e; 0: floor(1 + N / 4) of N clients"
    )
    heads: str = setting(LINEAR, choices=(LINEAR, CHUNKED), doc="a linear head for each tensor, or one for chunks of all (ours)")
    chunk: int = setting(4096, low=1, high=1 << 24, doc="numbers of a chunk, s, with chunked heads")
    head_init: str = setting(
        "default",
        choices=("default", "matched"),
        doc="linear heads as layers are drawn; or around a draw of the clients' network",
    )
    generate: tuple[str, ...] = setting(("*",), doc="globs of the tensors that are generated; the rest is averaged")
    memory_limit: float = setting(8.0, low=1e-6, doc="GB that hypernetwork, its gradient and moments may take; more is refused")


def generated(c: Hyper, world: World) -> Shapes:
    """The tensors that are generated: trained ones that fit a glob. Costs no memory. Raises ConfigRefused for an idle glob."""
    template = nets.template(world)
    trained = parameters(template)
    for glob in c.generate:
        if not any(fnmatchcase(name, glob) for name in trained):
            more = f" and {len(trained) - NAMED} more" if len(trained) > NAMED else ""
            todo = f"Its tensors: {', '.join(trained[:NAMED])}{more}{nearest(glob, trained)}"
            raise ConfigRefused(
                f"config.generate has {glob!r}, which no tensor of {world.model} fits", todo, path="config.generate"
            )
    chosen = [name for name in trained if any(fnmatchcase(name, glob) for glob in c.generate)]
    if not chosen:
        raise ConfigRefused(
            "config.generate is empty, so nothing would be generated", "Leave it out: all is", path="config.generate"
        )
    return {name: template[name].shape for name in chosen}


def numbers(c: Hyper, world: World) -> int:
    """How many numbers the hypernetwork's heads have: 51 for each that linear ones generate."""
    P = total(generated(c, world))
    s = chunk_of(c, P)
    return (HIDDEN + 1) * P if c.heads == LINEAR else (HIDDEN + 1) * s + -(-P // s) * K + HIDDEN * (HIDDEN + K + 1)


def chunk_of(c: Hyper, P: int) -> int:
    """The numbers of a chunk: never more than there are to generate."""
    return min(c.chunk, P)


def check(c: Hyper, world: World, roster: Roster) -> None:
    """Network and world fit, a client can teach, the hypernetwork is within its limit. Raises ConfigRefused, RosterRefused."""
    nets.check(world)
    check_memory(c, world, needs_teachers(c, roster))
    if c.heads == CHUNKED and c.head_init != "default":
        what = f"config.head_init is {c.head_init}, which is of linear heads, but config.heads is chunked"
        raise ConfigRefused(what, "Leave one of the two out", path="config.head_init")


def check_initial_weights(c: Hyper, world: World, roster: Roster) -> None:
    """As `check`, for initial weights, around which matched heads begin: linear ones. Raises ConfigRefused too."""
    check(c, world, roster)
    if c.heads == CHUNKED:
        what = "config.heads is chunked, and chunked heads cannot generate weights that are brought"
        raise ConfigRefused(what, "Use linear heads, or leave weights out", path="config.heads")


def check_memory(c: Hyper, world: World, N: int) -> None:
    """Raises ConfigRefused, with the figure, for a hypernetwork of N clients that would be too large."""
    P, made = total(generated(c, world)), numbers(c, world)
    e = c.embedding_size or 1 + N // 4
    made += (N + HIDDEN) * e + (LAYERS - 1) * HIDDEN**2
    times = 4 if c.server_optimiser == "adam" else 3  # parameters, gradient, and the optimiser's moments
    if c.heads == CHUNKED:
        times += N  # whose gradients of chunked heads are held side by side
    needs = times * FLOAT * made / GB
    if needs > c.memory_limit:
        raise ConfigRefused(
            f"Generating {P:,} numbers of {world.model} takes a hypernetwork of {made:,}: {needs:.3g} GB with its gradient and"
            f" moments, and config.memory_limit is {c.memory_limit:g}",
            "Generate less of it, such as generate: ['classifier.*'], set heads: chunked, or raise memory_limit",
            path="config.memory_limit",
        )


def learners(c: Hyper, roster: Roster) -> tuple[str, ...]:
    """Who trains, sorted: the clients that have an embedding."""
    return tuple(sorted(m.id for m in roster if m.labelled and m.role in c.roles))


@record
class Update:
    """Up: what local training added to it, Delta_i."""

    delta: Weights = field("like model", Exposure.WEIGHTS, doc="the model after local training less the one before")


@record
class Counted(Update):
    """Up, where counts weigh what is averaged: Delta_i and n_i."""

    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the site")


@record
class State:
    """What the coordinator knows: the hypernetwork with its optimiser's memory, and what is averaged beside it."""

    theta: Weights = field(doc="parameters by name, and nu (N, e), a row for each of `clients`")
    m: Weights = field(doc="first moments of theta")
    v: Weights = field(doc="second moments of theta; none with SGD")
    steps: int = field(doc="optimiser steps done")
    rest: Weights = field(doc="tensors that are not generated, buffers among them: their mean")
    clients: tuple[str, ...] = field(doc="who has an embedding, sorted")


C = TypeVar("C", bound=Hyper)


@step(metrics=METRICS)
def train(order: Model, memory: Nothing, site: Site[Hyper]) -> Outcome[Update, Nothing]:
    """E local epochs from phi_i; Delta_i."""
    delta, metrics = trained(order, site)
    return Outcome(Update(delta), memory, metrics)


@step(metrics=METRICS)
def train_counted(order: Model, memory: Nothing, site: Site[Hyper]) -> Outcome[Counted, Nothing]:
    """E local epochs from phi_i; Delta_i and n_i."""
    delta, metrics = trained(order, site)
    return Outcome(Counted(delta, len(site.data)), memory, metrics)


def trained(order: Model, site: Site[Hyper], steps: int = 0, clip: float = 0.0) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Delta_i, and the metrics: the loss of the first batch, which is phi_i's own, and the mean of the last epoch."""
    c, first = site.config, list[float]()
    net = nets.loaded(site.world, order.model, site.device)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = cross_entropy(net, x, y)
        if not first:
            first.append(float(value.detach()))
        return value

    by = optimiser(c, net.parameters())
    last = fit_at(site, net, loss, by, epochs=c.epochs, batch=c.batch, steps=steps, clip=clip)
    delta = {name: w - order.model[name] for name, w in nets.weights_of(net).items()}
    return delta, {"first_loss": first[0], "loss": last, "samples": len(site.data)}
