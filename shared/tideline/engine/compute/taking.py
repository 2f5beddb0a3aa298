"""Whether a method takes the rows of a run's world: said before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable

from tideline.core.algorithm import AnyAlgorithm, Methods, resolve
from tideline.core.errors import ConfigRefused
from tideline.core.rows import Takes, described
from tideline.core.run import Roster, World
from tideline.core.settings import Settings

Fits = Callable[[Settings, World, Roster], None]


def taking(algorithm: AnyAlgorithm, fits: Fits, methods: Methods) -> Fits:
    """What holds world and roster to the method, which looks at the rows first."""

    def both(settings: Settings, world: World, roster: Roster) -> None:
        check_takes(algorithm, settings, world, methods)
        fits(settings, world, roster)

    return both


def check_takes(algorithm: AnyAlgorithm, settings: Settings, world: World, methods: Methods) -> None:
    """Raises ConfigRefused for rows that the method does not take, with the names of those that do. world: as it sees it."""
    takes: Takes = algorithm.takes(settings)
    if takes.fits(world):
        return
    known = [resolve(methods, name) for name, _ in methods]
    others = ", ".join(each.name for each in known if each.takes(each.configure({})).fits(world))
    why = f": it {takes.why}" if takes.why else ""
    what = f"world.inputs is {list(world.inputs)}, {described(world)}; {algorithm.name} takes {takes.words}{why}"
    raise ConfigRefused(what, f"Use one of: {others}", path="world.inputs")
