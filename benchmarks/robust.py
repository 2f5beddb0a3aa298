"""Robust folds under attack: what each rule costs when nobody is wrong, and what it saves when somebody is.

    python benchmarks/robust.py [--quick] [--seeds 3] [--rounds 15] [--json] [--limit lost.sign_flip.krum.mean=10]

Eight sites of handwritten digits learn one network by federated averaging: six have MNIST, one USPS, one optdigits, all as 16 x
16 numbers. Up to f = 2 are wrong. Attacks: `sign_flip`, two MNIST sites send w - 3 (w_i - w); `scaling`, they send
w + 10 (w_i - w); `label_flip`, they learn 9 - y for y; `domain`, the whole optdigits site learns permuted labels. Accuracies are
on held-out rows of the sites that are not wrong, in percent; `cost` and `lost` are what federated averaging without attack has
more on the same sites. Rounds go through the whole stack, in one process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from benchmarks.limits import check_keys, emit, limit, table
from tideline.algorithms.averaging import FedAvg, fedavg
from tideline.algorithms.averaging.folds import RULES
from tideline.algorithms.averaging.messages import Update
from tideline.core.algorithm import Methods
from tideline.core.phase import Phase, Plan
from tideline.core.rows import MemoryRows
from tideline.core.settings import setting
from tideline.core.step import Data, Outcome, Site
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.datasets import digits
from tideline.learning.formats.holdings import Holdings
from tideline.learning.formats.transforms import prepare

F = 2
MNIST = 6
SIDE = 16
LIARS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "sign_flip": ("mnist-0", "mnist-1"),
    "scaling": ("mnist-0", "mnist-1"),
    "label_flip": ("mnist-0", "mnist-1"),
    "domain": ("optdigits",),
}
MINORITIES = ("usps", "optdigits")
STRENGTH = {"sign_flip": -3.0, "scaling": 10.0}
Figure = Mapping[str, float]  # mean and spread over the seeds


@dataclass(frozen=True)
class Attacked(FedAvg):
    """Federated averaging, some of whose sites are wrong."""

    attack: str = setting("none", choices=tuple(LIARS), doc="what the wrong sites do")


@dataclass(frozen=True)
class Row:
    """What was measured, in percent and percentage points; rules by name in each table."""

    sites: int
    f: int
    rounds: int
    seeds: int
    clean: Mapping[str, Figure]
    cost: Mapping[str, Figure]
    minority: Mapping[str, Mapping[str, Figure]]
    lost: Mapping[str, Mapping[str, Figure]]
    chosen: Mapping[str, Mapping[str, float]]


def main() -> int:
    """One row."""
    args = arguments()
    check_keys(Row, args.limit)
    torch.set_num_threads(1)
    seeds = range(1 if args.quick else args.seeds)
    rounds = 6 if args.quick else args.rounds
    found = {(a, r, s): outcome(a, r, s, rounds) for a in LIARS for r in RULES for s in seeds}
    row = summed(found, rounds, len(seeds))
    return emit(row, shown(row), args.limit, args.json)


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of averaging")
    parser.add_argument("--quick", action="store_true", help="one seed, six rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--limit", type=limit, action="append", default=[], help="KEY=NUMBER; ends with 1 above it")
    return parser.parse_args()


def outcome(attack: str, rule: str, seed: int, rounds: int) -> dict[str, Any]:
    """One run: accuracies by site in percent, and in what share of the rounds each site was chosen, where a rule chooses."""
    federation = Federation(METHODS, {n: SimSite(lambda w, r, own=own: own) for n, own in holdings().items()})
    config = {"attack": attack, "rounds": rounds, "epochs": 2, "batch": 32, "rate": 0.03, "evaluate_every": rounds}
    rules = {"robust": rule, **({} if rule in ("none", "clip") else {"byzantine": F})}
    world = {"inputs": [SIDE * SIDE], "classes": digits.CLASSES, "model": "mlp"}
    given = {"method": "attacked", "config": config | rules, "world": world, "seed": seed}
    run = federation.start(given | {"roster": dict.fromkeys(holdings(), "source")})
    result = federation.run(run)
    if result["status"] != "completed":
        sys.exit(f"{rule} under {attack}: {result['cause']}")
    marks = [phase["marks"].get("chosen", ()) for phase in result["phases"] if phase["name"] == "train"]
    chosen = {name: sum(name in names for names in marks) / len(marks) for name in holdings()}
    return {"accuracy": {c["name"]: 100 * float(c["accuracy"]) for c in result["clients"]}, "chosen": chosen}


@cache
def holdings() -> dict[str, Holdings]:
    """The sites' rows; read once."""
    places = {f"mnist-{i}": ("mnist", i, MNIST) for i in range(MNIST)} | {name: (name, 0, MNIST) for name in MINORITIES}
    return {name: part_of(*place) for name, place in places.items()}


def part_of(domain: str, part: int, parts: int) -> Holdings:
    """One site's part of a domain, in 16 x 16 numbers."""
    raw = digits.load(domain)
    x = prepare((raw.x / (raw.scale or 255.0)).astype(np.float32), (1, SIDE, SIDE)).flatten(1)
    y = torch.from_numpy(raw.y.astype(np.int64))
    sides = (torch.from_numpy(rows) for rows in digits.deal(raw, part, parts, None))
    return Holdings(*(Data(MemoryRows(x[rows]), y[rows], torch.zeros(len(rows), dtype=torch.int64), (domain,)) for rows in sides))


def plan(c: Attacked) -> Plan:
    """Federated averaging's plan, in which wrong sites do as the attack says."""
    return tuple(replace(p, step=replace(p.step, run=wronged(p))) if p.name == "train" and p.step else p for p in fedavg.plan(c))


def wronged(phase: Phase) -> Any:
    """The local training, as wrong sites do it."""
    assert phase.step is not None
    train = phase.step.run

    def run(order: Any, memory: Any, site: Site) -> Outcome[Update, Any]:
        attack = site.config.attack
        if site.me not in LIARS[attack]:
            return train(order, memory, site)
        if attack not in STRENGTH:
            return train(order, memory, replace(site, data=replace(site.data, y=mislabelled(site.data.y, attack))))
        honest = train(order, memory, site)
        lies = {k: order.model[k] + STRENGTH[attack] * (w - order.model[k]) for k, w in honest.message.model.items()}
        return replace(honest, message=Update(lies, honest.message.samples))

    return run


def mislabelled(y: torch.Tensor | None, attack: str) -> torch.Tensor:
    """Labels turned round, or permuted without a fixed point."""
    assert y is not None
    return 9 - y if attack == "label_flip" else (3 * y + 7) % 10 if attack == "domain" else y


def summed(found: Mapping[tuple[str, str, int], Mapping[str, Any]], rounds: int, seeds: int) -> Row:
    """The tables over the seeds."""

    def mean(attack: str, rule: str, seed: int, names: Iterator[str] | tuple[str, ...]) -> float:
        return float(np.mean([found[attack, rule, seed]["accuracy"][name] for name in names]))

    def figure(values: list[float]) -> Figure:
        return {"mean": round(float(np.mean(values)), 2), "spread": round(float(np.std(values)), 2)}

    def lost(attack: str, rule: str) -> Figure:
        right = tuple(name for name in holdings() if name not in LIARS[attack])
        return figure([mean("none", "none", s, right) - mean(attack, rule, s, right) for s in range(seeds)])

    every = tuple(holdings())
    choosers = [rule for rule in RULES if "krum" in rule]
    return Row(
        len(every),
        F,
        rounds,
        seeds,
        {rule: figure([mean("none", rule, s, every) for s in range(seeds)]) for rule in RULES},
        {rule: lost("none", rule) for rule in RULES},
        {d: {rule: figure([mean("none", rule, s, (d,)) for s in range(seeds)]) for rule in RULES} for d in MINORITIES},
        {attack: {rule: lost(attack, rule) for rule in RULES} for attack in LIARS if attack != "none"},
        {
            r: {n: round(float(np.mean([found["none", r, s]["chosen"][n] for s in range(seeds)])), 2) for n in every}
            for r in choosers
        },
    )


def shown(row: Row) -> list[str]:
    """The tables for people."""
    heads = ("rule", "clean", "cost", *MINORITIES, *row.lost)
    columns = [row.clean, row.cost, *row.minority.values(), *row.lost.values()]
    lines = table(heads, [(rule, *(f"{c[rule]['mean']:.1f} ± {c[rule]['spread']:.1f}" for c in columns)) for rule in RULES])
    shares = [(rule, *(f"{100 * share:.0f} %" for share in names.values())) for rule, names in row.chosen.items()]
    return [*lines, "", "share of the rounds without attack in which a site was chosen", *table(("rule", *holdings()), shares)]


attacked = replace(fedavg, name="attacked", config=Attacked, plan=plan)
METHODS: Methods = (("attacked", "benchmarks.robust:attacked"),)

if __name__ == "__main__":
    sys.exit(main())
