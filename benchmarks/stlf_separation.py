"""Algorithm 1 of ST-LF on single pairs of devices: what is measured of the same classifiers by their threshold, and by rank.

    python benchmarks/stlf_separation.py --data DIR [--case M//U] [--scale 0.15] [--rates 0.01,0.05] [--pairs 4]

Both halves of a pair are trained on one label alone and averaged, exchange after exchange. `d` is the paper's 2 |1 - 2 err|;
`by rank` is 2 |2 A - 1| of the same outputs, A the chance that a row of one device is ranked above one of the other; `one-sided`
counts classifiers that call nine tenths of the rows of both devices by one name. Means over pairs of one domain, and of two.
With --into DIR all pairs are played, to the last number of exchanges and with the first rate, and both measures of the same
classifiers go to files for `benchmarks/stlf_ablation.py --divergences DIR/d,DIR/by_rank`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Generator, Tensor

from benchmarks.digit_devices import Network, network
from tideline import nets
from tideline.algorithms.stlf.client import every
from tideline.core.asked.world import World
from tideline.learning.fit import cross_entropy, descend
from tideline.numerics.aggregation.averaging import weighted_sum

BATCH, SHARE = 10, 0.36
ALMOST = 0.9


@dataclass(frozen=True)
class Told:
    """What is measured of a pair's classifier: d, the same by rank, and whether it says one thing of nearly all rows."""

    d: float
    by_rank: float
    one_sided: bool


def main() -> int:
    """A line a rate, number of exchanges, and kind of pair."""
    args = arguments()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as room:
        made = network(args.case, args.seed, args.scale, args.data, Path(room))
    marks = [int(each) for each in args.exchanges.split(",")]
    if args.into:
        all_pairs(made, args, marks[-1])
        return 0
    sys.stdout.write("| rate | exchanges | domains | pairs | d | by rank | one-sided |\n|" + " --- |" * 7 + "\n")
    for rate in map(float, args.rates.split(",")):
        for kind, pairs in chosen(made, args.pairs).items():
            found = [list(exchanged(made, pair, rate, marks)) for pair in pairs]
            for at, mark in enumerate(marks):
                sys.stdout.write(line(rate, mark, kind, [each[at] for each in found]))
                sys.stdout.flush()
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the sets")
    parser.add_argument("--case", default="M//U", help="a split case")
    parser.add_argument("--seed", type=int, default=0, help="of the deal")
    parser.add_argument("--scale", type=float, default=0.15, help="of all numbers of rows")
    parser.add_argument("--rates", default="0.01,0.05", help="learning rates, by commas")
    parser.add_argument("--exchanges", default="5,15,50", help="when it is measured, by commas, rising")
    parser.add_argument("--pairs", type=int, default=4, help="pairs of each kind")
    parser.add_argument("--into", type=Path, help="a folder for divergences of all pairs, by threshold and by rank")
    return parser.parse_args()


def all_pairs(made: Network, args: Any, exchanges: int) -> None:
    """Divergences of all pairs, as a run's file has its own."""
    names, rate = sorted(made.sites), float(args.rates.split(",")[0])
    found = {}
    for i, j in itertools.combinations(range(len(names)), 2):
        (found[i, j],) = exchanged(made, (names[i], names[j]), rate, [exchanges])
    for measure in ("d", "by_rank"):
        d = torch.zeros(len(names), len(names), dtype=torch.float64)
        for (i, j), each in found.items():
            d[i, j] = d[j, i] = getattr(each, measure)
        said = {"case": args.case, "seed": args.seed, "divergence": f"alone, {measure}", "exchanges": exchanges}
        written(args.into / measure, names, d, said)


def written(folder: Path, names: list[str], d: Tensor, said: Mapping[str, Any]) -> None:
    """A file of divergences without anything else of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: torch.zeros(len(names)) for key in ("error", "count", "labelled")} | {"d": d, "K": torch.zeros_like(d)}
    words = {"names": json.dumps(names), "said": json.dumps(said)}
    save_file(tensors, folder / f"{said['case'].replace('/', '-')}-{said['seed']}.safetensors", words)


def chosen(made: Network, n: int) -> Mapping[str, list[tuple[str, str]]]:
    """The first pairs of devices of one domain, and of two."""
    of = {name: own.train.domains for name, own in made.sites.items()}
    pairs = list(itertools.combinations(sorted(of), 2))
    return {
        "one": [(i, j) for i, j in pairs if of[i] == of[j]][:n],
        "two": [(i, j) for i, j in pairs if of[i] != of[j]][:n],
    }


def exchanged(made: Network, pair: tuple[str, str], rate: float, marks: list[int]) -> Iterator[Told]:
    """Play a pair, and measure at the marks."""
    rows = [torch.cat(list(every(made.sites[name].train))) for name in pair]
    world, rng = replace(made.world, classes=2), torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    w = nets.weights_of(nets.build(world))
    for exchange in range(1, marks[-1] + 1):
        w = weighted_sum((0.5, half(world, w, label, x, rate, rng)) for label, x in enumerate(rows))
        if exchange in marks:
            yield report(world, w, rows)


def half(world: World, w: Mapping[str, Tensor], label: int, x: Tensor, rate: float, rng: Generator) -> dict[str, Tensor]:
    """An epoch on a share of a device's rows, all of one label."""
    net = nets.loaded(world, w)
    net.train()
    by = torch.optim.SGD(net.parameters(), lr=rate)
    n = min(math.ceil(SHARE * len(x) / BATCH) * BATCH, len(x))
    for rows in torch.split(torch.randperm(len(x), generator=rng)[:n], BATCH):
        descend(net, cross_entropy, x[rows], torch.full((len(rows),), label), by, 0.0)
    return nets.weights_of(net)


def report(world: World, w: Mapping[str, Tensor], rows: list[Tensor]) -> Told:
    """What is measured of a classifier w."""
    net = nets.loaded(world, w)
    net.eval()
    with torch.no_grad():
        first, second = ((net(x)[:, 1] - net(x)[:, 0]) for x in rows)
    said = [float((o > 0).double().mean()) for o in (first, second)]
    rank = float((second[:, None] > first[None]).double().mean())
    one = min(said) > ALMOST or max(said) < 1 - ALMOST
    return Told(2 * abs(1 - (said[0] + 1 - said[1])), 2 * abs(2 * rank - 1), one)


def line(rate: float, mark: int, kind: str, found: list[Told]) -> str:
    """A row of the table."""
    d, by_rank = (np.mean([getattr(each, key) for each in found]) for key in ("d", "by_rank"))
    alike = sum(each.one_sided for each in found)
    return f"| {rate:g} | {mark} | {kind} | {len(found)} | {d:.2f} | {by_rank:.2f} | {alike} |\n"


if __name__ == "__main__":
    sys.exit(main())
