"""What FADA and f-DANN refuse before anybody works, and what they do otherwise than they were asked."""

from __future__ import annotations

from collections.abc import Mapping

from tideline import nets
from tideline.algorithms.fada.settings import FEATURES, GRAD, UNIFORM, Either, aligns
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.run import Role, Roster, World
from tideline.nets.disentangling import numbers
from tideline.nets.disentangling import sizes as sizes_of
from tideline.nets.layers import backbone_of, parameters
from tideline.numerics.alignment.adversarial import epsilon


def fits(config: Either, world: World, roster: Roster) -> None:
    """Raises ConfigRefused for settings that exclude each other, RosterRefused without a labelled source, or without a target."""
    nets.check(world)
    if config.mode == GRAD and config.steps != 1:
        what = f"config.mode is grad, the gradient of one mini-batch, and config.steps is {config.steps}"
        raise ConfigRefused(what, "Set steps to 1, or use mode delta", path="config.steps")
    if config.critic == FEATURES and not aligns(config):
        what = "config.critic is features, and there is nothing that they are for: no alignment"
        raise ConfigRefused(what, "Use parts II or III and lambda_adv above 0, or leave critic out", path="config.critic")
    if config.critic == FEATURES and bare(world):
        what = f"{world.model} has nothing below its classifier: its features would be the rows themselves"
        raise ConfigRefused(what, "Use another network, or leave config.critic out", path="world.model")
    peers = sorted(m.id for m in roster if m.role is Role.PEER)
    if peers:
        what = f"{peers[0]} is a peer, of which this method makes no use: sources teach, and targets are taught"
        raise RosterRefused(what, "Make it a source or a target", path=f"roster.{peers[0]}")
    blind = sorted(m.id for m in roster if m.role is Role.SOURCE and not m.labelled)
    if blind:
        what = f"{blind[0]} is a source, and has no labels"
        raise RosterRefused(what, "Make it a target, or leave it out", path=f"roster.{blind[0]}")
    for role in (Role.SOURCE, Role.TARGET):
        if not any(m.role is role for m in roster):
            raise RosterRefused(f"No member of the roster is a {role.value}", f"Add a site as {role.value}", path="roster")


def bare(world: World) -> bool:
    """Whether the network has no layers below its classifier."""
    return not parameters(backbone_of(nets.template(world)))


def sizes(config: Either, world: World) -> Mapping[str, int]:
    """p, the parameters of an identifier, and d, the features."""
    d = sizes_of(world)[1]
    return {"p": numbers(d), "d": d}


def notes(config: Either, world: World) -> tuple[str, ...]:
    """What noise is worth, what cannot be aligned, and what cannot be weighed."""
    said = []
    if config.attention != UNIFORM and config.clustered < world.classes:
        said.append(f"clustered is {config.clustered}, below {world.classes} classes: no clusters, so all sources weigh alike")
    if bare(world) and aligns(config):
        said.append(f"{world.model} has nothing below its classifier: the features are the rows, and are not aligned")
    if config.critic == FEATURES:
        said.append(worth(config))
    return tuple(said)


def worth(c: Either) -> str:
    """The budget of all exchanges, in words."""
    releases = c.rounds * c.identify_steps
    if c.noise == 0:
        return f"{releases} exchanges show features without noise: epsilon is infinite"
    spent = epsilon(releases, c.noise, c.delta)
    said = f"{releases} exchanges show features at noise {c.noise:g}: epsilon {spent:.3g} at delta {c.delta:g}"
    return said + (f", above the limit of {c.epsilon:g}: raise noise, or have fewer exchanges" if spent > c.epsilon else "")
