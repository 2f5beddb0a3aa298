"""How data are dealt to sites: pure functions from sizes to rows.

`deal` is for domain generalisation: one domain is left out and scored by, the rows of all others, the source domains, go to N
clients that hold d of them each (Bartholet et al., 2024, algorithm 5). With a target share it is for domain adaptation: the site
of the domain that is left out trains on its other rows, without their labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest
from tideline.learning.formats.holdings import Rows, legacy, none, split_rows

UNSEEN = "unseen"  # the site of the domain that is left out


@dataclass(frozen=True)
class Deal:
    """What is dealt: all domains but `leave_out` to `clients` clients N, `domains` of them each, d.

    share   of each client's rows that are its own held-out rows, in (0, 1), at least one row
    shots   rows of the domain that is left out which join each client's training rows; they are not used for scoring
    seed    of everything that is drawn
    target_share  of the rows of the domain that is left out that score, in (0, 1), at least one row; the unseen site trains
            on the others without labels. None: all of them score
    """

    leave_out: str
    clients: int
    domains: int
    seed: int = 0
    share: float = 0.1
    shots: int = 0
    target_share: float | None = None


@dataclass(frozen=True)
class Hand:
    """A site's rows of one domain, in its own order, sorted: to train on, held out, and (`bare`) to train on without labels."""

    train: Rows
    held: Rows
    bare: Rows = field(default_factory=none)


Hands = Mapping[str, Hand]


def by_domain(domains: tuple[str, ...], n_sites: int) -> tuple[str, ...]:
    """The domain of each site. The last site gets the last domain; the others take turns through the rest.

    So the last one, the natural target, goes to one site, unless there is no other. Raises ConfigRefused for no domain or site.
    """
    if not domains or n_sites < 1:
        what = f"{len(domains)} domains cannot be dealt to {n_sites} sites"
        raise ConfigRefused(what, "Name at least one of each", path="sites")
    others = domains[:-1] or domains
    return (*(others[i % len(others)] for i in range(n_sites - 1)), domains[-1])


def at_random(n_rows: int, n_parts: int, seed: int) -> list[Rows]:
    """Rows 0 .. n_rows - 1, shuffled, in disjoint parts of sizes that differ by one at most. Raises ConfigRefused for no part."""
    if n_parts < 1 or n_rows < 0:
        raise ConfigRefused(f"{n_rows} rows cannot be dealt in {n_parts} parts", "Ask for at least 1 part", path="parts")
    return list(np.array_split(legacy(seed).permutation(n_rows).astype(np.int64), n_parts))


def deal(sizes: Mapping[str, int], rule: Deal) -> dict[str, Hands]:
    """The rows of every site, by domain: client-1 to client-N, and `unseen`. `sizes`: rows of each domain of the set.

    Every row of the source domains is at one client, on one side. The unseen site holds out all rows of its domain but the
    shots, which are its training rows; without shots its first row is for training as well, since a site has at least one.
    With a target share it holds out that share, drawn from the seed; all other rows are for training, without their labels.
    Depends on sizes, names and rule alone. Raises ConfigRefused; its `path` is a field of the rule.
    """
    check(sizes, rule)
    source = {name: n for name, n in sorted(sizes.items()) if name != rule.leave_out}
    shots = few_shots(sizes[rule.leave_out], rule)
    sites: dict[str, Hands] = {}
    for i, parts in enumerate(split_domains(source, rule.clients, rule.domains, rule.seed)):
        name = f"client-{i + 1}"
        more = {rule.leave_out: Hand(shots[i], none())} if rule.shots else {}
        sites[name] = hold_out(name, parts, rule) | more
    n, share = sizes[rule.leave_out], rule.target_share
    return sites | {UNSEEN: {rule.leave_out: unseen(n, shots) if share is None else target(n, rule, share)}}


def check(sizes: Mapping[str, int], rule: Deal) -> None:
    """Raises ConfigRefused unless there is such a domain, rows of it are left to score, and shares and shots make sense."""
    if rule.leave_out not in sizes:
        todo = f"Use one of: {', '.join(sorted(sizes))}{nearest(rule.leave_out, sorted(sizes))}"
        raise ConfigRefused(f"There is no domain {rule.leave_out} to leave out", todo, path="leave_out")
    if not 0 < rule.share < 1:
        what = f"share is {rule.share:g}; each client holds out some of its rows, and not all"
        raise ConfigRefused(what, "Give a number between 0 and 1, such as 0.1", path="share")
    n, taken = sizes[rule.leave_out], rule.shots * rule.clients
    if rule.shots < 0 or taken >= n:
        what = f"{rule.clients} clients with {rule.shots} shots each take {taken} of the {n} rows of {rule.leave_out}"
        raise ConfigRefused(what, "Leave rows to score by: ask for fewer shots", path="shots")
    if rule.target_share is not None:
        check_target(n, rule, rule.target_share)


def check_target(n: int, rule: Deal, share: float) -> None:
    """Raises ConfigRefused unless the n rows of a target can be divided, and no client is to have labels of them."""
    if not 0 < share < 1:
        what = f"target_share is {share:g}; the target is scored on some of its rows, and adapts with the others"
        raise ConfigRefused(what, "Give a number between 0 and 1, such as 0.2", path="target_share")
    if rule.shots:
        what = f"target_share gives the rows of {rule.leave_out} to the unseen site, and shots would give clients their labels"
        raise ConfigRefused(what, "Leave one of the two out", path="shots")
    if n < 2:
        what = f"The domain {rule.leave_out} has a single row, which cannot be split in training and held-out rows"
        raise ConfigRefused(what, "Leave another domain out, or add rows", path="leave_out")


def split_domains(sizes: Mapping[str, int], clients: int, domains: int, seed: int) -> list[dict[str, Rows]]:
    """Algorithm 5: rows of the source domains S for each of N clients, from exactly d domains each; sorted, by domain.

    With a = floor(N d / |S|) and b = N d mod |S| the b largest domains are cut into a + 1 parts, the others into a. Parts are
    listed in the order of the domains' names, and part t goes to client perm[t mod N]: a domain has at most N parts, so no
    client gets two of one. (To give parts to clients at random, as the algorithm is printed, can end where none fits.)
    A domain's rows are shuffled by the seed and the domain's name; its parts differ by at most one row.
    """
    cut = cuts(sizes, clients, domains)
    rows = {name: at_random(n, cut[name], seed_of(seed, "rows", name)) for name, n in sorted(sizes.items())}
    parts = [(name, part) for name, cut_up in rows.items() for part in cut_up]
    perm = legacy(seed_of(seed, "clients")).permutation(clients)
    dealt: list[dict[str, Rows]] = [{} for _ in range(clients)]
    for t, (name, part) in enumerate(parts):
        dealt[perm[t % clients]][name] = np.sort(part)
    return dealt


def cuts(sizes: Mapping[str, int], clients: int, domains: int) -> dict[str, int]:
    """Into how many parts each source domain is cut, the larger ones into more; names decide ties. Raises ConfigRefused."""
    n = len(sizes)
    if not n:
        what = "there is no source domain beside the one that is left out"
        raise ConfigRefused(what, "Give a folder with at least two domains", path="leave_out")
    if clients < 2:
        raise ConfigRefused(f"clients is {clients}; a federation has at least 2", "Ask for more clients", path="clients")
    if not 1 <= domains <= n:
        what = f"domains is {domains}; a client can have 1 to {n} of the source domains: {', '.join(sorted(sizes))}"
        raise ConfigRefused(what, "Ask for as many domains a client as there are, or fewer", path="domains")
    if clients * domains < n:
        what = f"{clients} clients with {domains} of {n} source domains each would leave a domain unused"
        raise ConfigRefused(what, "Ask for more clients, or for more domains a client", path="clients")
    a, b = divmod(clients * domains, n)
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))
    cut = {name: a + (i < b) for i, name in enumerate(largest)}
    for name, parts in cut.items():
        if sizes[name] < parts:
            what = f"The domain {name} has {sizes[name]} rows, which cannot be dealt in {parts} parts"
            raise ConfigRefused(what, "Ask for fewer clients, or give the domain more rows", path="clients")
    return cut


def hold_out(client: str, parts: Mapping[str, Rows], rule: Deal) -> dict[str, Hand]:
    """A client's rows with some of them held out, drawn from all of its domains together."""
    sizes = [len(part) for part in parts.values()]
    if sum(sizes) < 2:
        what = f"{client} would get a single row, which cannot be split in training and held-out rows"
        raise ConfigRefused(what, "Ask for fewer clients, or for more domains a client", path="clients")
    _, chosen = split_rows(sum(sizes), seed_of(rule.seed, "held out", client), rule.share)
    held = np.isin(np.arange(sum(sizes)), chosen)
    masks = np.split(held, np.cumsum(sizes)[:-1])
    return {name: Hand(part[~mask], part[mask]) for (name, part), mask in zip(parts.items(), masks, strict=True)}


def few_shots(n: int, rule: Deal) -> list[Rows]:
    """For each client the shots among the n rows of the domain that is left out, disjoint; of fewer shots they are a part."""
    drawn = legacy(seed_of(rule.seed, "shots", rule.leave_out)).permutation(n).astype(np.int64)
    return [np.sort(drawn[i :: rule.clients][: rule.shots]) for i in range(rule.clients)]


def unseen(n: int, shots: list[Rows]) -> Hand:
    """The site that is only scored: on all rows but the shots."""
    train = np.sort(np.concatenate(shots))
    rows = np.arange(n, dtype=np.int64)
    return Hand(train, np.setdiff1d(rows, train)) if len(train) else Hand(rows[:1], rows)


def target(n: int, rule: Deal, share: float) -> Hand:
    """The site that adapts: it trains on rows without labels, and is scored on others."""
    rows, held = split_rows(n, seed_of(rule.seed, "target", rule.leave_out), share)
    return Hand(none(), held, rows)


def seed_of(seed: int, *words: str) -> int:
    """A seed of its own for each thing that is drawn, so that none depends on how much was drawn before."""
    return int.from_bytes(hashlib.sha256(json.dumps([seed, *words]).encode()).digest()[:4], "big")
