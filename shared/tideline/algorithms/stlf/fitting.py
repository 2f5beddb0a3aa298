"""What ST-LF refuses before anybody works, and what it does otherwise than it was asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tideline import nets
from tideline.algorithms.stlf.settings import GIVEN, RULES, STLF
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.run import Role, Roster, World
from tideline.core.settings import nearest


def fits(config: STLF, world: World, roster: Roster) -> None:
    """Raises ConfigRefused for powers, rates and rules that mean nothing, RosterRefused where nobody can teach or be reached."""
    nets.check(world)
    check_rules(config.compare)
    check_measured(config)
    check_attention(config)
    if config.batch == 1 and config.divergence != "statistics":
        refuse("config.batch", "1; classifiers that tell devices apart are trained on two rows and more", "Use a larger batch")
    names = [str(member.id) for member in roster]
    for path, name in named(config):
        check_named(path, name, names)
    for name, watts in config.watts.items():
        if watts <= 0:
            refuse(
                f"config.watts.{name}", f"{watts:g} W; a device sends with a power above 0", "Write its transmit power in watts"
            )
    if len(roster) < 2:
        what = f"A link wants two devices; the roster has {len(roster)}"
        raise RosterRefused(what, "Add a device", path="roster")
    check_reached(config.rates, roster)


def check_rules(rules: Iterable[str]) -> None:
    """Raises ConfigRefused for a rule that there is not, or twice."""
    seen = list(rules)
    for rule in seen:
        if rule not in RULES:
            todo = f"Use some of: {', '.join(RULES)}{nearest(rule, RULES)}"
            raise ConfigRefused(f"config.compare names the rule {rule!r}, which there is not", todo, path="config.compare")
    if len(set(seen)) < len(seen):
        raise ConfigRefused("config.compare names a rule twice", "Name each once", path="config.compare")


def check_measured(config: STLF) -> None:
    """Raises ConfigRefused where rates are to be measured and nothing passes from site to site before links are formed."""
    if config.measured and config.divergence != "pairs":
        what = f"config.measured is true, but with divergence: {config.divergence} nothing is sent from site to site"
        raise ConfigRefused(what, "Use divergence: pairs, or give rates", path="config.measured")


def check_attention(config: STLF) -> None:
    """Raises ConfigRefused where weights are wanted and not given, or given and not wanted."""
    wanted = [rule for rule in config.compare if rule in GIVEN]
    if wanted and not config.attention:
        todo = "Give config.attention: of each target the weights of its sources, as another method told them"
        raise ConfigRefused(
            f"config.compare names the rule {wanted[0]!r}, and no weights are given", todo, path="config.attention"
        )
    if config.attention and not wanted:
        todo = f"Name {GIVEN[0]} or {GIVEN[1]} in config.compare, or leave the weights out"
        raise ConfigRefused("config.attention gives weights that no rule looks at", todo, path="config.attention")


def named(config: STLF) -> Iterator[tuple[str, str]]:
    """Every site that the settings name, and where."""
    yield from (("config.watts", name) for name in config.watts)
    for sender, rates in config.rates.items():
        yield "config.rates", sender
        yield from ((f"config.rates.{sender}", receiver) for receiver in rates)
    for target, weights in config.attention.items():
        yield "config.attention", target
        yield from ((f"config.attention.{target}", source) for source in weights)


def check_named(path: str, name: str, names: list[str]) -> None:
    """Raises ConfigRefused for a site that is not on the roster."""
    if name not in names:
        refuse(path, f"a mapping with {name!r}, which is not on the roster", f"Name sites of the roster{nearest(name, names)}")


def refuse(path: str, is_: str, todo: str) -> None:
    """Raises ConfigRefused for a setting."""
    raise ConfigRefused(f"{path} is {is_}", todo, path=path)


def check_reached(rates: Mapping[str, Mapping[str, float]], roster: Roster) -> None:
    """Raises RosterRefused where no device has labels, or one without any is reached by none that has."""
    able = [m.id for m in roster if m.labelled and m.role is not Role.TARGET]
    if not able:
        have = ", ".join(f"{m.id} ({m.role.value}{'' if m.labelled else ', no labels'})" for m in roster)
        what = f"No device has labels, so that none can be a source; the roster has {have}"
        raise RosterRefused(what, "Give a labelled site the role source or peer", path="roster")
    for member in roster:
        if member.id not in able and not any(rates.get(i, {}).get(member.id, 1.0) > 0 for i in able):
            what = f"No device with labels has a link to {member.id}, which has none: every rate to it is 0"
            raise RosterRefused(what, "Give a rate above 0 from one of them, or leave it out", path=f"roster.{member.id}")


def notes(config: STLF, world: World) -> tuple[str, ...]:
    """What is drawn, and what is of no use."""
    said = []
    missing = [word for word, known in (("powers", config.watts), ("rates", config.rates or config.measured)) if not known]
    if missing:
        said.append(f"transmit {' and '.join(missing)} are drawn, as none are given: joules are those of a simulation")
    if config.measured:
        said.append("rates are measured, so no two runs are the same; in one process they are those of its memory")
    if config.solver == "exact" and config.weights == "solver":
        said.append("weights: solver is single with the exact solver, which gives each target one source")
    return tuple(said)
