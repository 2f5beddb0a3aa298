"""Real domains for the benchmarks: read from files, split, and played as the sites of a federation in one process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Policy
from tideline.core.rows import MemoryRows
from tideline.core.settings import EMPTY
from tideline.core.step import Data
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.holdings import Holdings
from tideline.learning.formats.transforms import prepare

SMALL = 500  # rows under which a domain is scored on all of them


@dataclass(frozen=True)
class Domain:
    """Rows of one domain, as the sites read them: x (n, *inputs), y (n,); which the set holds out, and which it trains on."""

    x: Tensor
    y: Tensor
    held: Tensor
    train: Tensor


def names(folder: Path, chosen: str) -> list[str]:
    """The set's domains, or those chosen."""
    return chosen.split(",") if chosen else sorted(f.stem for f in folder.glob("*.npz"))


def read(path: Path, name: str, size: int = 28, inverted: bool = False) -> Domain:
    """One domain: images as 3 x size x size, counts of visual words as the square root of their shares, reviews as log counts."""
    with np.load(path, allow_pickle=False) as arrays:
        x, y, held, train = arrays["x"], arrays["y"], arrays["test_idx"], arrays["train_idx"]
        if "top400" in arrays:
            x = np.log1p(x[:, arrays["top400"]].astype(np.float32))
    if x.ndim > 2:
        scale = 16.0 if path.stem == "optdigits" else 255.0
        made = prepare((x / scale).astype(np.float32), (3, size, size))
        made = 1 - made if inverted else made
    else:
        made = torch.from_numpy(np.sqrt(x / x.sum(1, keepdims=True)) if "surf" in name else x).float()
    return Domain(made, *(torch.from_numpy(each.astype(np.int64)) for each in (y, held, train)))


def holdings(domain: Domain, name: str, at_target: bool, rows: int, shares: Tensor | None = None) -> Holdings:
    """A site's rows, already split; a small target is seen and scored whole. shares: of images to train on, by class."""
    everything = torch.arange(len(domain.y))
    small = at_target and len(domain.y) < SMALL
    train = everything[~torch.isin(everything, domain.held)]
    if domain.x.dim() > 2:
        mixed = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))]
        train = (mixed[:rows] if shares is None else dealt(mixed, domain.y, shares, rows)).sort().values
    train, held = (everything, everything) if small else (train, domain.held)
    made = (Data(MemoryRows(domain.x[r]), domain.y[r], torch.zeros(len(r), dtype=torch.int64), (name,)) for r in (train, held))
    return Holdings(*made)


def dealt(order: Tensor, y: Tensor, shares: Tensor, rows: int) -> Tensor:
    """The first of these rows (n,) with such shares of the classes (C,): as many as each class has enough for, `rows` at most."""
    labels = y[order]
    most = torch.bincount(labels, minlength=len(shares)) / shares  # 0 / 0, of a class that neither has, limits nothing
    wanted = (shares * min(float(most.nan_to_num(torch.inf).min()), rows)).round().long()
    return torch.cat([order[labels == label][:many] for label, many in enumerate(wanted.tolist())])


def each_target(args: Any) -> Iterator[tuple[str, dict[str, Holdings]]]:
    """Every domain that is to be a target, with all sites as it sees them. args: data, set, domains, targets, rows."""
    folder = args.data / args.set
    domains = {name: read(folder / f"{name}.npz", args.set) for name in names(folder, args.domains)}
    for at in args.targets.split(",") if args.targets else domains:
        yield at, {name: holdings(domain, name, name == at, args.rows) for name, domain in domains.items()}


def world_of(sites: Mapping[str, Holdings], at: str) -> World:
    """The world of a set: a linear classifier for features, LeNet for images."""
    shape = tuple(sites[at].train.x.shape)
    classes = 1 + max(int(own.train.y.max()) for own in sites.values() if own.train.y is not None)
    return World(inputs=shape, classes=classes, model="linear" if len(shape) == 1 else "lenet")


def played(
    sites: Mapping[str, Holdings], at: str, method: str, config: Mapping[str, Any], seed: int
) -> tuple[Federation, str, dict[str, Any]]:
    """One run through the whole stack, `at` the target and all others sources: the federation, the run, its result."""
    world = world_of(sites, at)
    federation = Federation(METHODS, {name: SimSite(lambda w, r, own=own: own) for name, own in sites.items()})
    roster = {name: "target" if name == at else "source" for name in sites}
    given = {"method": method, "config": dict(config), "roster": roster, "seed": seed}
    given["world"] = {"inputs": list(world.inputs), "classes": world.classes, "model": world.model}
    run = federation.start(given)
    result = federation.run(run)
    if result["status"] != "completed":
        sys.exit(f"{method} at {at}: {result['cause']}")
    return federation, run, result


def played_with(
    sites: Mapping[str, Holdings],
    roster: Mapping[str, str],
    method: str,
    config: Mapping[str, Any],
    seed: int,
    world: Mapping[str, Any],
    weights: bytes = b"",
    policy: Policy = DEFAULT_POLICY,
    device: str = "cpu",
    more: Mapping[str, Any] = EMPTY,
) -> tuple[Federation, str, dict[str, Any]]:
    """One run through the whole stack with these roles, and with weights if a safetensors file is given. more: sections of it."""
    opened = {name: SimSite(lambda w, r, own=sites[name]: own, policy) for name in roster}
    federation = Federation(METHODS, opened, device=device)
    given = {"method": method, "config": dict(config), "roster": dict(roster), "seed": seed, "world": dict(world), **more}
    run = federation.start(given | ({"weights": federation.bring([weights])} if weights else {}))
    result = federation.run(run)
    if result["status"] != "completed":
        sys.exit(f"{method}: {result['cause']}")
    return federation, run, result
