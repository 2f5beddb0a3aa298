"""What a round sums, and where in a run: all of it is in the masks, so that other terms have other masks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from tideline.core.errors import ConfigRefused
from tideline.secure.errors import RangeRefused
from tideline.secure.fixed_point import Grid
from tideline.secure.graph import enough
from tideline.secure.masks import Part

LEAST_SITES, MOST_SITES = 3, 3500  # of two, each could take its own value from the sum
MOST_VALUES = 1 << 31
WORD = b"tideline secure 1\n"


@dataclass(frozen=True)
class Place:
    """A place in a run's plan. attempt: how often the round was begun again before anybody signed its survivors."""

    run: str
    phase: str
    round: int
    attempt: int = 0

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.run, self.phase, self.round, self.attempt

    def __str__(self) -> str:
        return f"round {self.round} of {self.phase}"


@dataclass(frozen=True)
class Terms:
    """A sum of so many values at each of these sites, on a grid that proves that it cannot wrap.

    They say nothing of what sites are asked, so that keys and shares can be sent before that is known. Raises RangeRefused, and
    ConfigRefused for sites that make no sum.
    """

    place: Place
    sites: tuple[str, ...]
    length: int
    clip: float
    bits: int
    exponent: int

    def __post_init__(self) -> None:
        if not LEAST_SITES <= len(self.sites) <= MOST_SITES:
            what = f"A secure sum is of {LEAST_SITES} to {MOST_SITES} sites, and {len(self.sites)} are named"
            raise ConfigRefused(what, "Have more sites join, or fewer", path="roster")
        if self.sites != tuple(sorted(set(self.sites))):
            raise ConfigRefused("The sites of a secure sum are not sorted, or one is named twice", path="roster")
        if not 1 <= self.length <= MOST_VALUES:
            raise RangeRefused(f"A sum is of {self.length} values", f"Sum 1 to {MOST_VALUES}", path="length")
        Grid(self.clip, len(self.sites), self.bits, self.exponent)  # proves that the sum cannot wrap

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.clip, len(self.sites), self.bits, self.exponent)

    @property
    def enough(self) -> int:
        """How many sites have to remain until the end."""
        return enough(len(self.sites))

    @cached_property
    def digest(self) -> str:
        facts = (*self.place.parts, self.sites, self.length, float(self.clip).hex(), self.bits, self.exponent)
        return sha256(words("terms", *facts)).hexdigest()


@dataclass(frozen=True)
class Identity:
    """How a site, or the coordinator, knows sites. Keys behind it are those that were pinned.

    sign(words)                      this site's signature
    verify(site, words, signature)   whether a site of the run signed these; False for any other name
    """

    name: str
    sign: Callable[[bytes], bytes]
    verify: Callable[[str, bytes, bytes], bool]


def words(kind: str, *facts: object) -> bytes:
    """Facts as bytes to be signed or hashed, so that no two lists of them are alike."""
    return WORD + json.dumps([kind, *facts], separators=(",", ":")).encode()
