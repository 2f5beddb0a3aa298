"""ST-LF on ten devices of real digits, beside other ways to choose links and beside the paper's table I.

    python benchmarks/stlf.py --data DIR [--cases M,U,M//U] [--seeds 5] [--scale 0.15] [--jobs 1] [--out rows.jsonl]
    python benchmarks/stlf.py --table rows.jsonl
    python benchmarks/stlf.py --data DIR --cases M//U --network

DIR holds mnist.npz, usps.npz, mnistm.npz (x, y, train_idx, test_idx); without it small sets that the package ships are taken. A
case: M, U, MM one set; M+U two pooled; M//U each device has one of two. One run trains the models and measures the divergences
once, and all rules link the same models, so that they differ by links alone. A row: of each rule the mean accuracy over its
targets, on all of their rows by labels that are hidden from them, in percent; joules and links; megabytes, seconds and peak
memory of the run. With --out rows go to a file and those that are there are not run again; --keep DIR keeps models and
divergences, for `benchmarks/stlf_ablation.py`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from benchmarks.digit_devices import CASES, Network, network
from benchmarks.domains import played_with
from benchmarks.lines import emit, read_rows, there
from benchmarks.links_saved import save_links
from benchmarks.stlf_report import compared, settings, traffic
from tideline.algorithms.stlf.settings import RULES
from tideline.core.asked.world import plain_world

OURS = "plan"
NAMES = {
    OURS: "ST-LF",
    "random_psi": "Rnd-ψ",
    "fedavg_psi": "ψ-FedAvg",
    "single_matching": "SM",
    "random_alpha": "Rnd-α",
    "fedavg_alpha": "FedAvg",
    "average_degree": "AvgD",
    "attention_psi": "ψ-FADA",
    "attention_alpha": "FADA",
}
# Table I of the paper: mean target accuracy and energy in percent of the largest; energy of FedAvg was not reported.
NAN = float("nan")
PUBLISHED: Mapping[str, tuple[tuple[float, float], ...]] = {
    "M": ((71.32, 21.10), (55.82, 94.87), (59.64, NAN), (51.07, 19.38), (54.54, 99.15), (60.95, NAN), (58.63, 55.15)),
    "U": ((60.23, 22.20), (47.97, 94.87), (55.55, NAN), (44.72, 19.38), (52.40, 99.18), (54.00, NAN), (53.35, 57.83)),
    "MM": ((36.44, 27.70), (30.11, 94.87), (29.64, NAN), (32.05, 19.38), (29.69, 99.38), (30.74, NAN), (30.60, 69.60)),
    "M+U": ((68.01, 20.56), (49.93, 94.87), (55.85, NAN), (51.73, 19.38), (58.60, 100.0), (59.61, NAN), (56.49, 55.15)),
    "M+MM": ((56.43, 24.11), (54.02, 94.87), (53.15, NAN), (54.93, 19.38), (53.28, 98.41), (52.00, NAN), (52.28, 70.69)),
    "MM+U": ((26.64, 22.44), (22.04, 94.42), (19.60, NAN), (23.33, 19.29), (20.89, 98.60), (23.39, NAN), (22.08, 67.69)),
    "M//U": ((86.26, 25.28), (78.46, 94.87), (82.25, NAN), (79.11, 19.38), (78.46, 99.35), (80.39, NAN), (79.79, 65.72)),
    "M//MM": ((56.95, 23.28), (56.20, 94.87), (56.12, NAN), (56.86, 19.37), (54.90, 100.0), (56.36, NAN), (56.11, 63.28)),
    "MM//U": ((54.70, 23.49), (45.34, 94.87), (44.94, NAN), (47.29, 19.38), (46.46, 99.35), (45.24, NAN), (45.90, 63.43)),
}
BY_FADA: Mapping[str, tuple[tuple[float, float], ...]] = {
    "M": ((63.18, 93.79), (61.4, 100.0)),
    "U": ((46.6, 87.21), (54.46, 100.0)),
    "MM": ((28.79, 93.67), (30.2, 100.0)),
    "M+MM": ((54.23, 87.78), (52.0, 100.0)),
    "M+U": ((40.79, 82.44), (59.9, 100.0)),
    "MM+U": ((21.62, 100.0), (22.66, 99.53)),
    "M//MM": ((55.3, 93.79), (56.23, 100.0)),
    "M//U": ((80.65, 97.68), (80.47, 100.0)),
    "MM//U": ((47.92, 94.23), (45.39, 100.0)),
}
QUICK = {"rounds": 1, "epochs": 1, "alone": 1, "exchanges": 1, "seeds": 1, "scale": 0.02, "cases": "M//U"}


def main() -> int:
    """A line a case and seed."""
    args = arguments()
    if args.table:
        sys.stdout.write(table(read_rows(args.table)))
        return 0
    if args.network:
        from benchmarks.stlf_network import over_the_network

        sys.stdout.write(json.dumps(over_the_network(args)) + "\n")
        return 0
    if args.one:
        case, seed = args.one.split(",")
        sys.stdout.write(json.dumps(one((case, int(seed), args))))
        return 0
    emit(rows(args), args, line)
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the sets")
    parser.add_argument("--cases", default="M,U,MM,M+U,M//U,M//MM,MM//U", help=f"by commas, of {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, default=5, help="seeds, from 0, of deal and run")
    parser.add_argument("--scale", type=float, default=0.15, help="of all numbers of rows; less where the rows do not suffice")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of averaging among the labelled devices")
    parser.add_argument("--epochs", type=int, default=2, help="local epochs of such a round")
    parser.add_argument("--alone", type=int, default=30, help="epochs alone")
    parser.add_argument("--batch", type=int, default=10, help="rows in a mini-batch")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate, also of the classifiers of pairs")
    parser.add_argument("--momentum", type=float, default=0.0, help="of training")
    parser.add_argument("--divergence", default="pairs", help="pairs, shared or statistics")
    parser.add_argument("--exchanges", type=int, default=15, help="exchanges of a pair's classifier")
    parser.add_argument("--share", type=float, default=0.36, help="share of its rows that a device trains a classifier on")
    parser.add_argument("--sweep", default="", help="further weights of energy, by commas")
    parser.add_argument("--config", default="{}", help="more settings, as JSON")
    parser.add_argument("--fada", default="", help="settings of a run of FADA as JSON, whose weights are compared with, too")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="cpu", help="where steps compute: cpu, cuda, ...")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--onednn", action="store_true", help="oneDNN on the CPU, which is slower for batches of ten")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--keep", type=Path, help="a folder for models and divergences")
    parser.add_argument("--quick", action="store_true", help="one tiny run")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--network", action="store_true", help="the first case and seed 0 by ten agents over the loopback")
    parser.add_argument("--one", help="CASE,SEED: that run alone, as JSON")
    parser.add_argument("--table", type=Path, help="run nothing: tables of such lines, from a file")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
    return args


def rows(args: Any) -> Iterator[dict[str, Any]]:
    """Every run that the file has not, seed by seed."""
    known = there(args.out, ("case", "seed"))
    todo = [(case, seed, args) for seed in range(args.seeds) for case in args.cases.split(",") if (case, seed) not in known]
    if args.jobs == 1:
        yield from map(one, todo)
        return
    with ThreadPoolExecutor(args.jobs) as pool:
        for done in as_completed([pool.submit(elsewhere, case, seed) for case, seed, _ in todo]):
            yield done.result()


def elsewhere(case: str, seed: int) -> dict[str, Any]:
    """One run in a process of its own, which has this one's options."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", f"{case},{seed}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case}, seed {seed}: {done.stderr}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def one(job: tuple[str, int, Any]) -> dict[str, Any]:
    """One run, and what all rules came to."""
    case, seed, args = job
    torch.set_num_threads(args.threads)
    torch.backends.mkldnn.enabled = args.onednn
    with tempfile.TemporaryDirectory() as room:
        made = network(case, seed, args.scale, args.data, Path(room))
    begun, used = time.monotonic(), time.process_time()
    world = plain_world(made.world)
    given = settings(args)
    if args.fada:
        given |= {"attention": attention(made, seed, args), "compare": list(RULES)}
    federation, run, result = played_with(made.sites, made.roles, "stlf", given, seed, world, device=args.device)
    row = {"case": case, "seed": seed, "scale": made.rule.scale, "divergence": args.divergence, "exchanges": args.exchanges}
    row |= {**traffic(result), "seconds": round(time.monotonic() - begun, 1), "cpu_seconds": round(time.process_time() - used, 1)}
    if args.keep:
        save_links(args.keep / f"{case.replace('/', '-')}-{seed}.safetensors", federation, run, row)
    return {**row, "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3), **compared(result)}


def attention(made: Network, seed: int, args: Any) -> dict[str, dict[str, float]]:
    """Of each target the weights of its sources, as a run of FADA over the same devices ends with them."""
    *_, result = played_with(
        made.sites, made.roles, "fada", json.loads(args.fada), seed, plain_world(made.world), device=args.device
    )
    tables = (phase["tables"] for phase in result["phases"])
    last = [
        report["weight of each source in each target"] for report in tables if "weight of each source in each target" in report
    ][-1]
    return {
        target: dict(zip(last["rows"], weights, strict=True))
        for target, weights in zip(last["columns"], zip(*last["values"], strict=True), strict=True)
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was measured, and what was published, of the same cases."""
    cases = [case for case in CASES if any(row["case"] == case for row in rows)]
    names = columns(rows)
    head = f"| data | seeds | {' | '.join(names.values())} |\n|{' --- |' * (2 + len(names))}\n"
    lines = [measured(case, [row for row in rows if row["case"] == case], names) for case in cases]
    lines.append(measured("mean", rows, names))
    known = {case: (*PUBLISHED[case], *BY_FADA[case])[: len(names)] for case in cases}
    lines += [f"| {case}, published | 5 | {' | '.join(f'{a:.1f} / {e:.0f}' for a, e in known[case])} |\n" for case in cases]
    return head + "".join(lines).replace(" / nan", " / -") + "\n" + leads(rows, cases)


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The rules that every run has compared, by their names in the table."""
    return {rule: name for rule, name in NAMES.items() if all(rule in row["rules"] for row in rows)}


def measured(name: str, rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> str:
    """A line: accuracy with its deviation over runs, and energy in percent of the largest."""
    cells = [cell([row["rules"][rule] for row in rows]) for rule in names]
    return f"| {name} | {len({row['seed'] for row in rows})} | {' | '.join(cells)} |\n"


def cell(found: Sequence[Mapping[str, float]]) -> str:
    """Of one rule."""
    accuracy = [each["accuracy"] for each in found]
    return f"{np.mean(accuracy):.1f} ± {np.std(accuracy):.1f} / {np.mean([each['share'] for each in found]):.0f}"


def leads(rows: Sequence[Mapping[str, Any]], cases: Sequence[str]) -> str:
    """By how many points ST-LF leads each rule, paired over runs, with the standard error."""
    names = columns(rows)
    others = " | ".join(name for rule, name in names.items() if rule != OURS)
    lines = [f"| ST-LF leads by | {others} |\n|{' --- |' * len(names)}\n"]
    for case in (*cases, "all"):
        own = [row["rules"] for row in rows if case in (row["case"], "all")]
        gaps = [[each[OURS]["accuracy"] - each[rule]["accuracy"] for each in own] for rule in names if rule != OURS]
        lines.append(f"| {case} | {' | '.join(lead(each) for each in gaps)} |\n")
    return "".join(lines)


def lead(gaps: Sequence[float]) -> str:
    """Mean and standard error."""
    return f"{np.mean(gaps):+.1f} ± {np.std(gaps) / max(len(gaps) - 1, 1) ** 0.5:.1f}"


def line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    report = "  ".join(f"{NAMES[rule]} {each['accuracy']:.1f}/{each['share']:.0f}%" for rule, each in row["rules"].items())
    return f"{row['case']:6s} {row['seed']}  {report}   {row['mb']:.0f} MB, {row['seconds']:.0f} s, {row['memory_mb']} MB held"


if __name__ == "__main__":
    sys.exit(main())
