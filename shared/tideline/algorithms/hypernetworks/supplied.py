"""What a run asks of weights that a person brings: matched heads, which are linear, begin around them."""

from __future__ import annotations

from tideline.algorithms.hypernetworks.settings import CHUNKED, Hyper, check
from tideline.core.errors import ConfigRefused
from tideline.core.run import Roster, World


def check_supplied(c: Hyper, world: World, roster: Roster) -> None:
    """As `check`. Raises ConfigRefused for chunked heads too, which cannot begin from a model."""
    check(c, world, roster)
    if c.heads == CHUNKED:
        what = "config.heads is chunked, and chunked heads cannot generate weights that are brought"
        raise ConfigRefused(what, "Use linear heads, or leave weights out", path="config.heads")
