"""What choosing sources and links costs, and how far the paper's approximation stays from the optimum.

    python benchmarks/links.py [--sizes 10,20,40,80,200] [--instances 100] [--limit 60] [--only time,gap,regimes,energy] [--quick]

Of an instance's devices half have labels, counts are as published, and errors and divergences are drawn uniformly. On the
theory's scale, with phi = (1, 0.5, 1), every labelled device is a source. Hard ones have half the divergence in percent and
phi_S = 10.

time: processor seconds, memory in MB beside what is loaded, and what came of it, each solver in a process of its own. gap: the
approximation over the optimum in percent, as rounded and with each target's cheapest source. regimes: equal divergences, one
device that is near to all, and random ones. energy: joules, links and saved links as phi_E grows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.measure import grown
from tests.numerics.devices import HARD, THEORY, drawn, energies
from tideline.numerics.links.link_problem import Phi, Plan, Problem, exact, polished
from tideline.numerics.links.signomial import sca

SCALES = {"theory": (THEORY, 1.0), "hard": (HARD, 100.0)}
WEIGHTS = tuple(10.0**k for k in range(-3, 5))
Row = dict[str, Any]


def main() -> int:
    """The tables that were asked for, a row a line."""
    args = arguments()
    if args.one:
        solver, scale, N, seed = args.one.split(",")
        sys.stdout.write(json.dumps(timed(solver, scale, int(N), int(seed), args.limit)))
        return 0
    tables = {"time": times, "gap": gaps, "regimes": regimes, "energy": sweep}
    for name in args.only.split(","):
        for row in tables[name](args):
            report = {"table": name, **row}
            sys.stdout.write((json.dumps(report) if args.json else "  ".join(f"{k} {v}" for k, v in report.items())) + "\n")
            sys.stdout.flush()
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,20,40,80,200", help="numbers of devices, by commas")
    parser.add_argument("--largest", type=int, default=80, help="the largest number for the approximation")
    parser.add_argument("--instances", type=int, default=100, help="of the gap, with ten devices")
    parser.add_argument("--seeds", type=int, default=3, help="instances of each timed row")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of the exact search")
    parser.add_argument("--only", default="time,gap,regimes,energy", help="tables, by commas")
    parser.add_argument("--one", default="", help="one timed row in this process, such as sca,hard,10,0")
    parser.add_argument("--quick", action="store_true", help="a small form")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    args = parser.parse_args()
    if args.quick:
        args.sizes, args.instances, args.seeds = "10", 3, 1
    return args


def times(args: Any) -> Iterator[Row]:
    """Each solver, scale, size and seed, in a process of its own."""
    for N in map(int, args.sizes.split(",")):
        for solver in ("exact", "sca") if args.largest >= N else ("exact",):
            for scale in SCALES:
                rows = [apart(f"{solver},{scale},{N},{seed}", args.limit) for seed in range(args.seeds)]
                seconds = sorted(row.pop("s") for row in rows)
                memory = max(row.pop("mb") for row in rows)
                rest = {name: [row[name] for row in rows] for name in rows[0]}
                yield {"solver": solver, "scale": scale, "N": N, "s": seconds, "mb": memory, **rest}


def apart(one: str, limit: float) -> Row:
    """One timed row from a process of its own."""
    command = [sys.executable, __file__, "--one", one, "--limit", str(limit)]
    row: Row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return row


def timed(solver: str, scale: str, N: int, seed: int, limit: float) -> Row:
    """Processor seconds, memory and outcome, once libraries are loaded. The exact search, which is short, is timed unobserved."""
    phi, divergence_scale = SCALES[scale]
    solve_ = (lambda p: exact(p, time_limit=limit)) if solver == "exact" else sca
    solve_(drawn(4, 0))
    p = drawn(N, seed, phi, divergence_scale)
    began = time.process_time()
    if solver == "exact":
        solve_(p)
    s = time.process_time() - began
    mb, (more, plan) = grown(lambda: clocked(solve_, p))
    report: Row = {"s": round(s if solver == "exact" else more, 4), "mb": round(max(mb, 0), 1), "steps": plan.iterations}
    report["status"] = " ".join((plan.status, *plan.flags))
    return report | ({"gap_percent": round(100 * plan.gap, 3)} if plan.gap is not None else {})


def clocked(solve_: Callable[[Problem], Plan], p: Problem) -> tuple[float, Plan]:
    """Processor seconds, and the plan."""
    began = time.process_time()
    plan = solve_(p)
    return time.process_time() - began, plan


def gaps(args: Any) -> Iterator[Row]:
    """Percent above the optimum with ten devices: mean, median and worst."""
    for scale, (phi, divergence_scale) in SCALES.items():
        found: dict[str, list[float]] = {"rounded": [], "polished": []}
        plans, same = [], 0
        for seed in range(args.instances):
            p = drawn(10, seed, phi, divergence_scale)
            plan, best = sca(p), exact(p)
            plans.append(plan)
            same += bool((plan.psi == best.psi).all())
            for name, each in (("rounded", plan), ("polished", polished(p, plan))):
                found[name].append(100 * (each.objective / best.objective - 1))
        report = {name: spread(values) for name, values in found.items()}
        yield {"scale": scale, "instances": args.instances, **report, "same_sources": same, **ends(plans)}


def spread(values: list[float]) -> dict[str, float]:
    """Mean, median and largest."""
    return {
        "mean": round(float(np.mean(values)), 2),
        "median": round(float(np.median(values)), 2),
        "worst": round(max(values), 2),
    }


def ends(plans: list[Plan]) -> Row:
    """How iterations ended, and by how much an objective rose after delta_link was tight."""
    rises = [after / before - 1 for p in plans for before, after in zip(p.objectives[15:], p.objectives[16:], strict=False)]
    status = [" ".join((p.status, *p.flags)) for p in plans]
    return {"ends": {name: status.count(name) for name in sorted(set(status))}, "largest_rise": float(f"{max(rises):.1e}")}


def regimes(args: Any) -> Iterator[Row]:
    """The three divergences of the paper's weights: sources, and each target's largest weights."""
    del args
    rng = np.random.default_rng(0)
    near, some = np.full((10, 10), 100.0), np.triu(rng.uniform(0, 100, (10, 10)), 1)
    near[0] = near[:, 0] = 1
    for name, T in {"equal": np.full((10, 10), 100.0), "one is near": near, "random": some + some.T}.items():
        p = Problem(np.full(10, 2.7), T, energies(10, rng), Phi(1, 0.5, 0.01), np.arange(10) >= 5)
        plan, best = sca(p), exact(p)
        largest = plan.alpha[:, plan.psi == 1].max(0)
        report = {"sources": int((plan.psi == 0).sum()), "exact_sources": int((best.psi == 0).sum())}
        yield {"regime": name, **report, "largest_weights": [round(float(largest.min()), 2), round(float(largest.max()), 2)]}


def sweep(args: Any) -> Iterator[Row]:
    """Ten devices on the theory's scale, as phi_E grows; the approximation without its continuation too."""
    del args
    problems = [drawn(10, 0, replace(THEORY, energy=each), 1.0) for each in WEIGHTS]
    for name, solve_ in {"exact": exact, "sca": sca, "sca, no continuation": lambda p: sca(p, continuation=False)}.items():
        plans = [solve_(p) for p in problems]
        links = [each.links for each in plans]
        yield {
            "solver": name,
            "links": links,
            "saved": [links[0] - each for each in links],
            "joules": [round(each.energy, 1) for each in plans],
        }


if __name__ == "__main__":
    sys.exit(main())
