"""Secure sums, as a run asks for them: of what its sites send to be added up, the coordinator sees the sum alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tideline.core.errors import ConfigRefused
from tideline.core.settings import setting

LEAST_SITES = 3  # of two, each could take its own value from the sum
TAIL = 12.0  # standard deviations of a site's noise that its numbers have room for


@dataclass(frozen=True)
class SecureSums:
    """How values are added up. The defaults are those of `secure_sums: true`."""

    clip: float = setting(4.0, low=2.0**-20, high=2.0**20, doc="largest change of a weight in a round; larger ones are clipped")
    rows: int = setting(10_000, low=1, doc="training rows that a site counts as in a mean, at most")
    bits: int = setting(32, choices=(32, 64), doc="of a whole number that stands for a value: 32, or 64 for finer steps")
    ahead: int = setting(4, low=1, high=64, doc="rounds for which keys are exchanged at once")
    sites: int = setting(LEAST_SITES, low=LEAST_SITES, doc="fewest sites whose sum may be made known")
    norm: float | None = setting(None, low=1e-6, high=1e6, doc="longest change of a site's model; longer ones are shortened")
    noise: float | None = setting(None, low=0.01, high=1e4, doc="standard deviation of the noise in the sum, in norms")
    delta: float = setting(1e-5, low=1e-12, high=0.1, doc="the chance that what the noise promises of a site does not hold")

    def __post_init__(self) -> None:
        """Raises ConfigRefused for noise without a norm, and the other way round."""
        if (self.norm is None) != (self.noise is None):
            given, lacks = ("noise", "norm") if self.norm is None else ("norm", "noise")
            what = f"secure_sums.{given} protects whole sites only beside secure_sums.{lacks}, which is not given"
            raise ConfigRefused(what, f"Give {lacks}, too, or leave {given} out", path=f"secure_sums.{lacks}")

    @property
    def words(self) -> str:
        """How a value travels, for owners of data."""
        many = f"more than two thirds of the sites asked, {self.sites} or more"
        noise = "" if self.noise is None else f"; a site's change is no longer than {self.norm:g}, and the sum has noise of"
        noise += "" if self.noise is None else f" {self.noise:g} times that"
        return f"whole numbers of {self.bits} bits under masks, of which the coordinator sees the sum over {many}{noise}"

    def reach(self, least: int) -> float:
        """The largest number of a site once it has its share of the noise, of which that of `least` sites suffices."""
        assert self.norm is not None and self.noise is not None, "of sums with noise"
        return self.norm * (1 + TAIL * self.noise / math.sqrt(least))
