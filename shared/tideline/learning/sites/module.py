"""The function that `--data python:MODULE:NAME` names: found, called, and what it gives as a site.

It runs where data are read: in the trainer, or a command of the owner's. Its errors' words may hold data: the log alone has them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tideline.core.algorithm import attribute, import_from_here, unload_module
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, kind_of
from tideline.core.run import Role
from tideline.core.settings import nearest
from tideline.learning.formats.holdings import Holdings
from tideline.learning.formats.surveys import SAID
from tideline.learning.rows import scratch
from tideline.learning.sites.named import PREFIX, WRITE
from tideline.learning.sites.site import Site, holdings_of

log = logging.getLogger(__name__)
KEYS = ("train", "validation", "test", "labels", "class_names", "unit", "units")
GIVE = "Let it give a tideline.Site, a dict with train, validation and test, or the three as a tuple, None for what is not there"
LOG = "See the log of this process for its words"
Make = Callable[[], object]


def function_at(place: str, fresh: bool = False) -> Make:
    """The function. fresh: of the file as it is now. Raises ConfigRefused, with the words of what went wrong."""
    import_from_here()
    if fresh:
        unload_module(place.partition(":")[0])
    found = attribute(place, "--data", "data", WRITE)
    if not callable(found):
        what = f"--data {PREFIX}{place} is {kind_of(found)}, not a function"
        raise ConfigRefused(what, WRITE, path="data")
    return found


def site_at(place: str) -> Site:
    """What the function gives. Raises DataRefused, whose sentence has no words of the owner's code."""
    name = f"--data {PREFIX}{place}"
    try:
        make = function_at(place, fresh=True)
    except ConfigRefused as error:
        reason = type(error.__cause__).__name__ if error.__cause__ else "it is no function"
        log.warning("%s", error.what)
        raise DataRefused(f"{name} cannot be loaded: {reason}", f"{error.todo}. {LOG}", said=error.what[:SAID]) from error
    try:
        made = make()
    except Exception as error:  # one of ours, too, may have words of the owner's: a path, a key, a value
        log.warning("%s raises", name, exc_info=error)
        what = f"{name} raises {type(error).__name__}"
        raise DataRefused(what, f"Correct the function. {LOG}", said=str(error)[:SAID]) from error
    try:
        return site_of(made, name)
    except ConfigRefused as error:
        what = error.what if error.what.startswith(name) else f"{name}: {error.what}"
        raise DataRefused(what, error.todo, **error.context) from error


def site_of(given: object, name: str) -> Site:
    """A site of what a function may give. Raises ConfigRefused."""
    if isinstance(given, Site):
        return given
    if isinstance(given, Mapping):
        for key in given:
            if key not in KEYS:
                log.warning("%s gives a dict with the key %.100r", name, key)
                what = f"{name} gives a dict with a key that has no meaning"
                raise ConfigRefused(what, f"Use {', '.join(KEYS)}. {LOG}", said=f"{key!r}{nearest(str(key), list(KEYS))}"[:SAID])
        given = dict(given)
    elif isinstance(given, tuple) and len(given) == 3:
        given = dict(zip(KEYS, given, strict=False))
    elif given is not None:
        given = {"train": given}
    if not given or given.get("train") is None:
        raise ConfigRefused(f"{name} gives nothing to train on", GIVE)
    return Site(**given)


def read_python(place: str, world: World, role: Role, held: int = scratch.HELD) -> Holdings:
    """Everything that a site holds for this world. Raises DataRefused as `holdings_of`, with the function's name."""
    site = site_at(place)
    try:
        return holdings_of(site, world, role, held)
    except DataRefused as error:
        if site.folder is not None:
            raise
        raise DataRefused(f"--data {PREFIX}{place}: {error.what}", error.todo, **error.context) from error
