"""A source whose labels are wrong among others that are right: what a target without labels gets, and what the liar weighs.

    python benchmarks/kd3a_malicious.py --data DIR [--target usps] [--bad mnist] [--shares 0,0.3,0.5,1] [--methods kd3a,feddadil]
    python benchmarks/kd3a_malicious.py --table rows.jsonl

DIR holds one folder a set, each with one .npz file a domain (x, y, train_idx, test_idx). Of the bad source's training rows, dealt
at random, the first share has the label (y + 1) mod K: so it stands in its data, and in each mini-batch about that share of
labels is wrong. No method knows of it. A row: the target's accuracy on held-out rows in percent, and, of methods that tell
what sites weigh, the weight of the bad source by round, in percent, and its mean over the last third of the rounds; `others` is
what else the target scored. With --out rows go to a file and those that are there are not run again; its table has what each
method loses by the bad source, paired over seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.domains import each_target, played_with
from benchmarks.lines import cell, emit, read_rows, there
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.step import Data
from tideline.learning.formats.holdings import Holdings

POLICY = DEFAULT_POLICY | {(Exposure.METRIC, Audience.PEERS), (Exposure.STATISTIC, Audience.PEERS)}
QUICK = {"rounds": 2, "rows": 64, "seeds": 1, "shares": "1"}
COLUMN = "weight"  # of a table with a row for each site
# What each method calls its settings of the same length; every other is run by its own names of these.
SETTINGS: Mapping[str, Any] = {
    **dict.fromkeys(("fada", "fdann"), lambda a: in_both(a) | {"evaluate_every": a.rounds}),
    "fdan": lambda a: {"warm": 1, "rounds": a.rounds - 1, "rate": a.rate, "evaluate_every": a.rounds},
    "feddadil": lambda a: {"encoder_rounds": a.rounds, "encoder_rate": a.rate, "rounds": 20, "adapt_every": 20},
    "adabn": lambda a: {"source_rounds": a.rounds, "source_epochs": 1, "source_rate": a.rate},
    "source_model": lambda a: {"source_rounds": a.rounds, "source_epochs": 1, "source_rate": a.rate},
}


def in_both(a: Any) -> dict[str, Any]:
    """A third of the rounds among the sources, the rest with the target; the rate is the method's own, which has no momentum."""
    warm = max(1, a.rounds // 3)
    return {"source_rounds": warm, "rounds": max(1, a.rounds - warm)}


def main() -> int:
    """A line a share, method and seed."""
    args = arguments()
    torch.set_num_threads(args.threads)
    if args.table:
        sys.stdout.write(table(read_rows(args.table)))
        return 0
    emit(rows(args), args, line)
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the sets")
    parser.add_argument("--set", default="digits", help="folder of one set")
    parser.add_argument("--domains", default="mnist,usps,mnistm,optdigits", help="domains, by commas")
    parser.add_argument("--target", dest="targets", default="usps", help="the one without labels")
    parser.add_argument("--bad", default="mnist", help="the source whose labels are wrong")
    parser.add_argument("--shares", default="0,0.3,0.5,1", help="shares of its rows, by commas")
    parser.add_argument("--methods", default="kd3a,fedavg", help="which, by commas")
    parser.add_argument("--seeds", type=int, default=1, help="seeds, from 0")
    parser.add_argument("--rows", type=int, default=1500, help="training rows of a domain, at most")
    parser.add_argument("--rounds", type=int, default=15, help="rounds")
    parser.add_argument("--rate", type=float, default=0.03, help="learning rate")
    parser.add_argument("--model", default="lenet_bn", help="network")
    parser.add_argument("--config", default="{}", help="more settings by method, as JSON: {NAME: {...}}")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--quick", action="store_true", help="tiny runs")
    parser.add_argument("--out", type=Path, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--table", type=Path, help="run nothing: a table of such lines, from a file")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
    return args


def rows(args: Any) -> Iterator[dict[str, Any]]:
    """Every run that the file has not, in order."""
    ((at, sites),) = each_target(args)
    if args.bad == at or args.bad not in sites:
        sys.exit(f"{args.bad} is no source here; the sources are {', '.join(sorted(sites.keys() - {at}))}")
    known = there(args.out, ("target", "bad", "share", "method", "seed"))
    for share in map(float, args.shares.split(",")):
        taught = {**sites, args.bad: mislabelled(sites[args.bad], share)}
        for method in args.methods.split(","):
            for seed in range(args.seeds):
                if (at, args.bad, share, method, seed) not in known:
                    yield {"target": at, "bad": args.bad, "share": share, **measured(taught, at, method, seed, args)}


def mislabelled(site: Holdings, share: float) -> Holdings:
    """A site whose first rows of a shuffle have the label of the next class; its held-out rows are as they were."""
    return Holdings(wrong(site.train, share), site.held_out)


def wrong(data: Data, share: float) -> Data:
    """Rows with the label (y + 1) mod K, K the number of classes that occur."""
    assert data.y is not None
    chosen = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[: round(share * len(data))]
    y = data.y.clone()
    y[chosen] = (y[chosen] + 1) % (1 + int(data.y.max()))
    return replace(data, y=y)


def measured(sites: Mapping[str, Holdings], at: str, method: str, seed: int, args: Any) -> dict[str, Any]:
    """One run."""
    begun = time.monotonic()
    roster = {name: "target" if name == at else "source" for name in sites}
    world = {"inputs": list(sites[at].train.x.shape), "classes": classes(sites), "model": args.model}
    *_, result = played_with(sites, roster, method, settings(method, args), seed, world, policy=POLICY)
    there = next(c for c in result["clients"] if c["name"] == at)
    told = {"method": method, "seed": seed, "accuracy": round(100 * there["accuracy"], 1), "weight": weights(result, args.bad)}
    others = {name: round(100 * value, 1) for name, value in there["metrics"].items() if name.startswith("accuracy_")}
    return {**told, "others": others, "seconds": round(time.monotonic() - begun)}


def classes(sites: Mapping[str, Holdings]) -> int:
    """K."""
    return 1 + max(int(own.train.y.max()) for own in sites.values() if own.train.y is not None)


def settings(method: str, args: Any) -> dict[str, Any]:
    """The same rounds and rate for all, as far as methods have them."""
    plain = {"rounds": args.rounds, "rate": args.rate, "evaluate_every": args.rounds}
    shared = SETTINGS[method](args) if method in SETTINGS else plain
    return {**shared, **json.loads(args.config).get(method, {})}


def weights(result: Mapping[str, Any], bad: str) -> list[float] | None:
    """The weight of a site in each round, in percent; none where the method tells none, 0 where the site had none."""
    tables = [t for phase in result["phases"] for t in phase["tables"].values() if list(t["columns"]) == [COLUMN]]
    by_name = [dict(zip(t["rows"], t["values"], strict=True)) for t in tables]
    return [round(100 * each[bad][0], 1) if bad in each else 0.0 for each in by_name] or None


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line a method: accuracy by share of wrong labels, what the largest share costs, the bad source's weight in the end."""
    shares = sorted({row["share"] for row in rows})
    heads = [*(f"{100 * share:.0f} % wrong" for share in shares), "loss", "its weight"]
    lines = [f"| method | {' | '.join(heads)} |", "|" + " --- |" * (len(heads) + 1)]
    return "\n".join(lines + [summed(method, rows, shares) for method in dict.fromkeys(r["method"] for r in rows)]) + "\n"


def summed(method: str, rows: Sequence[Mapping[str, Any]], shares: Sequence[float]) -> str:
    """A line of the table."""
    own = {(row["share"], row["seed"]): row for row in rows if row["method"] == method}
    by_share = [cell(row["accuracy"] for (share, _), row in own.items() if share == each) for each in shares]
    first_last = [(own.get((shares[0], seed)), own.get((shares[-1], seed))) for seed in dict.fromkeys(seed for _, seed in own)]
    pairs = [(first, last) for first, last in first_last if first and last]
    loss = cell(first["accuracy"] - last["accuracy"] for first, last in pairs)
    weight = cell(mean_of_last(last["weight"]) for _, last in pairs if last["weight"])
    return f"| {method} | {' | '.join(by_share)} | {loss} | {weight} |"


def line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    told = row["weight"]
    last = "" if told is None else f"   weight {' '.join(f'{w:.0f}' for w in told)}   in the end {mean_of_last(told):.1f} %"
    head = f"{row['target']}, {100 * row['share']:3.0f} % of {row['bad']} wrong  {row['method']:10s}"
    return f"{head} {row['accuracy']:5.1f} %{last}   {row['seconds']} s"


def mean_of_last(told: list[float]) -> float:
    """Over the last third of the rounds."""
    tail = told[-max(1, len(told) // 3) :]
    return sum(tail) / len(tail)


if __name__ == "__main__":
    sys.exit(main())
