"""The two methods with styles that go to the sources in every preset, for the laws."""

from __future__ import annotations

from dataclasses import replace

from tideline.algorithms.ladd import ladd as plain
from tideline.algorithms.ladd import ladd_pl as plain_pl
from tideline.core.algorithm import Algorithm


def transferring(method: Algorithm) -> Algorithm:
    """The same with style_transfer in its presets."""
    return replace(method, presets={name: {**of, "style_transfer": True} for name, of in method.presets.items()})


ladd, ladd_pl = transferring(plain), transferring(plain_pl)
METHODS = (("ladd", "tests.algorithms.ladd.transferred:ladd"), ("ladd_pl", "tests.algorithms.ladd.transferred:ladd_pl"))
