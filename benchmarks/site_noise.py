"""What noise that protects whole sites costs in accuracy: one domain's rows dealt to 4 to 100 sites, by epsilon.

    python benchmarks/site_noise.py --data DIR --set pacs32_lite0 [--sites 4,10,30,100] [--seeds 3] [--out F]
    python benchmarks/site_noise.py --table rows.jsonl

The labelled rows of all domains but one are dealt at random to N sites, which train a linear layer on features of a frozen
encoder with `fedavg`; each site's change is shortened to `norm`, and the sum has noise (`secure_sums.noise`). Epsilon is that of
the run for a whole site, at delta 1e-5. A row: the accuracy in percent on all rows of the domain that was left out. Norm and rate
were chosen on another domain than those reported, at 100 sites and epsilon 8.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.domains import each_target, played_with, world_of
from benchmarks.lines import Row, show, there
from tideline import nets
from tideline.algorithms.averaging.messages import Model
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.normalise import NO_SCALING
from tideline.core.rows import MemoryRows
from tideline.core.run import RunId
from tideline.core.settings import plain
from tideline.core.step import Data
from tideline.learning.around.sums import SUMS
from tideline.learning.formats.holdings import Holdings
from tideline.numerics.privacy.accounting import Gaussian, noise_for

NONE, DELTA = "none", 1e-5
CONFIG = {"rounds": 10, "rate": 0.1, "epochs": 2, "batch": 32, "weighting": "uniform"}
NORM = 0.3


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)
    show(args, rows, table)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the sets")
    parser.add_argument("--set", default="pacs32_lite0", help="folder of a set")
    parser.add_argument("--domains", default="", help="only these domains, by commas")
    parser.add_argument("--targets", default="", help="only these targets, by commas")
    parser.add_argument("--sites", default="4,10,30,100", help="how many, by commas")
    parser.add_argument("--epsilon", default="2,8,none", help="which, by commas")
    parser.add_argument("--norm", type=float, default=NORM)
    parser.add_argument("--rate", type=float, default=CONFIG["rate"])
    parser.add_argument("--rows", type=int, default=1800, help="images that a site has")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--table", type=Path, help="run nothing: a table of such lines, from a file")
    return parser.parse_args()


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """What is not there yet."""
    known = there(args.out, ("set", "target", "sites", "epsilon", "seed"))
    for at, domains in each_target(args):
        for sites in map(int, args.sites.split(",")):
            for epsilon in args.epsilon.split(","):
                for seed in range(args.seeds):
                    if (args.set, at, sites, epsilon, seed) not in known:
                        found = measured(args, domains, at, sites, epsilon, seed)
                        yield {"set": args.set, "target": at, "sites": sites, "epsilon": epsilon, "seed": seed, **found}


def measured(args: argparse.Namespace, domains: Mapping[str, Holdings], at: str, n: int, epsilon: str, seed: int) -> Row:
    """One run, and the accuracy of its model on the domain that no site has."""
    sites, world = dealt(domains, at, n, seed), replace(world_of(domains, at), normalise=NO_SCALING, model="linear")
    sums: dict[str, Any] = {"clip": 4.0}
    if epsilon != NONE:
        noise = noise_for(float(epsilon), DELTA, lambda z: (Gaussian(noise=z, times=CONFIG["rounds"]),))
        sums = {"norm": args.norm, "noise": noise, "delta": DELTA}
    config = {**CONFIG, "rate": args.rate, "evaluate_every": CONFIG["rounds"]}
    begun = time.perf_counter()
    roster = dict.fromkeys(sites, "source")
    federation, run, _ = played_with(sites, roster, "fedavg", config, seed, plain(world), more={"secure_sums": sums})
    state = decode(SUMS.of(Model), federation.journal.rounds(RunId(run))[-1].state[0][0], federation.parts, LAX)
    held, net = domains[at].held_out, nets.loaded(world, state.model)
    assert held.y is not None
    with torch.no_grad():
        right = net(held.x.all()).argmax(1) == held.y
    return {"accuracy": 100 * float(right.float().mean()), "seconds": round(time.perf_counter() - begun, 1)}


def dealt(domains: Mapping[str, Holdings], at: str, n: int, seed: int) -> dict[str, Holdings]:
    """The training rows of the other domains, at random, to n sites."""
    known = [held.train for name, held in sorted(domains.items()) if name != at]
    x, y = torch.cat([each.x.all() for each in known]), torch.cat([each.y for each in known if each.y is not None])
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    found = {}
    for i, mine in enumerate(order.tensor_split(n)):
        data = Data(MemoryRows(x[mine]), y[mine], torch.zeros(len(mine), dtype=torch.int64), ("dealt",))
        found[f"site-{i:03}"] = Holdings(data, replace(data, x=MemoryRows(x[mine[:8]]), y=y[mine[:8]], domain=data.domain[:8]))
    return found


def table(found: Sequence[Row]) -> str:
    """A line an epsilon, a cell a number of sites: the mean over targets and seeds, and the spread of seeds."""
    sizes = sorted({row["sites"] for row in found})
    lines = [["set", "epsilon", *map(str, sizes)], ["---"] * (len(sizes) + 2)]
    for chosen in sorted({row["set"] for row in found}):
        for epsilon in sorted({row["epsilon"] for row in found}, key=lambda e: float("inf") if e == NONE else float(e)):
            own = [row for row in found if (row["set"], row["epsilon"]) == (chosen, epsilon)]
            lines.append([chosen, epsilon, *(cell([row for row in own if row["sites"] == n]) for n in sizes)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(own: Sequence[Row]) -> str:
    """Mean over targets and seeds, and the standard deviation over seeds of the mean over targets."""
    by_seed = [mean(row["accuracy"] for row in own if row["seed"] == seed) for seed in sorted({row["seed"] for row in own})]
    return "-" if not own else f"{mean(by_seed):.1f}" + (f" ± {stdev(by_seed):.1f}" if len(by_seed) > 1 else "")


if __name__ == "__main__":
    sys.exit(main())
