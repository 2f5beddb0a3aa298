"""Who gets which rows: pure ways to deal data out to sites."""

from __future__ import annotations

import numpy as np

from tideline.core.errors import ConfigRefused
from tideline.learning.holdings import Rows, legacy


def by_domain(domains: tuple[str, ...], n_sites: int) -> tuple[str, ...]:
    """The domain of each site. The last site gets the last domain; the others take turns through the rest.

    So the last domain, the natural target, is nobody else's (unless it is the only one).
    Raises ConfigRefused without a domain or a site.
    """
    if not domains or n_sites < 1:
        what = f"{len(domains)} domains cannot be dealt to {n_sites} sites"
        raise ConfigRefused(what, "Name at least one of each", path="sites")
    others = domains[:-1] or domains
    return (*(others[i % len(others)] for i in range(n_sites - 1)), domains[-1])


def at_random(n_rows: int, n_parts: int, seed: int) -> list[Rows]:
    """Rows 0 .. n_rows - 1 shuffled and dealt: disjoint, covering, sizes differing by at most one.

    Raises ConfigRefused for fewer than one part or a negative number of rows.
    """
    if n_parts < 1 or n_rows < 0:
        raise ConfigRefused(f"{n_rows} rows cannot be dealt in {n_parts} parts", "Ask for at least 1 part", path="parts")
    return list(np.array_split(legacy(seed).permutation(n_rows).astype(np.int64), n_parts))
