"""Label-free choices compared: which prediction would each criterion trust at an unlabelled site, and what would that cost?

    python benchmarks/choosers.py --data DIR --set office_caltech10_surf [--seeds 3] [--targets a,b] [--json]

Each domain is the target once, as in `adaptation.py`. The candidates are the unadapted model, the layer on own statistics, -R and
-E after each of the kept passes, their means, and the committee. Every criterion but `oracle` sees the target's unlabelled rows
alone; `weighted` also sees the sources' held-out rows, which no federation would bring together, and so is for comparison only:

entropy      least mean entropy of the predictions
information  most mutual information of rows and predictions (Shi and Sha, 2012)
density      most soft neighbourhood density of the predictions (Saito et al., ICCV 2021)
weighted     least importance-weighted risk on the sources' held-out rows (Sugiyama et al., JMLR 2007)
transport    the committee where the atoms reconstruct the target no worse than they do the sources, by the loss of the last pass
             (theirs holds a label term and the target's does not, so that it leans towards adapting)
always, never  the committee; the unadapted model
guard        what FedDaDiL does
oracle       the best candidate, chosen with the labels
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import Tensor

from benchmarks.adaptation import FEATURES, IMAGES, arguments
from benchmarks.domains import each_target, played, world_of
from tideline.algorithms.feddadil import feddadil, target
from tideline.algorithms.feddadil.client import own
from tideline.algorithms.feddadil.messages import Mine
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.run import ClientId, Role
from tideline.core.step import Site
from tideline.engine.simulation.federation import Federation
from tideline.learning.formats.holdings import Holdings
from tideline.numerics.labels import softmax

TEMPERATURE = 0.05  # of the soft neighbourhoods, as published
ROWS = 2000  # of which the density is taken, at most
FARTHEST = 20.0  # an importance weight at most, so that a few rows do not decide alone
Guesses = Mapping[str, Tensor]


def main() -> int:
    """A line a target; then mean gain and worst loss of each criterion against never adapting."""
    args = arguments(__doc__)
    torch.set_num_threads(args.threads)
    rows = []
    for at, sites in each_target(args):
        found = [judged(sites, at, seed, json.loads(args.config)) for seed in range(args.seeds)]
        row = {name: round(float(np.mean([f[name] for f in found])), 1) for name in found[0]}
        rows.append(row)
        sys.stdout.write(json.dumps({"set": args.set, "target": at, **row}) + "\n")
        sys.stdout.flush()
    for name in rows[0]:
        gains = [row[name] - row["never"] for row in rows]
        sys.stdout.write(f"{name:12s} mean {np.mean(gains):+5.1f}  worst {min(gains):+5.1f}\n")
    return 0


def judged(sites: dict[str, Holdings], at: str, seed: int, config: dict[str, Any]) -> dict[str, float]:
    """Accuracy at the target, in percent, of what each criterion chooses."""
    world = world_of(sites, at)
    base = FEATURES if len(world.inputs) == 1 else IMAGES
    federation, run, result = played(sites, at, "feddadil", {**base, "distil": [], **config}, seed)
    c = feddadil.configure(result["config"])
    mine = {name: memory_of(federation, run, name) for name in sites}
    there = mine[at]
    seen = candidates(target.guesses(there, there.heads, there.z, there.guess, c))
    chosen = {
        "entropy": min(seen, key=lambda name: float(entropy(seen[name]).mean())),
        "information": max(seen, key=lambda name: information(seen[name])),
        "density": max(seen, key=lambda name: density(seen[name])),
        "weighted": weighted(seen, mine, sites, at, c),
        "transport": "committee" if reconstructed(result, at) else "none",
        "always": "committee",
        "never": "none",
        "guard": there.chosen,
    }
    site = Site(c, world, ClientId(at), Role.TARGET, sites[at].held_out, 1, torch.Generator())
    y = site.data.y
    assert y is not None
    z = target.embedded(there, site, site.data.x)
    report = candidates(target.guesses(there, there.heads, z, target.network(there, site), c))
    accuracy = {name: 100 * target.accuracy(p, y) for name, p in report.items()}
    return {criterion: accuracy[name] for criterion, name in chosen.items()} | {"oracle": max(accuracy.values())}


def memory_of(federation: Federation, run: str, name: str) -> Mine:
    """What a site keeps."""
    vault = federation.agents[ClientId(name)].vault
    return decode(Mine, vault.head(run).memory[0][0], vault.parts(run), LAX)  # type: ignore[arg-type, union-attr]


def candidates(guesses: Guesses) -> dict[str, Tensor]:
    """Everything that could predict; two of the layers serve the guard alone."""
    return {name: p for name, p in guesses.items() if name not in ("rows", "sites")}


def entropy(p: Tensor) -> Tensor:
    """Of each row of p (n, n_c), in nats: (n,)."""
    return -(p * p.clamp_min(1e-12).log()).sum(-1)


def information(p: Tensor) -> float:
    """Entropy of the mean prediction less the mean entropy."""
    return float(entropy(p.mean(0)) - entropy(p).mean())


def density(p: Tensor) -> float:
    """Mean entropy of each row's similarity to all others, predictions scaled to length one."""
    p = torch.nn.functional.normalize(p[:ROWS], dim=1)
    similarity = p @ p.mT / TEMPERATURE
    similarity.fill_diagonal_(-torch.inf)
    return float(entropy(similarity.softmax(1)).mean())


def weighted(seen: Guesses, mine: dict[str, Mine], sites: dict[str, Holdings], at: str, c: Any) -> str:
    """Importance-weighted validation: the candidate with the least weighted error on all sources' held-out rows."""
    there = mine[at]
    world = world_of(sites, at)
    errors: dict[str, list[Tensor]] = {name: [] for name in seen}
    features = []
    for name in sorted(set(sites) - {at}):
        here = replace(mine[name], candidates=there.candidates, heads=there.heads)
        site = Site(c, world, ClientId(name), Role.SOURCE, sites[name].held_out, 1, torch.Generator())
        z = target.embedded(here, site, site.data.x)
        features.append(own(here, c, z))
        for way, p in candidates(target.guesses(here, there.heads, z, target.network(here, site), c)).items():
            errors[way].append((p.argmax(1) != site.data.y).double())
    w = importance(torch.cat(features), own(there, c))
    return min(errors, key=lambda way: float((w * torch.cat(errors[way])).sum()))


def importance(source: Tensor, there: Tensor) -> Tensor:
    """Weights (n,) of source rows that make them stand for the target's, from a linear classifier between the two."""
    x = torch.cat([source, there])
    labels = domain_labels(len(source), len(there))
    h = softmax.fit(x, labels, l2=min(1.0, x.shape[1] / len(x)))
    p = softmax.probabilities(h, source)
    w = (p[:, 1] / p[:, 0].clamp_min(1e-6) * len(source) / len(there)).clamp_max(FARTHEST).double()
    return w / w.sum()


def domain_labels(sources: int, targets: int) -> Tensor:
    """One-hot (n, 2): source rows, then target rows."""
    return torch.nn.functional.one_hot(torch.arange(sources + targets).ge(sources).long(), 2).float()


def reconstructed(result: Mapping[str, Any], at: str) -> bool:
    """Whether the target's loss of the last pass is at most the largest of the sources'."""
    losses = {client["name"]: client["metrics"]["loss"] for client in result["clients"]}
    return bool(losses[at] <= max(loss for name, loss in losses.items() if name != at))


if __name__ == "__main__":
    sys.exit(main())
