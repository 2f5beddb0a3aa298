"""Adaptation on real domains: every domain once the unlabelled target, each method through the whole stack in one process.

    python benchmarks/adaptation.py --data DIR --set office_caltech10_surf [--seeds 3] [--targets a,b] [--json]

DIR holds one folder a set, each with one .npz file a domain (x, y, test_idx). Columns: `pooled`, a linear classifier on the rows
of all sources, standardised together; `comparison`, that for features, the FedAvg model for images; then what FedDaDiL tells:
`source_only`, `own`, `r`, `e`, `committee`, `spc_N` (learnt from N summarised rows a class), `chosen`, `oracle`; `fedavg` and
`fedprox`, on the same standardised features, or the same images. Domains under 500 rows are scored on all of their rows, which
are then also those that are seen without labels. The gain is that of `chosen` over the comparison form, with the 95 % interval of
a paired bootstrap over the scored rows, seeds averaged. Target labels serve these scores and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import Tensor

from benchmarks.domains import each_target, played, world_of
from tideline.algorithms.feddadil import client, feddadil, target
from tideline.algorithms.feddadil.messages import Mine
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.learning.formats.holdings import Holdings
from tideline.numerics.labels import softmax

BOOTSTRAPS = 2000
FEATURES = {"encoder_rounds": 0}
IMAGES = {"encoder_rounds": 10, "encoder_rate": 0.03}


def main() -> int:
    """A line a target, and the mean."""
    args = arguments(__doc__)
    torch.set_num_threads(args.threads)
    gains = []
    for at, sites in each_target(args):
        row = measured(sites, at, args)
        gains.append(row["gain"])
        sys.stdout.write((json.dumps(row) if args.json else line(row)) + "\n")
        sys.stdout.flush()
    if not args.json:
        sys.stdout.write(f"mean gain {np.mean(gains):+.2f}\n")
    return 0


def arguments(words: str | None) -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--set", default="office_caltech10_surf", help="folder of one set")
    parser.add_argument("--domains", default="", help="only these, by commas; sources and targets")
    parser.add_argument("--targets", default="", help="only these targets, by commas")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 0")
    parser.add_argument("--rows", type=int, default=2500, help="training rows of a domain of images, at most")
    parser.add_argument("--config", default="{}", help="settings of the method, as JSON")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--json", action="store_true", help="a JSON line a target")
    return parser.parse_args()


def measured(sites: dict[str, Holdings], at: str, args: Any) -> dict[str, Any]:
    """One target: accuracies in percent, seeds averaged, and the interval of the gain."""
    found = [adapted(sites, at, seed, json.loads(args.config)) for seed in range(args.seeds)]
    y = sites[at].held_out.y
    assert y is not None
    right = [{name: (p.argmax(1) == y).double() for name, p in guesses.items()} for guesses, _ in found]
    accuracies = [{name: 100 * float(r[name].mean()) for name in r} | averaged(sites, at, i) for i, r in enumerate(right)]
    columns = {name: round(float(np.mean([a[name] for a in accuracies])), 1) for name in accuracies[0]}
    spread = {name: round(float(np.std([a[name] for a in accuracies])), 1) for name in accuracies[0]}
    difference = 100 * torch.stack([r["chosen"] - r["comparison"] for r in right]).mean(0).numpy()
    rng = np.random.default_rng(0)
    drawn = difference[rng.integers(0, len(y), (BOOTSTRAPS, len(y)))].mean(1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    evidence = [dict(mine.evidence) | {"chosen": mine.chosen} for _, mine in found]
    return {
        "set": args.set,
        "target": at,
        "rows": len(y),
        "seeds": args.seeds,
        "accuracy": columns,
        "spread": spread,
        "gain": float(difference.mean()),
        "low": float(low),
        "high": float(high),
        "evidence": evidence,
    }


def adapted(sites: dict[str, Holdings], at: str, seed: int, config: dict[str, Any]) -> tuple[dict[str, Tensor], Mine]:
    """One run of FedDaDiL; what each column makes of the target's scored rows, and what the target keeps."""
    world = world_of(sites, at)
    base = FEATURES if len(world.inputs) == 1 else IMAGES
    federation, run, result = played(sites, at, "feddadil", {**base, **config}, seed)
    vault = federation.agents[ClientId(at)].vault
    mine = decode(Mine, vault.head(run).memory[0][0], vault.parts(run), LAX)  # type: ignore[arg-type, union-attr]
    return columns_of(mine, sites, at, world, result["config"]), mine


def averaged(sites: dict[str, Holdings], at: str, seed: int) -> dict[str, float]:
    """Accuracy of FedAvg and FedProx at the target, in percent. Features are standardised as for the linear classifier."""
    if len(world_of(sites, at).inputs) == 1:
        shift, stretch = moments(torch.cat([own.train.x.all() for name, own in sites.items() if name != at]))
        sites = {n: Holdings(*(scaled(d, shift, stretch) for d in (own.train, own.held_out))) for n, own in sites.items()}
        given: dict[str, Any] = {"rounds": 40}
    else:
        given = {"rounds": IMAGES["encoder_rounds"], "rate": IMAGES["encoder_rate"]}
    results = {method: played(sites, at, method, given, seed)[2] for method in ("fedavg", "fedprox")}
    return {method: 100 * accuracy_at(result, at) for method, result in results.items()}


def accuracy_at(result: dict[str, Any], at: str) -> float:
    """What a run's result says of a site."""
    return next(float(client["accuracy"]) for client in result["clients"] if client["name"] == at)


def scaled(data: Data, shift: Tensor, stretch: Tensor) -> Data:
    """The same rows, standardised."""
    return Data(MemoryRows((data.x.all() - shift) / stretch), data.y, data.domain, data.domains)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of each feature, a hundredth of the mean variance added to each."""
    variance = x.var(0, unbiased=False)
    return x.mean(0), (variance + 0.01 * variance.mean() + 1e-12).sqrt()


def columns_of(mine: Mine, sites: dict[str, Holdings], at: str, world: World, config: Any) -> dict[str, Tensor]:
    """Every column's outputs on the scored rows."""
    c = feddadil.configure(config)
    site = Site(c, world, ClientId(at), Role.TARGET, sites[at].held_out, 1, torch.Generator())
    z = target.embedded(mine, site, site.data.x)
    report = target.guesses(mine, mine.heads, z, target.network(mine, site), c)
    pooled = pooled_linear({name: own.train for name, own in sites.items() if name != at}, mine, site)
    made = {"pooled": pooled(z), "comparison": report["none"] if mine.model else pooled(z), "source_only": report["none"]}
    made |= {"own": report["own"], "r": report[f"r{c.rounds}"], "e": report[f"e{c.rounds}"], "committee": report["committee"]}
    y = site.data.y
    assert y is not None
    candidates = {name: p for name, p in report.items() if name not in ("rows", "sites")}
    oracle = max(candidates.values(), key=lambda p: float((p.argmax(1) == y).double().mean()))
    made |= {f"spc_{name}": p for name, p in target.distilled(mine, site, client.own(mine, c, z))}
    return {**made, "chosen": report[mine.chosen], "oracle": oracle}


def pooled_linear(sources: dict[str, Data], mine: Mine, site: Site) -> Any:
    """The linear classifier on all sources' features, standardised together."""
    x = torch.cat([target.embedded(mine, site, data.x) for data in sources.values()])
    y = torch.cat([data.y for data in sources.values() if data.y is not None])
    shift, stretch = moments(x)
    labels = torch.nn.functional.one_hot(y, site.world.classes).float()
    h = softmax.fit((x - shift) / stretch, labels, l2=min(1.0, x.shape[1] / len(x)))
    return lambda z: softmax.probabilities(h, (z - shift) / stretch)


def line(row: dict[str, Any]) -> str:
    """A target for people."""
    report = "  ".join(f"{name} {value:.1f}" for name, value in row["accuracy"].items())
    found = (f"{e['chosen']} s {e.get('s', 0):.3f} rho {e.get('rho', 0):+.2f}" for e in row["evidence"])
    evidence = "; ".join(found)
    gain = f"gain {row['gain']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"
    return f"{row['set']} {row['target']:11s} {row['rows']:5d} rows  {report}  {gain}  ({evidence})"


if __name__ == "__main__":
    sys.exit(main())
