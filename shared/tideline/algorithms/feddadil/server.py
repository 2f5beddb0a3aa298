"""The coordinator's half of FedDaDiL: who is asked what, and how answers are folded. It never sees a coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.feddadil import client, messages
from tideline.algorithms.feddadil.messages import Atoms, Described, Heads, State
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Replies, Sums, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId, Role, Roster, described
from tideline.core.step import Site
from tideline.numerics.aggregation.averaging import on_simplex, weighted_sum
from tideline.numerics.aggregation.sums import mean_from, shapes_of, terms
from tideline.numerics.transport import dictionary
from tideline.numerics.transport.dictionary import Dictionary

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

WIRE = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STEPS_OF_THE_LINE = 5
LAYERS = 3
CURVED = 256.0  # in sums, of curvatures the unit in units of gradients
LEVEL_RATE = 0.1  # up to which several local epochs cost little
FLOOR, TINY = 0.01, 1e-12  # of the variance of a feature, as a share of their mean; and at all


def needs_both(config: Config, world: World, roster: Roster) -> None:
    """Labelled sources to learn from, a target to adapt, and a world whose features are known. Raises Refused errors."""
    nets.check(world)
    if config.encoder_rounds == 0 and len(world.inputs) != 1:
        what = f"config.encoder_rounds is 0, but world.inputs {list(world.inputs)} are no features"
        todo = "Let the sources learn an encoder (encoder_rounds: 12), or give features: inputs: [d]"
        raise ConfigRefused(what, todo, path="config.encoder_rounds")
    possible(config, world)
    teachable = any(m.role is Role.SOURCE and m.labelled for m in roster)
    for role, what, there in (
        (Role.SOURCE, "source with labels", teachable),
        (Role.TARGET, "target", any(m.role is Role.TARGET for m in roster)),
    ):
        if not there:
            need = f"The method needs at least one {what}; the roster has {described(roster)}"
            raise RosterRefused(need, f"Add a {role.value}", path="roster")


def sizes(config: Config, world: World) -> dict[str, int]:
    return {"d": nets.width(world), "n_c": world.classes}


def possible(config: Config, world: World) -> None:
    """Settings that fit each other and the world. Raises ConfigRefused."""
    if config.label_confidence * world.classes <= 1:
        raise ConfigRefused(
            f"config.label_confidence is {config.label_confidence}; with {world.classes} classes a point's own class would not"
            " be its likeliest",
            f"Give more than {1 / world.classes:.3g}; 0.9 is the default",
            path="config.label_confidence",
        )
    need = {"own", "committee"} | (set() if config.encoder_rounds else {"none"})
    if not config.head_rounds and config.choice in need:
        what = f"config.choice is {config.choice!r}, which needs the sources' linear layers, but config.head_rounds is 0"
        raise ConfigRefused(what, "Set head_rounds to 60, or choice to r or e", path="config.choice")


def notes(config: Config, world: World) -> tuple[str, ...]:
    """What a run does otherwise than it was asked, or had better be asked."""
    points = {"points": config.points, "batch": config.batch}
    rounded = {name: client.per_class(n, world) * world.classes for name, n in points.items()}
    notes = [
        f"config.{name} is {points[name]}; it is rounded up to {n}, so that each of the {world.classes} classes has as many"
        for name, n in rounded.items()
        if n != points[name]
    ]
    if config.epochs > 1 and config.rate > LEVEL_RATE:  # leads the sites' atoms apart (benchmarks/README.md)
        asked = f"config.epochs is {config.epochs} at a rate of {config.rate}"
        notes.append(f"{asked}; with a rate of {LEVEL_RATE} or less accuracy stays level")
    if config.choice == "guard" and not config.head_rounds:
        notes.append("config.head_rounds is 0, so that no guard is possible: targets predict with -R")
    if config.optimiser == "sgd":
        notes.append("config.optimiser is sgd: a site's coordinates can be inferred from how far it moves each atom")
    return tuple(notes)


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> State:
    """The network at random, and atoms of N(0, 1) with balanced labels."""
    d = nets.width(world)
    model = nets.weights_of(nets.build(world)) if config.encoder_rounds else {}
    heads = client.blank_heads(LAYERS if config.head_rounds else 0, world.classes, d)
    z = torch.randn(config.atoms, client.per_class(config.points, world) * world.classes, d, generator=rng)
    # n / n_c points of each class in order, p0 on their own class: (K, n, n_c)
    labels = torch.arange(world.classes).repeat_interleave(client.per_class(config.points, world))
    logits = dictionary.one_hot_logits(labels, world.classes, config.label_confidence)
    y = dictionary.soft_labels(logits).expand(config.atoms, -1, -1).clone()
    return State(model=model, heads=heads, weight=heads.weight.clone(), bias=heads.bias.clone(), rows={}, z=z, y=y, versions=())


def descend(state: State, replies: Replies[messages.Slopes], turn: Turn[Config]) -> State:
    """One step of accelerated gradient descent (Nesterov; strongly convex, since the weights decay) on each linear layer.

    The first layer's gradient is the mean over rows, the others' over sites. A softmax's Hessian is at most half of the features'
    second moments, so the step is 1 / L with L = curvature / 2 + decay; a bias, whose feature is 1 and near uncorrelated to
    standardised ones, takes the step 1.
    """
    # A source that was away when rows were counted counts as one row: it must not outweigh those that sent theirs.
    rows = {name: state.rows.get(name, 1) for name in replies}
    share = torch.tensor([[n / sum(rows.values())] + [1 / len(rows)] * (LAYERS - 1) for n in rows.values()])
    replied = zip(share, replies.values(), strict=True)
    mean = weighted_sum(
        (1.0, {"w": s.view(-1, 1, 1) * r.weight.float(), "b": s.view(-1, 1) * r.bias.float(), "c": s * r.curvature.float()})
        for s, r in replied
    )
    return stepped(state, mean)


def stepped(state: State, mean: Weights) -> State:
    """The layers and their momentum behind a step along mean gradients w, b with curvatures c."""
    here, decay = state.heads, state.heads.decay
    L = mean["c"] / 2 + decay
    weight = here.weight - (mean["w"] + decay * here.weight) / L.view(-1, 1, 1)
    bias = here.bias - mean["b"]
    root = (L / decay).sqrt()
    onward = (root - 1) / (root + 1)
    ahead = replace(
        here,
        weight=weight + onward.view(-1, 1, 1) * (weight - state.weight),
        bias=bias + onward.view(-1, 1) * (bias - state.bias),
    )
    return replace(state, heads=ahead, weight=weight, bias=bias)


def slopes(reply: messages.Slopes, order: Heads, site: Site[Config], asked: SecureSums) -> dict[str, Tensor]:
    """What a site adds to the sums of gradients, each with the share of its layer: rows, or one."""
    n = min(site.samples, asked.rows) / asked.rows
    share = torch.tensor([n] + [1.0] * (LAYERS - 1), dtype=torch.float64)
    return {
        "w": share.view(-1, 1, 1) * reply.weight.double() / asked.clip,
        "b": share.view(-1, 1) * reply.bias.double() / asked.clip,
        "c": share * reply.curvature.double() / (asked.clip * CURVED),
        "share": share,
    }


def descend_sums(total: Weights, state: State, turn: Turn[Config], asked: SecureSums) -> State:
    """The same step from sums over sources."""
    share = total["share"]
    w, b = total["w"] / share.view(-1, 1, 1), total["b"] / share.view(-1, 1)
    mean = {"w": w * asked.clip, "b": b * asked.clip, "c": total["c"] / share * asked.clip * CURVED}
    return stepped(state, {name: value.float() for name, value in mean.items()})


def slope_shapes(order: Heads, config: Config, world: World) -> dict[str, tuple[int, ...]]:
    h = len(order.bias)
    return {"w": tuple(order.weight.shape), "b": tuple(order.bias.shape), "c": (h,), "share": (h,)}


SLOPES: Sums[Config, State] = Sums(shapes=slope_shapes, of=slopes, fold=descend_sums)


def first_atoms(state: State, replies: Replies[Described], turn: Turn[Config]) -> State:
    """Class-conditional Gaussian atoms: atom k is drawn from the moments of source k, the sources taking turns.

    A class that this source did not send is drawn from the moments of all that did, and where none did, N(0, 1) stays.
    """
    described = list(replies.values())
    spread = turn.config.spread
    rows = client.per_class(turn.config.points, turn.world)
    z = state.z.clone()
    for k in range(len(z)):
        for c in range(turn.world.classes):
            place = slice(c * rows, (c + 1) * rows)
            moments = class_moments(described[k % len(described)], c) or pooled(described, c)
            if moments is not None:
                mean, variance = moments
                z[k, place] = mean + spread * variance.sqrt() * torch.randn(rows, z.shape[2], generator=turn.rng)
    counted = {str(name): reply.rows for name, reply in replies.items()}
    return replace(state, z=z, rows=counted, heads=standardised(state.heads, described))


def standardised(heads: Heads, sent: Sequence[Described]) -> Heads:
    """Mean and spread of each feature over all rows of the sources; decay min(1, d / N).

    A hundredth of the mean variance is added to each, so that a feature that hardly changes is not blown up.
    """
    n = float(sum(each.rows for each in sent))
    moments = [(each.rows / n, each.total_mean.float(), each.total_variance.float()) for each in sent]
    mean = sum((share * its for share, its, _ in moments), torch.zeros(()))
    within = (share * (spread + (its - mean).square()) for share, its, spread in moments)
    variance = sum(within, torch.zeros(()))
    stretch = (variance + FLOOR * variance.mean() + TINY).sqrt()
    contrast = sum(abs(each.rows / n - 1 / len(sent)) for each in sent) / 2
    return replace(heads, shift=mean, stretch=stretch, decay=min(1.0, len(mean) / n), contrast=contrast)


def class_moments(sent: Described, c: int) -> tuple[Tensor, Tensor] | None:
    """Mean and variance (d,) of a class at one source, if it sent them."""
    place = (sent.classes == c).nonzero().flatten()
    return (sent.mean[place[0]].float(), sent.variance[place[0]].float()) if len(place) else None


def pooled(sent: Iterable[Described], c: int) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of a class over all sources that sent them, each source alike."""
    known = [moments for each in sent if (moments := class_moments(each, c))]
    if not known:
        return None
    means, variances = (torch.stack(each) for each in zip(*known, strict=True))
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)


def atoms(state: State, turn: Turn[Config]) -> Atoms:
    """The dictionary in the type that goes over the wire."""
    wire = WIRE[turn.config.wire]
    return Atoms(client.narrowed(state.z, wire), state.y.to(wire))


def both(turn: Turn[Config]) -> tuple[ClientId, ...]:
    """Sources and targets, which learn the dictionary together."""
    return turn.members(Role.SOURCE, Role.TARGET)


def average_atoms(state: State, replies: Replies[messages.Learnt] | Replies[messages.Shown], turn: Turn[Config]) -> State:
    """Eq. 12: the mean over clients, of points and of soft labels."""
    share = 1 / len(replies)
    most = torch.finfo(WIRE[turn.config.wire]).max  # a reply in a wider type than the wire's may hold more
    sent = (Dictionary(reply.z.float().clamp(-most, most), on_simplex(reply.y.float())) for reply in replies.values())
    mean = dictionary.mean((share, each) for each in sent)
    two = list(replies)[:2] if turn.config.line and turn.round == turn.config.rounds else ()
    versions = tuple(Atoms(replies[name].z.float(), replies[name].y.float()) for name in two)
    return replace(state, z=mean.z, y=mean.y, versions=versions)


def moved(reply: messages.Learnt, order: Atoms, site: Site[Config], asked: SecureSums) -> dict[str, Tensor]:
    """How far a site has moved points and labels, and that it has."""
    return terms(vars_of(reply), vars_of(order), 1.0, asked.clip)


def average_sums(total: Weights, state: State, turn: Turn[Config], asked: SecureSums) -> State:
    """Eq. 12 from sums over clients."""
    sent = atoms(state, turn)
    mean = mean_from(total, vars_of(sent), asked.clip)
    return replace(state, z=mean["z"], y=on_simplex(mean["y"]), versions=())


def vars_of(of: Atoms | messages.Learnt) -> dict[str, Tensor]:
    """Points and soft labels, by name."""
    return {"z": of.z.float(), "y": of.y.float()}


SUMS: Sums[Config, State] = Sums(shapes=lambda order, config, world: shapes_of(vars_of(order)), of=moved, fold=average_sums)


def dictionary_of(state: State, turn: Turn[Config]) -> messages.Adapting:
    """The dictionary and the sources' layers, to those who adapt."""
    sent = atoms(state, turn)
    return messages.Adapting(sent.z, sent.y, state.heads)


def line_to_all(state: State, turn: Turn[Config]) -> dict[ClientId, messages.Line]:
    """Figure 2a: dictionaries at equal steps from one version to the other."""
    if len(state.versions) < 2:
        return {}
    a, b = state.versions
    places = torch.linspace(0, 1, STEPS_OF_THE_LINE).view(-1, 1, 1, 1)
    line = messages.Line(torch.lerp(a.z[None], b.z[None], places), torch.lerp(a.y[None], b.y[None], places))
    return dict.fromkeys(both(turn), line)
