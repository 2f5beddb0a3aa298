"""What each device of a Dirichlet deal is to have: how many rows, with and without labels, of which classes, of which domains.

Pure draws from a rule. Each has a seed of its own by the device's name, and the scale changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.learning.formats.holdings import legacy
from tideline.learning.partition.deals import seed_of

SINGLE, MIXED, SPLIT = CASES = ("single", "mixed", "split")
CLASSES_OF_ONE = 4  # classes that a device draws where all have one domain
Words = NDArray[np.str_]
Pool = tuple[str, ...]


@dataclass(frozen=True)
class Normal:
    """Numbers of rows: mean and standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Amounts:
    """Rows at a device before they are scaled: with and without labels at a labelled one, and at one without any label."""

    labelled: Normal = Normal(1600, 267)
    bare: Normal = Normal(200, 33)
    unlabelled: Normal = Normal(1000, 167)


@dataclass(frozen=True)
class Dirichlet:
    """What is dealt to `clients` devices N: the first `labelled` of them have labels, the others are targets.

    case     single: all rows are of one domain; mixed: of all domains, pooled; split: each device has one domain, drawn
    take     the domains that are dealt; all of the folder's if none is named
    classes  how many a device has. Each labelled device draws its own; the others copy those of a labelled one, drawn.
             None: 4 in the case single (or all, where there are fewer), all in the others
    alpha    the mix of a device's classes is drawn from Dir(alpha * 1)
    scale    of all numbers of rows
    share    of a device's labelled rows, and of all rows of an unlabelled one, that are held out, in (0, 1), at least one
    seed     of everything that is drawn
    role     of the labelled devices: source or peer
    """

    clients: int = 10
    labelled: int = 5
    case: str = SINGLE
    take: tuple[str, ...] = ()
    classes: int | None = None
    alpha: float = 5.0
    scale: float = 1.0
    share: float = 0.1
    seed: int = 0
    role: Role = Role.SOURCE
    amounts: Amounts = field(default=Amounts())


@dataclass(frozen=True)
class Device:
    """What a device is to have: rows with labels and without (with none at all, `labelled` is 0), of a pool of domains.

    counts  rows of each class; they sum to labelled + bare
    """

    name: str
    pool: Pool
    labelled: int
    bare: int
    counts: Mapping[str, int]


def names_of(rule: Dirichlet) -> list[str]:
    """The devices: client-1 to client-N."""
    return [f"client-{i + 1}" for i in range(rule.clients)]


def known(labels: Mapping[str, Words], rule: Dirichlet) -> list[str]:
    """The classes that devices draw from: in the case split those of every domain, or else those of any."""
    sets = [frozenset(np.unique(labels[name]).tolist()) for name in sorted(rule.take or labels)]
    return sorted(frozenset.intersection(*sets) if rule.case == SPLIT else frozenset.union(*sets))


def drawn(labels: Mapping[str, Words], rule: Dirichlet) -> Iterator[Device]:
    """What each device is to have. Raises ConfigRefused."""
    sets = class_sets(known(labels, rule), rule)
    for i, name in enumerate(names_of(rule)):
        z = legacy(seed_of(rule.seed, "amounts", name)).standard_normal(2)
        if i < rule.labelled:
            labelled, bare = scaled(name, 2, rule.amounts.labelled, z[0], rule), scaled(name, 1, rule.amounts.bare, z[1], rule)
        else:
            labelled, bare = 0, scaled(name, 2, rule.amounts.unlabelled, z[0], rule)
        p = legacy(seed_of(rule.seed, "mix", name)).dirichlet([rule.alpha] * len(sets[i]))
        counts = dict(zip(sets[i], apportioned(p, labelled + bare), strict=True))
        yield Device(name=name, pool=pool_of(tuple(labels), name, rule), labelled=labelled, bare=bare, counts=counts)


def scaled(device: str, least: int, of: Normal, z: float, rule: Dirichlet) -> int:
    """A number of rows from a standard normal z, scaled. Raises ConfigRefused for fewer than `least`."""
    n = round((of.mean + of.deviation * float(z)) * rule.scale)
    if n < least:
        what = f"With scale {rule.scale:g} {device} would have {max(n, 0)} of its {of.mean:g} rows"
        raise ConfigRefused(what, "Give a larger scale", path="scale")
    return n


def class_sets(classes: Sequence[str], rule: Dirichlet) -> list[list[str]]:
    """The classes of each device, in their order: a labelled one draws them, the others copy a labelled one that they draw."""
    n = rule.classes or (min(CLASSES_OF_ONE, len(classes)) if rule.case == SINGLE else len(classes))
    names = names_of(rule)
    own = [legacy(seed_of(rule.seed, "classes", name)).permutation(len(classes))[:n] for name in names[: rule.labelled]]
    sets = [[classes[k] for k in sorted(each)] for each in own]
    return sets + [sets[legacy(seed_of(rule.seed, "copies", name)).randint(rule.labelled)] for name in names[rule.labelled :]]


def pool_of(domains: Pool, device: str, rule: Dirichlet) -> Pool:
    """The domains that a device's rows come from: all together, or one that is drawn."""
    if rule.case != SPLIT:
        return domains
    return (domains[legacy(seed_of(rule.seed, "domain", device)).randint(len(domains))],)


def apportioned(p: NDArray[np.float64], n: int) -> list[int]:
    """n rows in the proportions p (k,), by the largest remainders; of equal ones the first."""
    whole = np.floor(p * n).astype(np.int64)
    order = np.argsort(whole - p * n, kind="stable")
    whole[order[: n - int(whole.sum())]] += 1
    return [int(each) for each in whole]
