"""Adaptation on real domains: every domain once the unlabelled target, each method through the whole stack in one process.

    python benchmarks/adaptation.py --data DIR --set office_caltech10_surf [--seeds 3] [--targets a,b] [--json]

DIR holds one folder a set, each with one .npz file a domain (x, y, test_idx). Columns: `pooled`, a linear classifier on the rows
of all sources, standardised together; `comparison`, that for features, the FedAvg model for images; then what FedDaDiL tells:
`source_only`, `own`, `r`, `e`, `committee`, `chosen`, `oracle`. Domains under 500 rows are scored on all of their rows, which are
then also those that are seen without labels. The gain is that of `chosen` over the comparison form, with the 95 % interval of a
paired bootstrap over the scored rows, seeds averaged. Target labels serve these scores and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tideline.algorithms import METHODS
from tideline.algorithms.feddadil import feddadil, score, target
from tideline.algorithms.feddadil.messages import Mine
from tideline.archive.codec import LAX, decode
from tideline.core.data import Data
from tideline.core.run import ClientId, Role, World
from tideline.core.step import Site
from tideline.engine.simulate import Federation, SimSite
from tideline.learning.holdings import Holdings
from tideline.learning.transforms import prepare
from tideline.numerics import softmax

SMALL = 500  # rows under which a domain is scored on all of them
BOOTSTRAPS = 2000
FEATURES = {"encoder_rounds": 0}
IMAGES = {"encoder_rounds": 10, "encoder_rate": 0.03}


@dataclass(frozen=True)
class Domain:
    """Rows of one domain, as the sites read them. x (n, *inputs), y (n,), held out rows (m,)."""

    x: Tensor
    y: Tensor
    held: Tensor


def main() -> int:
    """A line a target, and the mean."""
    args = arguments()
    torch.set_num_threads(args.threads)
    domains = {name: read(args.data / args.set / f"{name}.npz", args) for name in names(args)}
    gains = []
    for each in args.targets.split(",") if args.targets else domains:
        row = measured(domains, each, args)
        gains.append(row["gain"])
        sys.stdout.write((json.dumps(row) if args.json else line(row)) + "\n")
        sys.stdout.flush()
    if not args.json:
        sys.stdout.write(f"mean gain {np.mean(gains):+.2f}\n")
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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


def names(args: Any) -> list[str]:
    """The set's domains."""
    return args.domains.split(",") if args.domains else sorted(f.stem for f in (args.data / args.set).glob("*.npz"))


def read(path: Path, args: Any) -> Domain:
    """One domain: images as 3 x 28 x 28, counts of visual words as the square root of their shares, reviews as log counts."""
    with np.load(path, allow_pickle=False) as arrays:
        x, y, held = arrays["x"], arrays["y"], arrays["test_idx"]
        if "top400" in arrays:
            x = np.log1p(x[:, arrays["top400"]].astype(np.float32))
    if x.ndim > 2:
        scale = 16.0 if path.stem == "optdigits" else 255.0
        made = prepare((x / scale).astype(np.float32), (3, 28, 28))
    else:
        made = torch.from_numpy(np.sqrt(x / x.sum(1, keepdims=True)) if "surf" in args.set else x).float()
    return Domain(made, torch.from_numpy(y.astype(np.int64)), torch.from_numpy(held.astype(np.int64)))


def holdings(domain: Domain, name: str, at_target: bool, rows: int) -> Holdings:
    """A site's rows, already split; a small target is seen and scored whole."""
    everything = torch.arange(len(domain.y))
    small = at_target and len(domain.y) < SMALL
    train = everything[~torch.isin(everything, domain.held)]
    if domain.x.dim() > 2:
        train = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:rows].sort().values]
    train, held = (everything, everything) if small else (train, domain.held)
    made = (Data(domain.x[r], domain.y[r], torch.zeros(len(r), dtype=torch.int64), (name,)) for r in (train, held))
    return Holdings(*made)


def measured(domains: dict[str, Domain], at: str, args: Any) -> dict[str, Any]:
    """One target: accuracies in percent, seeds averaged, and the interval of the gain."""
    sites = {name: holdings(domain, name, name == at, args.rows) for name, domain in domains.items()}
    found = [played(sites, at, seed, json.loads(args.config)) for seed in range(args.seeds)]
    y = sites[at].held_out.y
    assert y is not None
    right = [{name: (p.argmax(1) == y).double() for name, p in guesses.items()} for guesses, _ in found]
    columns = {name: round(100 * float(np.mean([float(r[name].mean()) for r in right])), 1) for name in right[0]}
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
        "gain": float(difference.mean()),
        "low": float(low),
        "high": float(high),
        "evidence": evidence,
    }


def played(sites: dict[str, Holdings], at: str, seed: int, config: dict[str, Any]) -> tuple[dict[str, Tensor], Mine]:
    """One run; what each column makes of the target's scored rows, and what the target keeps."""
    shape = tuple(sites[at].train.x.shape[1:])
    classes = 1 + max(int(own.train.y.max()) for own in sites.values() if own.train.y is not None)
    world = World(inputs=shape, classes=classes, model="linear" if len(shape) == 1 else "lenet")
    base = FEATURES if len(shape) == 1 else IMAGES
    federation = Federation(METHODS, {name: SimSite(lambda w, r, own=own: own) for name, own in sites.items()})
    roster = {name: "target" if name == at else "source" for name in sites}
    given = {"method": "feddadil", "config": {**base, "distil": [], **config}, "roster": roster, "seed": seed}
    given["world"] = {"inputs": list(shape), "classes": classes, "model": world.model}
    run = federation.start(given)
    result = federation.run(run)
    if result["status"] != "completed":
        sys.exit(f"{at}: {result['cause']}")
    vault = federation.agents[ClientId(at)].vault
    mine = decode(Mine, vault.head(run).memory[0][0], vault.parts(run), LAX)  # type: ignore[union-attr]
    return columns_of(mine, sites, at, world, result["config"]), mine


def columns_of(mine: Mine, sites: dict[str, Holdings], at: str, world: World, config: Any) -> dict[str, Tensor]:
    """Every column's outputs on the scored rows."""
    c = feddadil.configure(config)
    site = Site(c, world, ClientId(at), Role.TARGET, sites[at].held_out, 1, torch.Generator())
    z = score.embedded(mine, site, site.data.x)
    told = target.guesses(mine, mine.heads, z, score.network(mine, site), c)
    pooled = pooled_linear({name: own.train for name, own in sites.items() if name != at}, mine, site)
    made = {"pooled": pooled(z), "comparison": told["none"] if mine.model else pooled(z), "source_only": told["none"]}
    made |= {"own": told["own"], "r": told[f"r{c.rounds}"], "e": told[f"e{c.rounds}"], "committee": told["committee"]}
    y = site.data.y
    assert y is not None
    candidates = {name: p for name, p in told.items() if name not in ("rows", "sites")}
    oracle = max(candidates.values(), key=lambda p: float((p.argmax(1) == y).double().mean()))
    return {**made, "chosen": told[mine.chosen], "oracle": oracle}


def pooled_linear(sources: dict[str, Data], mine: Mine, site: Site) -> Any:
    """The linear classifier on all sources' features, standardised together."""
    x = torch.cat([score.embedded(mine, site, data.x) for data in sources.values()])
    y = torch.cat([data.y for data in sources.values() if data.y is not None])
    shift, variance = x.mean(0), x.var(0, unbiased=False)
    stretch = (variance + 0.01 * variance.mean() + 1e-12).sqrt()
    labels = torch.nn.functional.one_hot(y, site.world.classes).float()
    h = softmax.fit((x - shift) / stretch, labels, l2=min(1.0, x.shape[1] / len(x)))
    return lambda z: softmax.probabilities(h, (z - shift) / stretch)


def line(row: dict[str, Any]) -> str:
    """A target for people."""
    told = "  ".join(f"{name} {value:.1f}" for name, value in row["accuracy"].items())
    found = (f"{e['chosen']} s {e.get('s', 0):.3f} rho {e.get('rho', 0):+.2f}" for e in row["evidence"])
    evidence = "; ".join(found)
    gain = f"gain {row['gain']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"
    return f"{row['set']} {row['target']:11s} {row['rows']:5d} rows  {told}  {gain}  ({evidence})"


if __name__ == "__main__":
    sys.exit(main())
