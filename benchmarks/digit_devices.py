"""The paper's networks of ten devices, dealt from digits: five have labels for most of their rows, five for none.

USPS is padded with zeros to 28 x 28, as the paper has it; MNIST-M stays in colour where it is alone and is grey beside others.
Where MNIST stands beside MNIST-M, only those of its rows are taken that MNIST-M was not made of: the set's own split names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.learning.datasets import digits
from tideline.learning.formats.holdings import Holdings
from tideline.learning.partition.deals import Hand
from tideline.learning.partition.dirichlet import MIXED, SINGLE, SPLIT, Dirichlet
from tideline.learning.partition.folders import Sites, read_dealt, sites_of

CASES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "M": (SINGLE, ("mnist",)),
    "U": (SINGLE, ("usps",)),
    "MM": (SINGLE, ("mnistm",)),
    "M+U": (MIXED, ("mnist", "usps")),
    "M+MM": (MIXED, ("mnist", "mnistm")),
    "MM+U": (MIXED, ("mnistm", "usps")),
    "M//U": (SPLIT, ("mnist", "usps")),
    "M//MM": (SPLIT, ("mnist", "mnistm")),
    "MM//U": (SPLIT, ("mnistm", "usps")),
}
SHIPPED = {"mnist": "mnist", "usps": "usps", "mnistm": "coloured"}  # small stand-ins, where no folder is given
SIDE = 28
LESS = 0.9  # by which a scale is made smaller until the rows suffice


@dataclass(frozen=True)
class Network:
    """Devices with their rows and roles, and what they were dealt by."""

    sites: Mapping[str, Holdings]
    roles: Mapping[str, Role]
    rule: Dirichlet
    world: World


def network(case: str, seed: int, scale: float, data: Path | None, room: Path) -> Network:
    """Ten devices of a case. room: an empty folder for the prepared domains, which may be removed afterwards."""
    kind, names = CASES[case]
    write(names, data, room)
    rule, sites = dealt(room, Dirichlet(case=kind, take=names, scale=scale, seed=seed))
    world = World(inputs=(3 if names == ("mnistm",) else 1, SIDE, SIDE), classes=10, model="convnet")
    return Network(read_dealt(room, world, whole(sites), sites.roles), sites.roles, rule, world)


def dealt(folder: Path, rule: Dirichlet) -> tuple[Dirichlet, Sites]:
    """The deal, with a smaller scale where the rows do not suffice for that of the rule."""
    try:
        return rule, sites_of(folder, rule)
    except ConfigRefused as refused:
        if refused.context.get("path") != "scale" or rule.scale < 0.01:
            raise
    return dealt(folder, replace(rule, scale=round(rule.scale * LESS, 4)))


def whole(sites: Sites) -> Mapping[str, Mapping[str, Hand]]:
    """The hands with targets scored on all of their rows by labels that are hidden from them, as the paper has it."""
    return {
        site: {name: all_of(hand) if sites.roles[site] is Role.TARGET else hand for name, hand in hands.items()}
        for site, hands in sites.hands.items()
    }


def all_of(hand: Hand) -> Hand:
    """Both sides have all rows."""
    rows = np.union1d(hand.train, hand.held)
    return Hand(rows, rows, hand.bare)


def write(names: tuple[str, ...], data: Path | None, room: Path) -> None:
    """The domains as .npz files."""
    for name in names:
        arrays = read(name, data)
        x, y = arrays["x"], arrays["y"]
        if name == "mnist" and "mnistm" in names and "train_idx" in arrays:
            rows = np.union1d(arrays["train_idx"], arrays["test_idx"])
            x, y = x[rows], y[rows]
        np.savez(room / f"{name}.npz", x=padded(x) if name == "usps" else x, y=y)


def read(name: str, data: Path | None) -> Mapping[str, Any]:
    """A domain's arrays, from its file or of what the package ships."""
    if data is None:
        raw = digits.load(SHIPPED[name])
        return {"x": raw.x, "y": raw.y}
    with np.load(data / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in ("x", "y", "train_idx", "test_idx")}


def padded(x: Any) -> Any:
    """x (n, H, W) with zeros around it, (n, 28, 28)."""
    rest = SIDE - x.shape[1]
    return np.pad(x, ((0, 0), *((rest // 2, rest - rest // 2),) * 2))
