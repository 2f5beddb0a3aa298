"""Alignment of features on real domains: each domain once the unlabelled target, all others labelled sources.

    python benchmarks/alignment.py --data DIR [--set digits] [--targets a,b] [--methods M,..] [--seeds 3] [--out rows.jsonl]
    python benchmarks/alignment.py --table rows.jsonl
    python benchmarks/alignment.py --data DIR --targets usps --methods fada_III --network

DIR holds one folder a set, each with one .npz file a domain (x, y, train_idx, test_idx). Sources train as long in every method:
`--rounds` times one local epoch. A row: accuracy on the target's held-out rows in percent (`source_only`, where the method tells
it, beside it), megabytes over the network, seconds. Labels of a target serve this score and nothing else. With --out rows go to a
file and those that are there are not run again. `alone` is the mean over models that each source trained by itself, `central`
one model on the rows of all sources, which no federation has. --network: the first target, method and seed 0 by one agent
process for each domain, over the loopback, and once more in one process: the state must be the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from benchmarks.alignment_report import ALL_SEEN, METHODS, PEERS_SEE, domains, experiment, gathered, scored
from benchmarks.domains import played_with
from benchmarks.lines import cell, emit, read_rows, there
from tideline.core.errors import ConfigRefused

QUICK = {"rounds": 2, "warm": 1, "rows": 64, "seeds": 1, "size": 28}


def main() -> int:
    """A line a target, seed and method."""
    args = arguments()
    torch.set_num_threads(args.threads)
    if args.table:
        sys.stdout.write(table(read_rows(args.table)))
        return 0
    if args.network:
        from benchmarks.alignment_network import over_the_network

        sys.stdout.write(json.dumps(over_the_network(args)) + "\n")
        return 0
    emit(rows(args), args, line)
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the sets")
    parser.add_argument("--set", default="digits", help="folder of one set")
    parser.add_argument("--domains", default="", help="domains, by commas; all of the set where none is named")
    parser.add_argument("--targets", default="", help="only these targets, by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="which, by commas")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--rows", type=int, default=2000, help="training rows of a domain, at most")
    parser.add_argument("--dealt", default="", help="shares of the classes among a target's training images: even, or a domain's")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of one local epoch each")
    parser.add_argument("--warm", type=int, default=4, help="of these, rounds among the sources alone, where a method has such")
    parser.add_argument("--model", default="fada_small", help="network")
    parser.add_argument("--size", type=int, default=28, help="pixels of a side")
    parser.add_argument("--config", default="{}", help="more settings by method, as JSON")
    parser.add_argument("--device", default="cpu", help="where steps compute: cpu, cuda, ...")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--quick", action="store_true", help="tiny runs")
    parser.add_argument(
        "--network", action="store_true", help="the first target, method and seed 0 by processes over the loopback"
    )
    parser.add_argument("--table", type=Path, help="run nothing: a table of such lines, from a file")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
    return args


def rows(args: Any) -> Iterator[dict[str, Any]]:
    """Every run that the file has not, seed by seed."""
    key = ("set", "target", "seed", "method")
    known = there(args.out, key)
    all_of = domains(args)
    for seed in range(args.seeds):
        for at in args.targets.split(",") if args.targets else all_of:
            sites = gathered(all_of, at, args)
            for method in args.methods.split(","):
                if (args.set, at, seed, method) not in known and (report := played_or_not(sites, at, method, seed, args)):
                    yield {"set": args.set, "target": at, "seed": seed, "method": method, **report}


def played_or_not(sites: Mapping[str, Any], at: str, method: str, seed: int, args: Any) -> dict[str, Any]:
    """One run; nothing, and why, where the method cannot work with the network."""
    try:
        return played(sites, at, method, seed, args)
    except ConfigRefused as refused:
        if refused.context.get("path") != "world.model":
            raise
        sys.stderr.write(f"{at} {seed} {method}: {refused}\n")
        return {}


def played(sites: Mapping[str, Any], at: str, method: str, seed: int, args: Any) -> dict[str, Any]:
    """One run, and what it came to; of `alone` as many as there are sources, and their mean."""
    begun = time.monotonic()
    pairs = [{name: sites[name], at: sites[at]} for name in sites if name != at] if method == "alone" else [sites]
    report = [come_to(each, at, method, seed, args) for each in pairs]
    means = {key: round(float(np.mean([each[key] for each in report])), 2) for key in report[0]}
    return {**means, "seconds": round(time.monotonic() - begun, 1)}


def come_to(sites: Mapping[str, Any], at: str, method: str, seed: int, args: Any) -> dict[str, Any]:
    """A run among these sites."""
    given, roles = experiment(sites, at, method, args)
    policy = ALL_SEEN if method == "central" else PEERS_SEE
    *_, result = played_with(
        sites, roles, given["method"], given["config"], seed, given["world"], policy=policy, device=args.device
    )
    return scored(result, at)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Accuracies by method and target, mean and deviation over seeds; the mean over targets; megabytes and seconds of a run."""
    methods = [m for m in METHODS if any(row["method"] == m for row in rows)]
    targets = list(dict.fromkeys(row["target"] for row in rows))
    head = f"| method | {' | '.join(targets)} | mean | over source only | MB | seconds |\n|{' --- |' * (len(targets) + 5)}\n"
    return head + "".join(measured(method, rows, targets) for method in methods)


def measured(method: str, rows: Sequence[Mapping[str, Any]], targets: Sequence[str]) -> str:
    """A line of the table."""
    own = [row for row in rows if row["method"] == method]
    cells = [cell([row["accuracy"] for row in own if row["target"] == at]) for at in targets]
    mean, over = np.mean([row["accuracy"] for row in own]), lead(own, rows)
    costs = f"{np.mean([row['mb'] for row in own]):.1f} | {np.mean([row['seconds'] for row in own]):.0f}"
    return f"| {method} | {' | '.join(cells)} | {mean:.1f} | {over} | {costs} |\n"


def lead(own: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    """By how many points a method leads the model of the sources, paired over targets and seeds, with the standard error."""
    base = {(row["target"], row["seed"]): row["accuracy"] for row in rows if row["method"] == "source_only"}
    gaps = [row["accuracy"] - base[key] for row in own if (key := (row["target"], row["seed"])) in base]
    return f"{np.mean(gaps):+.1f} ± {np.std(gaps) / max(len(gaps) - 1, 1) ** 0.5:.1f}" if gaps else "-"


def line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    before = f" (before {row['source_only']:.1f})" if "source_only" in row else ""
    report = f"{row['target']:10s} {row['seed']}  {row['method']:12s} {row['accuracy']:5.1f}{before}"
    return f"{report}  {row['mb']:.1f} MB, {row['seconds']:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
