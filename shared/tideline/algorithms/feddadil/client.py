"""The site's half of FedDaDiL: features, coordinates and classifiers are made here and stay here."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.averaging.messages import Model, Trained
from tideline.algorithms.feddadil import messages
from tideline.algorithms.feddadil.messages import Heads, Mine, Moments
from tideline.core.asked.world import World
from tideline.core.errors import PolicyRefused, StepFailed
from tideline.core.record import Nothing
from tideline.core.rows import Rows
from tideline.core.run import Role
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import fit_at
from tideline.learning.local_training import criterion, optimiser, rate_at
from tideline.numerics.aggregation.averaging import on_simplex
from tideline.numerics.alignment.feature_maps import measured, scaled
from tideline.numerics.transport import dictionary
from tideline.numerics.transport.dictionary import Dictionary

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

POWER_STEPS, TINY = 20, 1e-12
ENOUGH = 10  # rows of a class below which its moments are not sent: they would describe single samples


def prepare(config: Config, site: Site[Config]) -> Mine:
    """alpha = 1/K, and, where data are features already, the features. Raises PolicyRefused for points that show single rows."""
    check_steps(config, site.least_rows)
    blank = Mine(
        z=torch.zeros(0, 0),
        y=torch.zeros(0, dtype=torch.int64),
        shift=torch.zeros(0),
        stretch=torch.zeros(0),
        alpha=torch.full((config.atoms,), 1 / config.atoms),
        moments=Moments(*(torch.zeros(0) for _ in fields(Moments))),
        model={},
        heads=blank_heads(0, site.world.classes, 0),
        guess=torch.zeros(0, site.world.classes),
        candidates={},
        evidence={},
        chosen="",
        summaries={},
        picture={},
    )
    return blank if config.encoder_rounds else with_features(blank, flat(site.data.x), site)


def check_steps(config: Config, least: int) -> None:
    """Raises PolicyRefused for plain gradients, where a site's owner lets nothing be told that is made of single rows.

    Exact transport matches each point to a row or few, and a plain step moves it towards them by a share that is known.
    """
    if least > 1 and config.optimiser == "sgd":
        what = "The owner of this site does not allow it: with config.optimiser sgd each point of an atom shows single rows"
        todo = "Use optimiser adam, or ask the site's owner: [least] rows = 1 in the site's policy file"
        raise PolicyRefused(what, todo, rules=["[least] rows"])


def blank_heads(h: int, classes: int, d: int) -> Heads:
    """h linear layers that know nothing yet."""
    return Heads(
        weight=torch.zeros(h, classes, d),
        bias=torch.zeros(h, classes),
        shift=torch.zeros(d),
        stretch=torch.ones(d),
        decay=1.0,
        contrast=0.0,
    )


def with_features(memory: Mine, x: Tensor, site: Site[Config]) -> Mine:
    """Z_Q, scaled by the site's own statistics, and Y_Q where the site has labels that it may use."""
    if not bool(torch.isfinite(x).all()):
        raise StepFailed(f"The features of {site.me} are not finite", "Check the data, or lower encoder_rate")
    shift, stretch = measured(x, site.config.scaling)
    y = torch.zeros(0, dtype=torch.int64) if site.data.y is None else site.data.y
    heads = blank_heads(0, site.world.classes, x.shape[1])
    return replace(memory, z=x, y=y, shift=shift, stretch=stretch, heads=heads)


def own(memory: Mine, config: Config, z: Tensor | None = None) -> Tensor:
    """Z_Q: the training rows' features, or other rows' z, scaled by the site's own statistics. Raises StepFailed without them."""
    if not len(memory.z):
        raise StepFailed("This site has no features: it was away when they were computed", "Begin the run again with all sites")
    return scaled(memory.z if z is None else z, memory.shift, memory.stretch, config.scaling)


def embedded(memory: Mine, site: Site[Config], x: Rows) -> Tensor:
    """Other rows of this site as the encoder gives them. Raises StepFailed where the site has no encoder."""
    if site.config.encoder_rounds and not memory.model:
        raise StepFailed("This site has no encoder: it was away when it was sent", "Begin the run again with all sites")
    return nets.features(nets.loaded(site.world, memory.model, site.device), x, site.device) if memory.model else flat(x)


def flat(x: Rows) -> Tensor:
    """Rows that are features already, (n, d). Raises DataRefused for more than a site holds at once."""
    return x.all("FedDaDiL on rows that are features").flatten(1)


def common(heads: Heads, z: Tensor) -> Tensor:
    """Features standardised as those of all sources together."""
    return (z - heads.shift) / heads.stretch


def per_class(points: int, world: World) -> int:
    """Points of each class in an atom or a mini-batch, rounded up so that every class has as many."""
    return -(-points // world.classes)


@step(metrics=("loss",))
def train_encoder(order: Model, memory: Mine, site: Site[Config]) -> Outcome[Trained, Mine]:
    """Eq. 8 at one source: local epochs of SGD from the common network."""
    c: Config = site.config
    net = nets.loaded(site.world, order.model, site.device)
    rate = rate_at(c.encoder, c.encoder_rate, site.round, c.encoder_rounds)
    labels = criterion(c.encoder, site.data.y, site.world.classes, site.device)
    by = optimiser(c.encoder, net.parameters(), rate, c.encoder_momentum, c.encoder_weight_decay)
    loss = fit_at(
        site,
        net,
        lambda net, x, y: labels(net(x), y),
        by,
        epochs=c.encoder_epochs,
        batch=c.encoder_batch,
        clip=c.encoder.clip_gradient,
        patience=c.encoder.patience,
    )
    return Outcome(Trained(nets.weights_of(net)), memory, {"loss": loss})


@step()
def embed(order: Model, memory: Mine, site: Site[Config]) -> Outcome[Nothing, Mine]:
    """The encoder is frozen; each site embeds its own rows, once, and keeps the features."""
    net = nets.loaded(site.world, order.model, site.device)
    mine = with_features(memory, nets.features(net, site.data.x, site.device), site)
    if site.role is Role.TARGET:
        mine = replace(mine, guess=outputs(net, site.data.x, site.device).softmax(1))
    return Outcome(Nothing(), replace(mine, model=order.model))


@step(metrics=("loss",))
def slope(order: Heads, memory: Mine, site: Site[Config]) -> Outcome[messages.Slopes, Mine]:
    """The exact gradient of each linear layer's mean cross-entropy over this site's rows, without the decay.

    Averaged by the coordinator it is the gradient over all sources' rows: the layers become those that a fit on all rows
    together would give, without any row leaving its site. The first tells the sum of each class's features, so rows of classes of
    which nothing may be told are left out.
    """
    mine = own(memory, site.config)
    counted = torch.bincount(memory.y, minlength=site.world.classes)[memory.y] >= site.least_per_class
    y, alike = nn.functional.one_hot(memory.y, site.world.classes).float(), common(order, memory.z)
    W, b, curvature, loss = torch.zeros_like(order.weight), torch.zeros_like(order.bias), torch.zeros(len(order.bias)), 0.0
    for h, z in enumerate((alike, alike, mine)):
        p = (z @ order.weight[h].mT + order.bias[h]).softmax(1)
        error = (p - y) * counted[:, None]
        W[h], b[h] = error.mT @ z / len(y), error.mean(0)
        curvature[h] = top_eigenvalue(z)
        loss = float(nn.functional.nll_loss(p.clamp_min(TINY).log(), memory.y))
    return Outcome(messages.Slopes(W, b, curvature), memory, {"loss": loss})


def top_eigenvalue(z: Tensor) -> float:
    """The largest eigenvalue of z^T z / n, by power iteration from a direction that no symmetry of the data cancels."""
    v = torch.randn(z.shape[1], generator=torch.Generator().manual_seed(0))
    for _ in range(POWER_STEPS):
        v = nn.functional.normalize(z.mT @ (z @ v), dim=0)
    return float((z @ v).square().sum() / len(z))


@step()
def describe(order: Nothing, memory: Mine, site: Site[Config]) -> Outcome[messages.Described, Mine]:
    """Moments of this site's features for the linear layers, and of each class that has enough rows for the first atoms."""
    counts = torch.bincount(memory.y, minlength=site.world.classes)
    enough = max(ENOUGH, site.least_per_class) if site.config.init == "class_gaussian" else len(memory.y) + 1
    classes = (counts >= enough).nonzero().flatten()
    z = own(memory, site.config)
    clouds = [z[memory.y == c] for c in classes]
    mean = torch.stack([cloud.mean(0) for cloud in clouds]) if clouds else z[:0]
    variance = torch.stack([cloud.var(0) for cloud in clouds]) if clouds else z[:0]
    whole = (len(z), memory.z.mean(0), memory.z.var(0, unbiased=False))
    return Outcome(messages.Described(*whole, classes, counts[classes], mean, variance), memory)


@step(metrics=("loss",))
def learn(order: messages.Atoms, memory: Mine, site: Site[Config]) -> Outcome[messages.Learnt, Mine]:
    """Fit a copy of the atoms, and this site's own coordinates, to its cloud for E epochs (algorithm 2)."""
    atoms = Dictionary(order.z.float(), on_simplex(order.y.float()))
    before = dictionary.Moments(*parts(memory.moments))
    # By what it remembers, not by the round: a site may have been away in the first.
    moments = before if before.row_steps.numel() else dictionary.fresh(atoms, site.config.optimiser)
    given = (atoms, memory.alpha, moments, own(memory, site.config), labels(memory, site))
    done = dictionary.fit(*given, settings(site.config, site.world), site.rng, site.tick)
    sent = messages.Learnt(narrowed(done.dictionary.z, order.z.dtype), done.dictionary.y.to(order.y.dtype))
    kept = replace(memory, alpha=done.alpha, moments=Moments(*parts(done.moments)))
    return Outcome(sent, kept, {"loss": done.loss})


@step(metrics=("loss",))
def learn_shown(order: messages.Atoms, memory: Mine, site: Site[Config]) -> Outcome[messages.Shown, Mine]:
    """The same, where this site's version may be shown to the others (figure 2a)."""
    done = learn.run(order, memory, site)
    return Outcome(messages.Shown(done.message.z, done.message.y), done.memory, done.metrics)


def narrowed(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Points in the type of the wire. Raises StepFailed where one is too large for it."""
    sent = z.to(dtype)
    if bool(torch.isfinite(z).all()) and not bool(torch.isfinite(sent).all()):
        name = str(dtype).removeprefix("torch.")
        what = f"A point of an atom is {float(z.abs().max()):.3g}, more than {name} holds"
        raise StepFailed(what, "Set wire to bfloat16 or float32, or scaling to rows")
    return sent


def parts(moments: Moments | dictionary.Moments) -> list[Tensor]:
    """The tensors of moments, in order; the record that is kept and the value that computes have the same."""
    return [getattr(moments, f.name) for f in fields(moments)]


def labels(memory: Mine, site: Site[Config]) -> Tensor | None:
    """Y_Q as (n_l, n_c), or None where the site has none to learn from."""
    return nn.functional.one_hot(memory.y, site.world.classes).float() if len(memory.y) else None


def settings(c: Config, world: World) -> dictionary.Fit:
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
def walk(order: messages.Line, memory: Mine, site: Site[Config]) -> Outcome[Nothing, Mine]:
    """Figure 2a: this site's loss at each place between two sites' atoms, with its own coordinates and one draw of the noise."""
    found, mine, Y, by = {}, own(memory, site.config), labels(memory, site), settings(site.config, site.world)
    for i, (z, y) in enumerate(zip(order.z, order.y, strict=True)):
        atoms, rng = Dictionary(z, y), torch.Generator().manual_seed(0)
        found[f"line_{i}"] = float(dictionary.loss(atoms, memory.alpha, mine, Y, by, rng).value)
    return Outcome(Nothing(), memory, found)
