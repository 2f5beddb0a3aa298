"""Methods on features of a frozen encoder: each domain of a set once the unlabelled target, all others labelled sources.

    python benchmarks/strong_features.py --data DIR [--sets a,b] [--targets c,d] [--methods M;..] [--out F]
    python benchmarks/strong_features.py --table rows.jsonl

DIR holds one folder a set, each with one .npz file a domain (x, y, train_idx, test_idx) of vectors. They are on the labelled
sites' scale, the default for vectors; of columns named `site` each site's are on its own. A row: the target's accuracy in
percent, and that of the model before adaptation where the method tells it. Linear methods train one layer on the features; `mlp`
is a network with a hidden layer of 64 for methods that adapt what lies below the classifier, `mlp_bn` the same with batch norm.
Domains under 500 rows are scored on all of their rows, which are then also those that are seen without labels. Labels of a target
serve this score and nothing else. With --out rows go to a file, and those that are there are not run again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn

from benchmarks.domains import each_target, played_with
from benchmarks.lines import Row, cell, show, there
from tideline.learning.formats.holdings import Holdings
from tideline.nets import registry

SETS = "office_lite0,pacs32_lite0"
HIDDEN = 64
BEFORE = {"rate": 0.01, "rounds": 10}  # of the model that is not adapted, for all that train one
SOURCE = {"source_rounds": 10, "source_epochs": 1, "source_rate": 0.01}  # the same, by the names of methods without a source
ADAPT = {**SOURCE, "rounds": 5, "epochs": 2}


class Column(NamedTuple):
    """A method, its network, its settings, and how rows are normalised; empty: as the default is."""

    method: str
    model: str
    config: Mapping[str, Any]
    normalise: str = ""


# Rounds are few, so that a cell takes less than a minute.
METHODS: Mapping[str, Column] = {
    "fedavg": Column("fedavg", "linear", {**BEFORE, "evaluate_every": 10}),
    "fedavg, site": Column("fedavg", "linear", {**BEFORE, "evaluate_every": 10}, "site"),
    "fedavg, 25 rounds": Column("fedavg", "linear", {**BEFORE, "rounds": 25, "evaluate_every": 25}),
    "gaussian_heads": Column("gaussian_heads", "linear", {}),
    "gaussian_heads, site": Column("gaussian_heads", "linear", {}, "site"),
    "self_training": Column("self_training", "linear", {**BEFORE, "evaluate_every": 25}),
    "self_training, site": Column("self_training", "linear", {**BEFORE, "evaluate_every": 25}, "site"),
    "feddadil": Column("feddadil", "linear", {"encoder_rounds": 0, "rounds": 10, "adapt_every": 5, "distil": []}),
    "stlf": Column("stlf", "linear", {"rounds": 10, "epochs": 1, "alone": 20, "exchanges": 10, "batch": 32, "momentum": 0.9}),
    "hfedf": Column(
        "hfedf", "linear", {"rounds": 20, "head_init": "matched", "server_rate": 3e-3, "ema": 1.0, "evaluate_every": 20}
    ),
    "fedavg, mlp": Column("fedavg", "mlp", {**BEFORE, "evaluate_every": 10}),
    "fedavg, mlp, site": Column("fedavg", "mlp", {**BEFORE, "evaluate_every": 10}, "site"),
    "adabn, mlp_bn": Column("adabn", "mlp_bn", SOURCE),
    "self_training, mlp": Column("self_training", "mlp", {**BEFORE, "evaluate_every": 25}),
    "kd3a, mlp": Column("kd3a", "mlp", {**BEFORE, "evaluate_every": 10}),
    "fedwca, mlp": Column("fedwca", "mlp", ADAPT),
    "fedwca, mlp, site": Column("fedwca", "mlp", ADAPT, "site"),
    "shot, mlp": Column("shot", "mlp", ADAPT),
    "shot, mlp, site": Column("shot", "mlp", ADAPT, "site"),
    "fada, mlp": Column("fada", "mlp", {"rounds": 8, "source_rounds": 4, "identify_steps": 2, "rate": 0.01}),
}


class NormedMLP(nn.Module):
    """The network `mlp` with batch norm before its ReLU. x (n, d) -> logits (n, classes)."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU())
        self.classifier = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits


NETWORKS = {"mlp_bn": lambda world: NormedMLP(world.inputs[0], world.classes)}


def main() -> int:
    """A line a set, target, seed and method; or their table."""
    args = arguments()
    torch.set_num_threads(1)
    show(args, rows, table)
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the sets")
    parser.add_argument("--sets", default=SETS, help="folders of sets, by commas")
    parser.add_argument("--targets", default="", help="only these targets, by commas")
    parser.add_argument("--methods", default=";".join(METHODS), help="which columns, by semicolons")
    parser.add_argument("--seeds", type=int, default=1, help="seeds, from 0")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--table", type=Path, help="run nothing: a table of such lines, from a file")
    args = parser.parse_args()
    args.domains, args.rows = "", 0
    return args


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """What is not there yet."""
    known = there(args.out, ("set", "target", "method", "seed"))
    for chosen in args.sets.split(","):
        for at, sites in each_target(argparse.Namespace(**vars(args) | {"set": chosen})):
            for name in args.methods.split(";"):
                for seed in range(args.seeds):
                    if (chosen, at, name, seed) not in known:
                        yield {"set": chosen, "target": at, "method": name, "seed": seed, **measured(sites, at, name, seed)}


def measured(sites: Mapping[str, Holdings], at: str, name: str, seed: int) -> Row:
    """One run: the target's accuracies in percent, and seconds."""
    column = METHODS[name]
    classes = 1 + max(int(own.train.y.max()) for own in sites.values() if own.train.y is not None)
    world = {"model": column.model, "inputs": list(sites[at].train.x.shape), "classes": classes}
    scale = {"normalise": column.normalise} if column.normalise else {}
    roster = {site: "target" if site == at else "source" for site in sites}
    begun = time.perf_counter()
    with registry.beside(NETWORKS):
        _, _, result = played_with(sites, roster, column.method, column.config, seed, {**world, **scale})
    client = next(each for each in result["clients"] if each["name"] == at)
    before = client["source_only"]
    found = {"accuracy": 100 * client["accuracy"], "source_only": None if before is None else 100 * before}
    return {**found, "seconds": time.perf_counter() - begun}


def table(found: Sequence[Row]) -> str:
    """A line a column of METHODS that has rows, a cell a target, and the mean over targets."""
    targets = sorted({(row["set"], row["target"]) for row in found})
    lines = [["method", *(target for _, target in targets), "mean"], ["---"] * (len(targets) + 2)]
    for name in METHODS:
        own = [[r["accuracy"] for r in found if (r["set"], r["target"], r["method"]) == (*at, name)] for at in targets]
        if any(own):
            lines.append([name, *(cell(each) if len(each) != 1 else f"{each[0]:.1f}" for each in own), mean(own)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def mean(own: Sequence[Sequence[float]]) -> str:
    """Over targets, of a column that has all of them."""
    return f"{sum(sum(each) / len(each) for each in own) / len(own):.1f}" if all(own) else "-"


if __name__ == "__main__":
    sys.exit(main())
