"""What a run of `benchmarks/alignment.py` is asked for, and what its result tells; for its runs over the network, too."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.domains import SMALL, Domain, holdings, names, read
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.learning.formats.holdings import Holdings

INVERTED = ("fonts",)  # dark on light in the set, light on dark here
# The method and its settings: a learning rate of its digits, with momentum but for FADA and f-DANN, which have none.
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "alone": ("fedavg", {"rate": 0.03}),
    "central": ("central", {"rate": 0.03}),
    "source_only": ("fedavg", {"rate": 0.03}),
    "adabn": ("adabn", {"source_rate": 0.03}),
    "fdan": ("fdan", {"rate": 0.03}),
    "fdann": ("fdann", {}),
    "fada_I": ("fada", {"parts": "I"}),
    "fada_II": ("fada", {"parts": "II"}),
    "fada_III": ("fada", {"parts": "III"}),
    "kd3a": ("kd3a", {"rate": 0.03, "gate": 0.8}),
}
POLICY = '[allow]\nweights = ["coordinator", "peers"]\nstatistic = ["coordinator", "peers"]\nmetric = ["coordinator", "peers"]\n'
PEERS_SEE = DEFAULT_POLICY | {(each, Audience.PEERS) for each in (Exposure.WEIGHTS, Exposure.STATISTIC, Exposure.METRIC)}
ALL_SEEN = PEERS_SEE | {(Exposure.SAMPLES, Audience.COORDINATOR)}  # in a simulation, for `central` alone


def chosen(args: Any) -> list[str]:
    """The domains."""
    return names(args.data / args.set, args.domains)


def domains(args: Any) -> dict[str, Domain]:
    """The chosen domains, read."""
    return {name: read(args.data / args.set / f"{name}.npz", args.set, args.size, name in INVERTED) for name in chosen(args)}


def gathered(all_of: Mapping[str, Domain], at: str, args: Any) -> dict[str, Holdings]:
    """What each site holds where `at` is the target."""
    if args.dealt and len(all_of[at].y) < SMALL:
        sys.exit(f"--dealt: {at} has fewer than {SMALL} rows, and is seen whole")
    shares = shares_of(all_of, args.dealt) if args.dealt else None
    return {name: holdings(own, name, name == at, args.rows, shares if name == at else None) for name, own in all_of.items()}


def shares_of(all_of: Mapping[str, Domain], dealt: str) -> Tensor:
    """The share of each class (C,): even, or as among the rows that a domain does not hold out."""
    if any(own.x.dim() <= 2 for own in all_of.values()):
        sys.exit("--dealt deals images; rows of features are all taken")
    classes = 1 + max(int(own.y.max()) for own in all_of.values())
    if dealt == "even":
        return torch.full((classes,), 1 / classes)
    if dealt not in all_of:
        sys.exit(f"--dealt {dealt} is neither even nor one of {', '.join(all_of)}")
    own = all_of[dealt]
    free = torch.ones(len(own.y), dtype=torch.bool)
    free[own.held] = False
    counts = torch.bincount(own.y[free], minlength=classes)
    return counts / counts.sum()


def experiment(sites: Mapping[str, Any], at: str, method: str, args: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A method's settings and the world; and everybody's role."""
    name, config = METHODS[method]
    shape = list(sites[at].train.x.shape)
    classes = 1 + max(int(own.train.y.max()) for own in sites.values() if own.train.y is not None)
    world = {"inputs": shape, "classes": classes, "model": args.model}
    more = json.loads(args.config)
    settings = {**lasting(name, args), **config, **more.get(name, {}), **more.get(method, {})}
    return {"method": name, "config": settings, "world": world}, {n: "target" if n == at else "source" for n in sites}


def lasting(method: str, args: Any) -> dict[str, Any]:
    """Settings by which sources train as long in every method: `rounds` epochs."""
    if method == "adabn":
        return {"source_rounds": args.rounds, "source_epochs": 1}
    at_last: dict[str, Any] = {"evaluate_every": args.rounds}
    if method in ("fada", "fdann"):
        return {"source_rounds": args.warm, "rounds": args.rounds - args.warm, **at_last}
    if method == "fdan":
        return {"warm": args.warm, "rounds": args.rounds - args.warm, **at_last}
    return {"rounds": args.rounds, **at_last}


def scored(result: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Accuracies in percent, and megabytes."""
    target = next(client for client in result["clients"] if client["name"] == at)
    moved = sum(client["bytes_up"] + client["bytes_down"] for client in result["clients"])
    report = {key: round(100 * target[key], 2) for key in ("accuracy", "source_only") if target.get(key) is not None}
    return {**report, "mb": round(moved / 1e6, 2)}
