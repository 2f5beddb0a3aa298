"""A deal to unlike devices: some have labels for most of their rows, others for none, and each has a mix of classes of its own.

The data set-up of ST-LF (Wang, Hosseinalipour, Brinton: Multi-Source to Multi-Target Decentralized Federated Domain Adaptation,
arXiv 2304.12422): N = 10 devices, the first 5 partially labelled; mixes from Dir(5); rows drawn without replacement. Each draw
has a seed of its own by the device's name, and the scale changes none of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.core.settings import nearest
from tideline.learning.formats.holdings import Rows, legacy
from tideline.learning.partition.deals import Hand, Hands, seed_of

SINGLE, MIXED, SPLIT = CASES = ("single", "mixed", "split")
CLASSES_OF_ONE = 4  # classes that a device draws where all have one domain
Words = NDArray[np.str_]
Pool = tuple[str, ...]
LOWEST_ALPHA = 0.1  # below it a draw may come out as 0/0
TRIES = 20  # scales that are tried, downwards from the largest that the rows would suffice for


@dataclass(frozen=True)
class Normal:
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
    """What a device is to have: `labelled` rows (or 0) and `bare` ones of a pool of domains; `counts`: of each class."""

    name: str
    pool: Pool
    labelled: int
    bare: int
    counts: Mapping[str, int]


def names_of(rule: Dirichlet) -> list[str]:
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
        pool = tuple(labels)
        if rule.case == SPLIT:
            pool = (pool[legacy(seed_of(rule.seed, "domain", name)).randint(len(pool))],)
        yield Device(name=name, pool=pool, labelled=labelled, bare=bare, counts=counts)


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


def apportioned(p: NDArray[np.float64], n: int) -> list[int]:
    """n rows in the proportions p (k,), by the largest remainders; of equal ones the first."""
    whole = np.floor(p * n).astype(np.int64)
    order = np.argsort(whole - p * n, kind="stable")
    whole[order[: n - int(whole.sum())]] += 1
    return [int(each) for each in whole]


@dataclass(frozen=True)
class Supply:
    """Rows of each class in each pool, and how many of them the devices ask for."""

    there: Mapping[tuple[Pool, str], int]
    asked: Mapping[tuple[Pool, str], int]

    def worst(self) -> tuple[tuple[Pool, str], float]:
        """Where least is there of what is asked for, and that share."""
        return min(((key, self.there[key] / n) for key, n in sorted(self.asked.items()) if n), key=lambda each: each[1])


def roles(rule: Dirichlet) -> dict[str, Role]:
    return {name: rule.role if i < rule.labelled else Role.TARGET for i, name in enumerate(names_of(rule))}


def deal(labels: Mapping[str, Words], rule: Dirichlet) -> dict[str, Hands]:
    """The rows of every device, by domain. `labels`: the class of each row (n,), for each domain of the set.

    No row is at two devices, or on two sides. At a labelled device rows without labels are in `bare`; they hold nothing out.
    Depends on labels and rule alone, not on the order of domains. Raises ConfigRefused; its `path` is a field of the rule.
    """
    check(labels, rule)
    taken = {name: labels[name] for name in sorted(rule.take or labels)}
    devices = list(drawn(taken, rule))
    check_supply(taken, devices, rule)
    sites = dict(handed(taken, devices, rule))
    check_classes(taken, sites, rule)
    return sites


def check(labels: Mapping[str, Words], rule: Dirichlet) -> None:
    """Raises ConfigRefused for a rule that has no meaning, whatever is drawn."""
    for path, value, fine, todo in (
        ("clients", rule.clients, rule.clients >= 2, "Ask for at least 2"),
        ("labelled", rule.labelled, 1 <= rule.labelled <= rule.clients, f"Give a number from 1 to {rule.clients}, the clients"),
        ("case", rule.case, rule.case in CASES, f"Use one of: {', '.join(CASES)}{nearest(rule.case, CASES)}"),
        ("alpha", rule.alpha, rule.alpha >= LOWEST_ALPHA and math.isfinite(rule.alpha), f"Give at least {LOWEST_ALPHA:g}"),
        ("scale", rule.scale, rule.scale > 0 and math.isfinite(rule.scale), "Give a number above 0, such as 1"),
        ("share", rule.share, 0 < rule.share < 1, "Give a number between 0 and 1, such as 0.1"),
        ("role", rule.role.value, rule.role is not Role.TARGET, "Use one of: source, peer"),
    ):
        if not fine:
            raise ConfigRefused(f"{path} is {value}, which no deal of this rule can have", todo, path=path)
    check_domains(labels, rule)
    n = len(known(labels, rule))
    if n < 2 or (rule.classes is not None and not 2 <= rule.classes <= n):
        what = f"classes is {rule.classes}; there are {n} classes" if rule.classes is not None else f"there are {n} classes"
        where = " that every domain has" if rule.case == SPLIT else ""
        raise ConfigRefused(f"{what}{where}", f"Give a number from 2 to {n}" if n > 1 else "Give rows of two", path="classes")


def check_domains(labels: Mapping[str, Words], rule: Dirichlet) -> None:
    """Raises ConfigRefused unless the domains that are taken are there, and as many as the case asks for."""
    for name in rule.take:
        if name not in labels:
            todo = f"Use some of: {', '.join(sorted(labels))}{nearest(name, sorted(labels))}"
            raise ConfigRefused(f"There is no domain {name} to take", todo, path="take")
    taken = sorted(rule.take or labels)
    if len(set(taken)) < len(taken):
        raise ConfigRefused("take names a domain twice", "Name each once", path="take")
    if (len(taken) == 1) != (rule.case == SINGLE):
        need, other = ("one domain", "mixed or split") if rule.case == SINGLE else ("two domains or more", SINGLE)
        what = f"the case {rule.case} needs {need}; the deal takes {', '.join(taken)}"
        raise ConfigRefused(what, f"Take {need}, or use the case {other}", path="take")


def check_supply(labels: Mapping[str, Words], devices: Sequence[Device], rule: Dirichlet) -> None:
    """Raises ConfigRefused where the rows do not suffice, with a scale for which they would."""
    (pool, c), share = (supply := supply_of(labels, devices)).worst()
    if share >= 1:
        return
    fits = fitting(labels, rule, rule.scale * share)
    todo = "Ask for fewer clients, or add rows" if fits is None else f"Give a scale of {fits:g} or less, or add rows"
    what = f"{', '.join(pool)} {'has' if len(pool) == 1 else 'have'} {supply.there[pool, c]} rows of class {c}"
    raise ConfigRefused(f"{what}; {supply.asked[pool, c]} are asked for with scale {rule.scale:g}", todo, path="scale")


def supply_of(labels: Mapping[str, Words], devices: Sequence[Device]) -> Supply:
    asked: Counter[tuple[Pool, str]] = Counter()
    for device in devices:
        asked.update({(device.pool, c): n for c, n in device.counts.items()})
    by_class = {name: Counter(words.tolist()) for name, words in labels.items()}
    return Supply({key: sum(by_class[name][key[1]] for name in key[0]) for key in asked}, asked)


def fitting(labels: Mapping[str, Words], rule: Dirichlet, most: float) -> float | None:
    """The largest scale of two digits, `most` or a little less, with which the same draws can be dealt; None if there is none."""
    if most <= 0:
        return None
    unit = 10.0 ** (math.floor(math.log10(most)) - 1)
    scales = [float(f"{(math.floor(most / unit) - step) * unit:.2g}") for step in range(TRIES)]
    return next((scale for scale in scales if scale > 0 and dealable(labels, replace(rule, scale=scale))), None)


def dealable(labels: Mapping[str, Words], rule: Dirichlet) -> bool:
    """Whether the rows suffice, and each device gets some."""
    try:
        devices = list(drawn(labels, rule))
    except ConfigRefused:
        return False
    return supply_of(labels, devices).worst()[1] >= 1


def handed(labels: Mapping[str, Words], devices: Sequence[Device], rule: Dirichlet) -> Iterator[tuple[str, Hands]]:
    """The rows of each device. The rows of a class are shuffled, and devices take from the front, one after the other."""
    piles: dict[tuple[Pool, str], Rows] = {}
    starts = dict(zip(labels, np.cumsum([0, *(len(words) for words in labels.values())])[:-1], strict=True))
    for device in devices:
        taken = []
        for c, n in device.counts.items():
            key = device.pool, c
            pile = piles[key] if key in piles else shuffled(labels, starts, key, rule.seed)
            taken.append(pile[:n])
            piles[key] = pile[n:]
        yield device.name, by_domain(np.concatenate(taken), device, labels, rule)


def shuffled(labels: Mapping[str, Words], starts: Mapping[str, int], key: tuple[Pool, str], seed: int) -> Rows:
    """The rows of a class over a pool of domains, counted through all domains, in an order that is drawn."""
    pool, c = key
    rows = np.concatenate([starts[name] + np.flatnonzero(labels[name] == c) for name in pool]).astype(np.int64)
    return rows[legacy(seed_of(seed, "rows", *pool, c)).permutation(len(rows))]


def by_domain(rows: Rows, device: Device, labels: Mapping[str, Words], rule: Dirichlet) -> dict[str, Hand]:
    """A device's rows on their sides, by domain. Which are without labels, and which held out, is drawn over all of them."""
    rows = rows[legacy(seed_of(rule.seed, "sides", device.name)).permutation(len(rows))]
    labelled = device.labelled or len(rows)  # a target drops its training labels itself, and is scored by the held-out ones
    held = min(max(round(labelled * rule.share), 1), labelled - 1)
    sides = np.split(rows, [held, labelled])
    hands, start = {}, 0
    for name, words in labels.items():
        out, train, bare = (np.sort(side[(side >= start) & (side < start + len(words))]) - start for side in sides)
        if out.size or train.size or bare.size:
            hands[name] = Hand(train, out, bare)
        start += len(words)
    return hands


def check_classes(labels: Mapping[str, Words], sites: Mapping[str, Hands], rule: Dirichlet) -> None:
    """Raises ConfigRefused where a labelled device would learn from one class alone."""
    for site in names_of(rule)[: rule.labelled]:
        seen = {c for name, hand in sites[site].items() for c in np.unique(labels[name][hand.train]).tolist()}
        if len(seen) < 2:
            what = f"With scale {rule.scale:g} and alpha {rule.alpha:g} {site} would have labels of class {min(seen)} alone"
            raise ConfigRefused(what, "Give a larger scale, a larger alpha, or another seed", path="scale")
