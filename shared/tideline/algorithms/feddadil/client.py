"""The site's half of FedDaDiL: features, coordinates and classifiers are made here and stay here."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tideline import nets
from tideline.algorithms.feddadil.messages import (
    Atoms,
    Described,
    Head,
    Labelled,
    Learnt,
    Line,
    Mine,
    Model,
    Moments,
    Shown,
    Trained,
    Tuned,
)
from tideline.core.data import Data
from tideline.core.errors import StepFailed
from tideline.core.record import Nothing
from tideline.core.run import Role, World
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import cross_entropy, fit
from tideline.numerics import dictionary
from tideline.numerics.dictionary import Dictionary
from tideline.numerics.scaling import measured, scaled

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

ENOUGH = 10  # rows of a class below which its moments are not told: they would describe single samples


def settle(config: Config, site: Site) -> Mine:
    """alpha = 1/K, and, where data are features already, the features."""
    blank = Mine(
        z=torch.zeros(0, 0),
        y=torch.zeros(0, dtype=torch.int64),
        shift=torch.zeros(0),
        stretch=torch.zeros(0),
        alpha=torch.full((config.atoms,), 1 / config.atoms),
        moments=Moments(*(torch.zeros(0) for _ in fields(Moments))),
        model={},
        guess=torch.zeros(0, site.world.classes),
        candidates={},
        merits={},
        chosen="",
        summaries={},
        picture=Labelled(torch.zeros(0, 0), torch.zeros(0, 0)),
    )
    return blank if config.encoder_rounds else with_features(blank, site.data.x.flatten(1), site)


def with_features(memory: Mine, x: Tensor, site: Site) -> Mine:
    """Z_Q, scaled by the site's own statistics, and Y_Q where the site has labels that it may use."""
    if not bool(torch.isfinite(x).all()):
        raise StepFailed(f"The features of {site.me} are not finite", "Check the data, or lower encoder_rate")
    shift, stretch = measured(x, site.config.scaling)
    y = torch.zeros(0, dtype=torch.int64) if site.data.y is None else site.data.y
    return replace(memory, z=scaled(x, shift, stretch, site.config.scaling), y=y, shift=shift, stretch=stretch)


def held_out_features(memory: Mine, site: Site, x: Tensor) -> Tensor:
    """Other rows of this site as `with_features` made its training rows: the same encoder, shift and stretch."""
    z = nets.features(nets.loaded(site.world, memory.model, site.device), x, site.device) if memory.model else x.flatten(1)
    return scaled(z, memory.shift, memory.stretch, site.config.scaling)


def per_class(points: int, world: World) -> int:
    """Points of each class in an atom or a mini-batch, rounded up so that every class has as many."""
    return -(-points // world.classes)


@step(metrics=("loss",))
def train_encoder(order: Model, memory: Mine, site: Site) -> Outcome[Trained, Mine]:
    """Eq. 8 at one source: local epochs of SGD from the common network."""
    c: Config = site.config
    net = nets.loaded(site.world, order.model, site.device)
    sgd = torch.optim.SGD(net.parameters(), lr=c.encoder_rate, momentum=c.encoder_momentum, weight_decay=c.encoder_weight_decay)
    loss = trained(net, sgd, site.data, site, site.device)
    return Outcome(Trained(nets.weights_of(net)), memory, {"loss": loss})


def trained(net: nn.Module, sgd: Optimizer, data: Data, site: Site, device: str = "cpu") -> float:
    """The local epochs of encoder and head, in place; gives the mean loss of the last."""
    c: Config = site.config
    epochs, batch, rng = c.encoder_epochs, c.encoder_batch, site.rng
    return fit(net, data, cross_entropy, sgd, epochs=epochs, batch=batch, rng=rng, device=device, tick=site.tick)


@step()
def embed(order: Model, memory: Mine, site: Site) -> Outcome[Nothing, Mine]:
    """The encoder is frozen; each site embeds its own rows, once, and keeps the features."""
    net = nets.loaded(site.world, order.model, site.device)
    mine = with_features(memory, nets.features(net, site.data.x, site.device), site)
    if site.role is Role.TARGET:
        mine = replace(mine, guess=outputs(net, site.data.x, site.device).softmax(1))
    return Outcome(Nothing(), replace(mine, model=order.model))


@step(metrics=("loss",))
def train_head(order: Head, memory: Mine, site: Site) -> Outcome[Tuned, Mine]:
    """One linear layer on the scaled features: what the sources know without any adaptation."""
    c: Config = site.config
    layer = nn.Linear(order.weight.shape[1], order.weight.shape[0])
    layer.load_state_dict({"weight": order.weight, "bias": order.bias})
    sgd = torch.optim.SGD(layer.parameters(), lr=c.head_rate, momentum=c.encoder_momentum, weight_decay=c.encoder_weight_decay)
    loss = trained(layer, sgd, replace(site.data, x=memory.z), site)
    return Outcome(Tuned(layer.weight.detach(), layer.bias.detach()), memory, {"loss": loss})


@step()
def describe(order: Nothing, memory: Mine, site: Site) -> Outcome[Described, Mine]:
    """Mean and variance of each class that has enough rows here, for the first atoms."""
    counts = torch.bincount(memory.y, minlength=site.world.classes)
    classes = (counts >= ENOUGH).nonzero().flatten()
    clouds = [memory.z[memory.y == c] for c in classes]
    mean, variance = (
        torch.stack([getattr(z, moment)(0) for z in clouds]) if clouds else memory.z[:0] for moment in ("mean", "var")
    )
    return Outcome(Described(classes, counts[classes], mean, variance), memory)


@step(metrics=("loss",))
def learn(order: Atoms, memory: Mine, site: Site) -> Outcome[Learnt, Mine]:
    """Fit a copy of the atoms, and this site's own coordinates, to its cloud for E epochs (algorithm 2)."""
    atoms = Dictionary(order.z.float(), order.y.float())
    moments = dictionary.fresh(atoms, site.config.optimiser) if site.round == 1 else dictionary.Moments(*parts(memory.moments))
    done = dictionary.fit(
        *(atoms, memory.alpha, moments, memory.z, labels(memory, site)), settings(site.config, site.world), site.rng, site.tick
    )
    sent = Learnt(done.dictionary.z.to(order.z.dtype), done.dictionary.y.to(order.y.dtype))
    kept = replace(memory, alpha=done.alpha, moments=Moments(*parts(done.moments)))
    return Outcome(sent, kept, {"loss": done.loss})


@step(metrics=("loss",))
def learn_shown(order: Atoms, memory: Mine, site: Site) -> Outcome[Shown, Mine]:
    """The same, where this site's version may be shown to the others (figure 2a)."""
    done = learn.run(order, memory, site)
    return Outcome(Shown(done.message.z, done.message.y), done.memory, done.metrics)


def parts(moments: Moments | dictionary.Moments) -> list[Tensor]:
    """The tensors of moments, in order; the record that is kept and the value that computes have the same."""
    return [getattr(moments, f.name) for f in fields(moments)]


def labels(memory: Mine, site: Site) -> Tensor | None:
    """Y_Q as (n_l, n_c), or None where the site has none to learn from."""
    return nn.functional.one_hot(memory.y, site.world.classes).float() if len(memory.y) else None


def settings(c: Config, world: World) -> dictionary.Fit:
    """The settings of algorithm 2."""
    return dictionary.Fit(
        batch=per_class(c.batch, world) * world.classes,
        epochs=c.epochs,
        rate=c.rate,
        rate_y=c.rate * c.label_rate,
        rate_alpha=c.rate * c.alpha_rate,
        optimiser=c.optimiser,
        beta=c.beta,
        entropy=c.entropy,
        start=c.start,
        iterations=c.iterations,
    )


@step(metrics=tuple(f"line_{i}" for i in range(5)))
def walk(order: Line, memory: Mine, site: Site) -> Outcome[Nothing, Mine]:
    """Figure 2a: this site's loss at each place between two sites' atoms, with its own coordinates and one draw of the noise."""
    found = {}
    for i, (z, y) in enumerate(zip(order.z, order.y, strict=True)):
        value = dictionary.loss(
            *(Dictionary(z, y), memory.alpha, memory.z, labels(memory, site)),
            settings(site.config, site.world),
            torch.Generator().manual_seed(0),
        ).value
        found[f"line_{i}"] = float(value)
    return Outcome(Nothing(), memory, found)
