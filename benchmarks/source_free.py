"""Source-free adaptation on real domains: each domain once the source, the others split over sites that have no labels.

    python benchmarks/source_free.py --data DIR [--set digits] [--sources a,b] [--seeds 3] [--sites 3] [--json]

DIR holds one folder a set, each with one .npz file a domain (x, y, train_idx, test_idx). For each source and seed a source model
is trained once and brought to every method as a file would be. All methods take the same rounds and local epochs. A row: the mean
accuracy over target domains (a domain's sites alike) on held-out rows, in percent, and that of each domain. `true` is one model
for each true domain: FedAvg + SHOT among its sites, which nobody could have who does not know them. Labels serve these scores.
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
from safetensors.torch import save
from sklearn.metrics import adjusted_rand_score

from benchmarks.domains import names, played_with, read
from benchmarks.lines import emit, read_rows
from tideline.algorithms.source_free.family import Model
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.rows import MemoryRows
from tideline.core.run import RunId
from tideline.core.step import Data
from tideline.learning.formats.holdings import Holdings

INVERTED = ("fonts",)  # dark on light in the set, light on dark here
SMALL_SETS = {"scene": 3}  # domains that make no more sites than this, and never a source
ALONE = {"clustering": "given", "weights": "one-hot", "two_models": False, "mu": 0.0}
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "source_model": ("source_model", {}),
    "shot": ("shot", {}),
    "fedavg_shot": ("fedavg_shot", {}),
    "true": ("fedwca", ALONE),
    "fedwca": ("fedwca", {}),
    "fedwca_u1": ("fedwca", {"refresh_every": 1}),
}
OTHERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fedprox_pl": ("fedprox_pl", {}),
    "fedamp_pl": ("fedamp_pl", {}),
    "ifca_pl": ("ifca_pl", {}),  # as many models as there are true domains
    "ladd": ("ladd", {}),
    "ladd_pl": ("ladd_pl", {}),
    "fedpcl_pl": ("fedpcl_pl", {"normalise": True, "tau": 0.07}),
}
PEERS_SEE = DEFAULT_POLICY | {(Exposure.STATISTIC, Audience.PEERS)}  # FedPCL's prototypes go to all sites
ABLATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plain": ("fedwca", {"labels": "predicted", "fixed_labels": False, "two_models": False, "mu": 0.0}),
    "pp": ("fedwca", {"fixed_labels": False, "two_models": False, "mu": 0.0}),
    "pp_fp": ("fedwca", {"two_models": False, "mu": 0.0}),
    "pp_fp_tm": ("fedwca", {"mu": 0.0}),
    "one-hot": ("fedwca", {"weights": "one-hot"}),
    "equal": ("fedwca", {"weights": "equal"}),
    "one-equal": ("fedwca", {"weights": "one-equal"}),
    "one-equal-adaptive": ("fedwca", {"weights": "one-equal-adaptive"}),
    "local": ("fedwca", {"weights": "local"}),
    "row": ("fedwca", {"mixing": "row"}),
    "given": ("fedwca", {"clustering": "given"}),
    "last": ("fedwca", {"cluster_on": "last"}),
    "all": ("fedwca", {"cluster_on": "all"}),
}


def main() -> int:
    """A line a source, seed and method."""
    args = arguments()
    torch.set_num_threads(args.threads)
    if args.table:
        sys.stdout.write(table(read_rows(args.table), args.against))
        return 0
    emit(rows(args), args, line)
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the sets")
    parser.add_argument("--set", default="digits", help="folder of one set")
    parser.add_argument("--domains", default="mnist,usps,mnistm,optdigits,fonts", help="domains, by commas")
    parser.add_argument("--sources", default="", help="only these sources, by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="which, by commas; also those of the ablation")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--sites", type=int, default=3, help="sites of a target domain")
    parser.add_argument("--rows", type=int, default=3000, help="training rows of a domain, at most")
    parser.add_argument("--source-epochs", type=int, default=20, help="epochs of the source model")
    parser.add_argument("--source-rate", type=float, default=1e-2, help="learning rate of the source model")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of adaptation")
    parser.add_argument("--epochs", type=int, default=2, help="local epochs a round")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of adaptation")
    parser.add_argument("--model", default="lenet_bn", help="network")
    parser.add_argument("--size", type=int, default=28, help="pixels of a side")
    parser.add_argument("--config", default="{}", help="more settings for every method that has them, as JSON")
    parser.add_argument("--device", default="cpu", help="where steps compute: cpu, cuda, ...")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    parser.add_argument("--table", type=Path, help="run nothing: a table of such lines, from a file")
    parser.add_argument("--against", default="fedwca", help="the method whose lead over each other the table tells")
    return parser.parse_args()


def rows(args: Any) -> Iterator[dict[str, Any]]:
    """Every run, in order."""
    domains = {
        name: read(args.data / args.set / f"{name}.npz", args.set, args.size, name in INVERTED)
        for name in names(args.data / args.set, args.domains)
    }
    chosen = args.sources.split(",") if args.sources else [name for name in domains if name not in SMALL_SETS]
    for source in chosen:
        for seed in range(args.seeds):
            yield from of_source(domains, source, seed, args)


def of_source(domains: Mapping[str, Any], source: str, seed: int, args: Any) -> Iterator[dict[str, Any]]:
    """All methods from one source model."""
    sites = {source: whole(domains[source], source, args.rows, seed)}
    for name in domains:
        if name != source:
            sites |= dealt(domains[name], name, min(args.sites, SMALL_SETS.get(name, args.sites)), args.rows, seed)
    world = {
        "inputs": list(sites[source].train.x.shape),
        "classes": 1 + int(domains[source].y.max()),
        "model": args.model,
    }
    targets = {name: "target" for name in sites if name != source}
    weights = taught(sites, source, seed, world, args)
    for method in args.methods.split(","):
        name, config = {**METHODS, **OTHERS, **ABLATIONS}[method]
        begun = time.monotonic()
        given = settings(name, config, targets, args)
        *_, result = played_with(sites, targets, name, given, seed, world, weights, PEERS_SEE, args.device)
        row = {"source": source, "seed": seed, "method": method, "seconds": round(time.monotonic() - begun, 1)}
        yield {**row, **scored(result)}


def taught(sites: Mapping[str, Any], source: str, seed: int, world: Mapping[str, Any], args: Any) -> bytes:
    """The source model as a safetensors file."""
    roster = {source: "source", next(name for name in sites if name != source): "target"}
    config = {"source_epochs": args.source_epochs, "source_rate": args.source_rate}
    federation, run, _ = played_with(sites, roster, "source_model", config, seed, world, device=args.device)
    state = decode(Model, federation.journal.rounds(RunId(run))[-1].state[0][0], federation.parts, LAX)
    return save({**state.f, **state.g})


def settings(method: str, config: Mapping[str, Any], targets: Mapping[str, Any], args: Any) -> dict[str, Any]:
    """A method's settings: the same rounds for all."""
    shared: dict[str, Any] = {}
    if method != "source_model":
        shared |= {"rounds": args.rounds, "epochs": args.epochs, "rate": args.rate, "evaluate_every": args.rounds}
    if config.get("clustering") == "given":
        shared["given"] = true_domains(targets)
    if method == "ifca_pl":
        shared["k"] = len(set(true_domains(targets).values()))
    return {**shared, **config, **json.loads(args.config)}


def true_domains(targets: Mapping[str, Any]) -> dict[str, str]:
    """The domain of each site."""
    return {k: k.rpartition("-")[0] for k in targets}


def scored(result: dict[str, Any]) -> dict[str, Any]:
    """Accuracies in percent: of each domain, its sites alike, and the mean over domains."""
    found: dict[str, list[float]] = {}
    for client in result["clients"]:
        if client["role"] == "target":
            found.setdefault(client["name"].rpartition("-")[0], []).append(100 * client["accuracy"])
    domains = {name: round(float(np.mean(values)), 2) for name, values in found.items()}
    sent = {
        "bytes_up": sum(c["bytes_up"] for c in result["clients"]),
        "bytes_down": sum(c["bytes_down"] for c in result["clients"]),
    }
    return {"mean": round(float(np.mean(list(domains.values()))), 2), "domains": domains, **sent, "groups": groups_of(result)}


def groups_of(result: dict[str, Any]) -> dict[str, Any] | None:
    """The clusters, and how well they are the true domains."""
    if result["groups"] is None:
        return None
    last = result["groups"]["last"]
    place = {k: name for name, members in last.items() for k in members}
    names = sorted(place)
    index = float(adjusted_rand_score([k.rpartition("-")[0] for k in names], [place[k] for k in names]))
    return {"last": last, "adjusted_rand_index": round(index, 3)}


def whole(domain: Any, name: str, rows: int, seed: int) -> Holdings:
    """The source's rows."""
    return next(iter(dealt(domain, name, 1, rows, seed).values()))


def dealt(domain: Any, name: str, n: int, rows: int, seed: int) -> dict[str, Holdings]:
    """A domain's rows over n sites at random: its training rows, and its held-out ones."""
    rng = torch.Generator().manual_seed(1000 + seed)
    train = domain.train[torch.randperm(len(domain.train), generator=rng)][:rows]
    held = domain.held[torch.randperm(len(domain.held), generator=rng)]
    made = zip(train.tensor_split(n), held.tensor_split(n), strict=True)
    return {f"{name}-{i}": Holdings(taken(domain, t, name), taken(domain, h, name)) for i, (t, h) in enumerate(made)}


def taken(domain: Any, rows: torch.Tensor, name: str) -> Data:
    """Some rows."""
    return Data(MemoryRows(domain.x[rows]), domain.y[rows], torch.zeros(len(rows), dtype=torch.int64), (name,))


def table(rows: Sequence[Mapping[str, Any]], against: str) -> str:
    """Means and spreads over seeds by source, and how far one method leads each other, paired over sources and seeds."""
    methods, sources = (list(dict.fromkeys(row[key] for row in rows)) for key in ("method", "source"))
    found = {(row["method"], row["source"], row["seed"]): row["mean"] for row in rows}
    lines = [["source", *methods], ["---"] * (1 + len(methods))]
    for source in sources:
        lines.append([source, *(spread([v for (m, s, _), v in found.items() if (m, s) == (each, source)]) for each in methods)])
    lines.append(["mean", *(spread([v for (m, *_), v in found.items() if m == each]) for each in methods)])
    lines.append([f"{against} leads by", *(spread(leads(found, against, each)) for each in methods)])
    lines.append(["adjusted Rand index", *(spread(indices(rows, each), 2) for each in methods)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def leads(found: Mapping[tuple[str, str, int], float], against: str, method: str) -> list[float]:
    """How far one method leads another where both were run."""
    return [found[against, s, i] - v for (m, s, i), v in found.items() if m == method and (against, s, i) in found]


def indices(rows: Sequence[Mapping[str, Any]], method: str) -> list[float]:
    """How well a method's clusters are the true domains, where it has any."""
    return [row["groups"]["adjusted_rand_index"] for row in rows if row["method"] == method and row["groups"]]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}" if len(values) else ""


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    report = "  ".join(f"{name} {value:.1f}" for name, value in row["domains"].items())
    return f"{row['source']:10s} {row['seed']} {row['method']:20s} {row['mean']:5.1f}   {report}   {row['seconds']:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
