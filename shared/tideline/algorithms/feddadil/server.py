"""The coordinator's half of FedDaDiL: who is asked what, and how answers are folded. It never sees a coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.feddadil import client
from tideline.algorithms.feddadil.messages import (
    Adapting,
    Atoms,
    Described,
    Head,
    Learnt,
    Line,
    Model,
    Shown,
    State,
    Trained,
    Tuned,
)
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Replies, Turn
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Role, Roster, World
from tideline.numerics import dictionary
from tideline.numerics.averaging import weighted_sum
from tideline.numerics.dictionary import Dictionary

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

WIRE = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STEPS_OF_THE_LINE = 5


def needs_both(config: Config, world: World, roster: Roster) -> None:
    """Labelled sources to learn from, a target to adapt, and a world whose features are known. Raises Refused errors."""
    nets.check(world)
    if config.encoder_rounds == 0 and len(world.inputs) != 1:
        raise ConfigRefused(
            f"config.encoder_rounds is 0, but world.inputs {list(world.inputs)} are no features",
            "Let the sources learn an encoder (encoder_rounds: 12), or give features: inputs: [d]",
            path="config.encoder_rounds",
        )
    have = ", ".join(f"{m.id} ({m.role.value}{'' if m.labelled else ', no labels'})" for m in roster)
    for role, good in (
        (Role.SOURCE, [m for m in roster if m.role is Role.SOURCE and m.labelled]),
        (Role.TARGET, targets(roster)),
    ):
        if not good:
            what = "source with labels" if role is Role.SOURCE else "target"
            raise RosterRefused(
                f"The method needs at least one {what}; the roster has {have}", f"Add a {role.value}", path="roster"
            )


def targets(roster: Roster) -> list[Any]:
    """The members to adapt."""
    return [m for m in roster if m.role is Role.TARGET]


def rounded(config: Config, world: World) -> tuple[str, ...]:
    """Numbers of points that are no multiple of the classes are rounded up."""
    asked = {"points": config.points, "batch": config.batch}
    given = {name: client.per_class(n, world) * world.classes for name, n in asked.items()}
    return tuple(
        f"config.{name} is {asked[name]}; it is rounded up to {n}, so that each of the {world.classes} classes has as many"
        for name, n in given.items()
        if n != asked[name]
    )


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> State:
    """The network at random, and atoms of N(0, 1) with balanced labels."""
    d = nets.width(world)
    model = nets.weights_of(nets.build(world)) if config.encoder_rounds else {}
    head = Head(torch.zeros(world.classes, d), torch.zeros(world.classes)) if config.head_rounds else no_head(d)
    z = torch.randn(config.atoms, client.per_class(config.points, world) * world.classes, d, generator=rng)
    return State(model, head, z, balanced(config, world), ())


def no_head(d: int) -> Head:
    """Where the sources learn none."""
    return Head(torch.zeros(0, d), torch.zeros(0))


def balanced(config: Config, world: World) -> Tensor:
    """Y_P at the start: n / n_c points of each class in order, p0 on their own class. (K, n, n_c)."""
    labels = torch.arange(world.classes).repeat_interleave(client.per_class(config.points, world))
    logits = dictionary.one_hot_logits(labels, world.classes, config.label_confidence)
    return dictionary.soft_labels(logits).expand(config.atoms, -1, -1).clone()


def sources(turn: Turn) -> tuple[ClientId, ...]:
    """Sources with labels, sorted."""
    return tuple(sorted(m.id for m in turn.roster if m.role is Role.SOURCE and m.labelled))


def model_to_sources(state: State, turn: Turn) -> dict[ClientId, Model]:
    """The network to those who train it."""
    return dict.fromkeys(sources(turn), Model(state.model))


def average_model(state: State, replies: Replies[Trained], turn: Turn) -> State:
    """Eq. 9: the unweighted mean over the sources."""
    return replace(state, model=weighted_sum((1 / len(replies), reply.model) for reply in replies.values()))


def encoder_to_all(state: State, turn: Turn) -> dict[ClientId, Model]:
    """The frozen network to everybody."""
    return dict.fromkeys(turn.members(), Model(state.model))


def head_to_sources(state: State, turn: Turn) -> dict[ClientId, Head]:
    """The linear layer to those who train it."""
    return dict.fromkeys(sources(turn), state.head)


def average_head(state: State, replies: Replies[Tuned], turn: Turn) -> State:
    """The unweighted mean over the sources."""
    mean = weighted_sum((1 / len(replies), {"weight": r.weight, "bias": r.bias}) for r in replies.values())
    return replace(state, head=Head(mean["weight"], mean["bias"]))


def nothing_to_sources(state: State, turn: Turn) -> dict[ClientId, Nothing]:
    """The question for moments needs no words."""
    return dict.fromkeys(sources(turn), Nothing())


def first_atoms(state: State, replies: Replies[Described], turn: Turn) -> State:
    """Class-conditional Gaussian atoms: atom k is drawn from the moments of source k, the sources taking turns.

    A class that this source did not tell is drawn from the moments of all that did, and where nobody did, N(0, 1) stays.
    """
    told = list(replies.values())
    rows = client.per_class(turn.config.points, turn.world)
    z = state.z.clone()
    for k in range(len(z)):
        for c in range(turn.world.classes):
            place = slice(c * rows, (c + 1) * rows)
            moments = class_moments(told[k % len(told)], c) or pooled(told, c)
            if moments is not None:
                mean, variance = moments
                z[k, place] = mean + variance.sqrt() * torch.randn(rows, z.shape[2], generator=turn.rng)
    return replace(state, z=z)


def class_moments(told: Described, c: int) -> tuple[Tensor, Tensor] | None:
    """Mean and variance (d,) of a class at one source, if it told them."""
    place = (told.classes == c).nonzero().flatten()
    return (told.mean[place[0]].float(), told.variance[place[0]].float()) if len(place) else None


def pooled(told: Iterable[Described], c: int) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of a class over all sources that told them, each source alike."""
    known = [moments for each in told if (moments := class_moments(each, c))]
    if not known:
        return None
    means, variances = (torch.stack(each) for each in zip(*known, strict=True))
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)


def atoms(state: State, turn: Turn) -> Atoms:
    """The dictionary in the type that goes over the wire."""
    wire = WIRE[turn.config.wire]
    return Atoms(state.z.to(wire), state.y.to(wire))


def atoms_to_all(state: State, turn: Turn) -> dict[ClientId, Atoms]:
    """The dictionary to everybody: sources and targets learn it together."""
    return dict.fromkeys(turn.members(Role.SOURCE, Role.TARGET), atoms(state, turn))


def average_atoms(state: State, replies: Replies[Learnt] | Replies[Shown], turn: Turn) -> State:
    """Eq. 12: the mean over clients, of points and of soft labels."""
    share = 1 / len(replies)
    mean = dictionary.mean((share, Dictionary(reply.z.float(), reply.y.float())) for reply in replies.values())
    versions = two_versions(replies) if turn.config.line and turn.round == turn.config.rounds else ()
    return replace(state, z=mean.z, y=mean.y, versions=versions)


def two_versions(replies: Replies[Any]) -> tuple[Atoms, ...]:
    """The versions of the first two clients, before the mean is taken."""
    return tuple(Atoms(replies[name].z.float(), replies[name].y.float()) for name in list(replies)[:2])


def atoms_to_targets(state: State, turn: Turn) -> dict[ClientId, Adapting]:
    """The dictionary to those who adapt."""
    sent = atoms(state, turn)
    return dict.fromkeys(turn.members(Role.TARGET), Adapting(sent.z, sent.y, state.head))


def line_to_all(state: State, turn: Turn) -> dict[ClientId, Line]:
    """Figure 2a: dictionaries at equal steps from one version to the other."""
    if len(state.versions) < 2:
        return {}
    a, b = state.versions
    places = torch.linspace(0, 1, STEPS_OF_THE_LINE).view(-1, 1, 1, 1)
    line = Line(torch.lerp(a.z[None], b.z[None], places), torch.lerp(a.y[None], b.y[None], places))
    return dict.fromkeys(turn.members(Role.SOURCE, Role.TARGET), line)


def head_to_all(state: State, turn: Turn) -> Mapping[ClientId, Head]:
    """What the sources know of unadapted features, to everybody who is scored."""
    return dict.fromkeys(turn.members(Role.SOURCE, Role.TARGET), state.head)
