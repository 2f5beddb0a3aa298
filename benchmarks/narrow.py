"""Rounds over a narrow line, and what fewer bytes cost in accuracy.

    python benchmarks/narrow.py                                # both, on digits; 10 minutes
    python benchmarks/narrow.py --only seconds --mb 10
    python benchmarks/narrow.py --only accuracy --data DIR --sets office_lite0,pacs32_lite0

seconds: two real agents, each behind a line of its own of 20 Mbit/s and 60 ms there and back, in user space, trade a model with a
coordinator. A round is held to the bytes that a site takes and sends, over the line's bandwidth. accuracy: federated averaging,
20 rounds, once for each form and seed in one process, all sites labelled; the mean of the sites' accuracies on held-out rows, and
its difference to float32 with the same seed, in points, with a 95 % interval over seeds (Student's t).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from scipy.stats import t as student  # type: ignore[import-untyped, unused-ignore]

from benchmarks.domains import Domain, each_target, holdings, played_with
from benchmarks.limits import table
from benchmarks.slow_line import Line, line_to
from benchmarks.staging import WORLD, Stage, staged
from tideline.learning.datasets import digits
from tideline.learning.formats.holdings import Holdings
from tideline.learning.formats.transforms import prepare

BITS, BACK_AND_FORTH = 20e6, 0.060  # a second; seconds
BAR, POINTS = 1.1, 0.3
TRADE = "benchmarks.trade:METHODS"
SITES = ("north", "south")
WIRES: Mapping[str, Mapping[str, Any]] = {
    "float32": {"format": "float32"},
    "bfloat16": {"format": "bfloat16", "down": True},
    "int8": {"format": "int8", "delta": True, "down": True},
    "int8, row": {"format": "int8", "scale": "row", "delta": True, "down": True},
    "int8 up, bfloat16 down": {"format": "int8", "delta": True, "down": "bfloat16"},
    "topk 5 %": {"format": "topk", "share": 0.05, "delta": True, "down": "bfloat16"},
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Narrow:
    """Rounds in one form. seconds: the fastest and the median; least: bytes of a site, both ways, over the bandwidth."""

    form: str
    mb: float
    bytes: int
    least: float
    seconds: float
    median: float
    ratio: float


@dataclass(frozen=True)
class Accuracy:
    """Of one form, over seeds. accuracy: percent; points: beside float32; low, high: its interval. bytes: of a site and round."""

    set: str
    form: str
    bytes: int
    fewer: float
    accuracy: float
    points: float
    low: float
    high: float


def main() -> int:
    """A line for each form; 1 if a round takes longer than BAR allows."""
    args = arguments()
    torch.set_num_threads(1)
    code = 0
    if args.only != "accuracy":
        found = list(rounds(args))
        show(found, args)
        code = int(any(row.ratio > BAR for row in found))
    if args.only != "seconds":
        for name, sites, world in sets(args):
            show(list(accuracies(name, sites, world, args)), args)
    return code


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("seconds", "accuracy"), help="one of the two")
    parser.add_argument("--mb", type=float, default=10.0, help="size of the model that is traded, in 10^6 bytes of float32")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each run for accuracy")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--rows", type=int, default=1000, help="rows that a site of digits trains on")
    parser.add_argument("--data", type=Path, help="folder of further sets, as strong_features.py takes them")
    parser.add_argument("--sets", default="office_lite0,pacs32_lite0", help="folders of sets in --data, by commas")
    parser.add_argument("--quick", action="store_true", help="1 MB; 2 rounds of 100 rows, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    args = parser.parse_args()
    if args.quick:
        args.mb, args.rounds, args.seeds, args.rows = min(args.mb, 1.0), 2, 1, 100
    return args


def show(found: list[Any], args: argparse.Namespace) -> None:
    """Rows as lines for programs, or as a table."""
    made: list[Row] = [asdict(row) for row in found]
    if args.json:
        sys.stdout.writelines(json.dumps(row) + "\n" for row in made)
    else:
        text = table(tuple(made[0]), [tuple(cell(value) for value in row.values()) for row in made])
        sys.stdout.write("\n".join(text) + "\n\n")
    sys.stdout.flush()


def cell(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


# Seconds


def rounds(args: argparse.Namespace) -> Iterator[Narrow]:
    """Each form in turn, at the same agents."""
    with staged(methods=TRADE) as stage, ExitStack() as lines:
        there = {name: lines.enter_context(line_to(stage.address)) for name in SITES}
        for name, line in there.items():
            agent(stage, line, name)
        traded(stage, 0.01, "float32")
        for line in there.values():
            line.narrow(BITS / 8)
            line.lengthen(BACK_AND_FORTH / 2)
        for form in WIRES:
            yield measured(stage, there, args.mb, form)


def agent(stage: Stage, line: Line, name: str) -> None:
    """A real agent that calls through its line."""
    data = stage.home / f"data-{name}"
    data.mkdir()
    np.savez(data / "a.npz", x=np.zeros((40, 2), np.float32), y=np.arange(40) % 2)
    place = ("--data", str(data), "--home", str(stage.home / name), "--device", "cpu", "--trainer-idle", "3600")
    who = ("--coordinator", line.address, "--token", stage.token(name), "--name", name, "--role", "source")
    stage.children.start(name, "agent", *who, *place, "--methods", TRADE)


def measured(stage: Stage, there: Mapping[str, Line], mb: float, form: str) -> Narrow:
    """Three rounds in a form."""
    before = {name: line.up.passed + line.down.passed for name, line in there.items()}
    result = traded(stage, mb, form)
    passed = max(line.up.passed + line.down.passed - before[name] for name, line in there.items())
    seconds = [phase["seconds"] for phase in result["phases"] if phase["name"] == "trade"]
    of_round = passed // len(seconds)
    least = 8 * of_round / BITS
    return Narrow(form, mb, of_round, least, min(seconds), statistics.median(seconds), min(seconds) / least)


def traded(stage: Stage, mb: float, form: str) -> Row:
    """One run of three rounds, to its end."""
    asked = {"method": "trade", "config": {"rounds": 3, "mb": mb}, "world": WORLD, "wire": WIRES[form]}
    run = stage.client.post("/runs", {**asked, "roster": dict.fromkeys(SITES, "source")})["run"]
    result = stage.ended(str(run))
    if result["status"] != "completed":
        sys.exit(f"The run {result['status']}: {result['cause']}")
    return result


# Accuracy


def sets(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Holdings], Row]]:
    """Digits of three styles with LeNet; and vectors of other sets with a linear head."""
    shipped = {name: domain_of(name) for name in ("mnist", "usps", "optdigits")}
    sites = {name: holdings(domain, name, at_target=False, rows=args.rows) for name, domain in shipped.items()}
    yield "digits", sites, {"model": "lenet", "inputs": [1, 28, 28], "classes": digits.CLASSES}
    for name in args.sets.split(",") if args.data else ():
        chosen = argparse.Namespace(data=args.data, set=name, domains="", targets="", rows=0)
        _, own = next(each_target(chosen))
        classes = 1 + max(int(each.train.y.max()) for each in own.values() if each.train.y is not None)
        yield name, own, {"model": "linear", "inputs": list(next(iter(own.values())).train.x.shape), "classes": classes}


def domain_of(name: str) -> Domain:
    """A domain of digits that ships with the project."""
    raw = digits.load(name)
    held = torch.as_tensor(raw.test_idx).long()
    everything = torch.arange(len(raw.y))
    x = prepare(raw.x.astype(np.float32) / (raw.scale or 255.0), (1, 28, 28))
    return Domain(x, torch.as_tensor(raw.y).long(), held, everything[~torch.isin(everything, held)])


def accuracies(name: str, sites: Mapping[str, Holdings], world: Row, args: argparse.Namespace) -> Iterator[Accuracy]:
    """Each form beside float32."""
    found = {form: [played(sites, world, form, seed, args.rounds) for seed in range(args.seeds)] for form in WIRES}
    plain = found["float32"]
    for form, runs in found.items():
        points = [after - before for (after, _), (before, _) in zip(runs, plain, strict=True)]
        middle, half = statistics.mean(points), half_width(points)
        nbytes = runs[0][1] // args.rounds
        yield Accuracy(
            set=name,
            form=form,
            bytes=nbytes,
            fewer=plain[0][1] / runs[0][1],
            accuracy=statistics.mean(accuracy for accuracy, _ in runs),
            points=middle,
            low=middle - half,
            high=middle + half,
        )


def half_width(points: list[float]) -> float:
    """Of a 95 % interval of the mean."""
    if len(points) < 2:
        return math.nan
    return float(student.ppf(0.975, len(points) - 1)) * statistics.stdev(points) / math.sqrt(len(points))


def played(sites: Mapping[str, Holdings], world: Row, form: str, seed: int, rounds: int) -> tuple[float, int]:
    """One run: the mean accuracy of the sites, in percent, and the bytes of one site."""
    config = {"rounds": rounds, "epochs": 1, "rate": 0.03, "evaluate_every": rounds}
    more = {"wire": WIRES[form]}
    _, _, result = played_with(sites, dict.fromkeys(sites, "source"), "fedavg", config, seed, world, more=more)
    clients = result["clients"]
    accuracy = 100 * statistics.mean(each["accuracy"] for each in clients)
    return accuracy, clients[0]["bytes_up"] + clients[0]["bytes_down"]


if __name__ == "__main__":
    sys.exit(main())
