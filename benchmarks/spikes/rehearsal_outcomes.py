"""What candidates of adaptation make of each target, and of each labelled site that plays the target: predictions, kept in files.

    python benchmarks/spikes/rehearsal_outcomes.py real --data DIR --out OUT [--seeds 3]
    python benchmarks/spikes/rehearsal_outcomes.py generated --data DIR --out OUT [--shifts 120]

DIR holds a folder of .npz files, one for each domain, for each of the sets that SETS names. A file that is there is not made
again. Linear classifiers on features that nobody trains; all rows of a target without their labels are adapted to and scored.
`rehearsal_rules.py` judges rules on OUT.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tideline.numerics.alignment.normalising import Moments, moments, standardised, whitened, whitening
from tideline.numerics.labels.gaussian_heads import class_sums, heads
from tideline.numerics.labels.prior import reweighted, shifted_prior

Rows: TypeAlias = tuple[Tensor, Tensor]  # features (n, d) and labels (n,)
Domains: TypeAlias = dict[str, Rows]
CANDIDATES = ("none", "site", "whiten", "gauss", "site_gauss", "self", "site_self", "em", "site_em", "site_gauss_em", "half")
SETS = {  # and the family that each is of: sets of one family are left out together
    "office_caltech10_surf": "office",
    "office_googlenet1024": "office",
    "office_lite0": "office",
    "pacs32_lite0": "pacs",
    "amazon_review": "reviews",
    "digits": "digits",
}
KINDS = ("none", "diag", "affine", "noise", "missing", "label", "diag_label", "offset")
SIZES = (0.3, 0.6, 1.0, 1.5)  # of a generated shift
MOST_ROWS = {"digits": 500}
L2, ITERATIONS = 1e-3, 60
GENERATED, SITES, WIDTH = 1600, 4, 128  # rows, sites and features of a generated shift


@dataclass(frozen=True)
class Seen:
    """Labelled sites and a target, on the pooled sites' scale and on each site's own."""

    shared: Tensor
    own: Tensor
    y: Tensor
    target_shared: Tensor
    target_own: Tensor
    white: Tensor
    target_white: Tensor
    classes: int


def seen(sources: Sequence[Rows], target: Tensor, classes: int) -> Seen:
    each = [moments([x], x.shape[1]) for x, _ in sources]
    pooled, theirs = reduce(add, each), moments([target], target.shape[1])
    own = [standardised(x, m) for (x, _), m in zip(sources, each, strict=True)]
    target_own = standardised(target, theirs)
    return Seen(
        shared=torch.cat([standardised(x, pooled) for x, _ in sources]),
        own=torch.cat(own),
        y=torch.cat([y for _, y in sources]),
        target_shared=standardised(target, pooled),
        target_own=target_own,
        white=torch.cat([whitened(x, whitening(x)) for x in own]),
        target_white=whitened(target_own, whitening(target_own)),
        classes=classes,
    )


def fitted(x: Tensor, y: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    """Multinomial logistic regression by L-BFGS: what gives probabilities (n, classes) of rows."""
    centre = x.mean(0)
    scale = float((x - centre).square().mean().sqrt()) or 1.0
    z, goal = (x - centre) / scale, functional.one_hot(y, classes).float()
    W, b = torch.zeros(classes, x.shape[1]), torch.zeros(classes)
    search = torch.optim.LBFGS([W, b], max_iter=ITERATIONS, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

    def objective() -> float:
        log_p = (z @ W.T + b).log_softmax(1)
        residual = (log_p.exp() - goal) / len(z)
        W.grad, b.grad = residual.T @ z + L2 * W, residual.sum(0)
        return float(-(goal * log_p).sum() / len(z) + L2 / 2 * W.square().sum())

    search.step(objective)  # type: ignore[no-untyped-call]
    return lambda rows: (((rows - centre) / scale) @ W.T + b).softmax(1)


def self_trained(x: Tensor, y: Tensor, target: Tensor, p: Tensor, rounds: int = 3) -> Tensor:
    """The target joins with the labels of its rows that are surer than the median of their class, again and again."""
    for _ in range(rounds):
        sure, guess = p.max(1)
        medians = torch.stack([sure[guess == k].median() if (guess == k).any() else torch.tensor(2.0) for k in range(p.shape[1])])
        kept = sure >= medians[guess]
        p = fitted(torch.cat([x, target[kept]]), torch.cat([y, guess[kept]]), p.shape[1])(target)
    return p


def predictions(of: Seen) -> dict[str, Tensor]:
    """Each candidate's probabilities of the target's rows, (n, classes)."""
    K, prior = of.classes, torch.bincount(of.y, minlength=of.classes).float() / len(of.y)

    def by_sums(x: Tensor, target: Tensor) -> Tensor:
        h = heads(class_sums(x, of.y, K))
        return (target.double() @ h.weight.T + h.bias).softmax(1).float()

    def shifted(p: Tensor) -> Tensor:
        return reweighted(p, prior, shifted_prior(p, prior)).float()

    none, site = fitted(of.shared, of.y, K)(of.target_shared), fitted(of.own, of.y, K)(of.target_own)
    site_gauss = by_sums(of.own, of.target_own)
    return {
        "none": none,
        "site": site,
        "whiten": fitted(of.white, of.y, K)(of.target_white),
        "gauss": by_sums(of.shared, of.target_shared),
        "site_gauss": site_gauss,
        "self": self_trained(of.shared, of.y, of.target_shared, none),
        "site_self": self_trained(of.own, of.y, of.target_own, site),
        "em": shifted(none),
        "site_em": shifted(site),
        "site_gauss_em": shifted(site_gauss),
        "half": (none + site) / 2,
    }


def distance(sources: Sequence[Rows], target: Tensor) -> tuple[float, float]:
    """From the pooled sites to a target: the mean |difference of means| in spreads, and the mean |log-ratio of spreads|."""
    pooled: Moments = reduce(add, (moments([x], x.shape[1]) for x, _ in sources))
    theirs = moments([target], target.shape[1])
    apart = ((theirs.mean - pooled.mean) / pooled.spread).abs().mean()
    return float(apart), float((theirs.spread / pooled.spread).log().abs().mean())


def write(path: Path, domains: Domains, targets: Sequence[str]) -> None:
    """A file with each target, and its rehearsals."""
    if path.exists():
        return
    classes = 1 + max(int(y.max()) for _, y in domains.values())
    known = dict[tuple[tuple[str, ...], str], Mapping[str, Tensor]]()

    def outcome(sources: tuple[str, ...], target: str) -> Mapping[str, Tensor]:
        if (sources, target) not in known:
            x, y = domains[target]
            rows = [domains[name] for name in sources]
            found = predictions(seen(rows, x, classes))
            p = torch.stack([found[name] for name in CANDIDATES]).half()
            known[sources, target] = {"p": p, "y": y, "far": torch.tensor(distance(rows, x))}
        return known[sources, target]

    tensors = dict[str, Tensor]()
    for target in targets:
        labelled = tuple(sorted(set(domains) - {target}))
        tensors |= {f"{target}//{key}": value for key, value in outcome(labelled, target).items()}
        for site in labelled:
            rest = tuple(name for name in labelled if name != site)
            tensors |= {f"{target}/{site}/{key}": value for key, value in outcome(rest, site).items()}
    np.savez(path, **{name: value.numpy() for name, value in tensors.items()})
    print(path.name, flush=True)


def load(folder: Path) -> Domains:
    return {path.stem: features(folder.name, path) for path in sorted(folder.glob("*.npz"))}


def features(name: str, path: Path) -> Rows:
    """A domain's rows as the studies of these sets take them."""
    file = np.load(path, allow_pickle=False)
    x, y = file["x"].astype(np.float32), torch.tensor(file["y"].astype(np.int64))
    if name == "office_caltech10_surf":
        x /= x.sum(1, keepdims=True).clip(1)
    if name == "amazon_review":
        x = np.log1p(x[:, file["top400"]])
    if name == "digits":
        grey = torch.tensor(x.mean(3) if x.ndim == 4 else x)[:, None] / (16 if path.stem == "optdigits" else 255)
        x = functional.interpolate(grey, (16, 16), mode="bilinear", antialias=True).flatten(1).numpy()
    return torch.tensor(x), y


def thinned(domains: Domains, seed: int, most: int) -> Domains:
    """At most so many rows of each domain, and at most four fifths of it, so that seeds differ."""

    def drawn(name: str, x: Tensor) -> Tensor:
        own = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 997
        return torch.randperm(len(x), generator=torch.Generator().manual_seed(1000 * seed + own))[: min(most, int(0.8 * len(x)))]

    return {name: (x[i], y[i]) for name, (x, y) in domains.items() for i in [drawn(name, x)]}


def generated(data: Path, i: int) -> tuple[str, Domains]:
    """The i-th shift: rows of a real set, dealt to sites, each of which is shifted by itself. The same for all time."""
    rng = torch.Generator().manual_seed(77_000 + i)
    base, kind = list(SETS)[i % len(SETS)], KINDS[i // len(SETS) % len(KINDS)]
    domains = load(data / base)
    one = sorted(domains)[int(torch.randint(len(domains), (), generator=rng))]
    x, y = domains[one] if i % 2 else (torch.cat([d[0] for d in domains.values()]), torch.cat([d[1] for d in domains.values()]))
    order = torch.randperm(len(x), generator=rng)[:GENERATED]
    x, y = principal(x[order]), y[order]
    size = SIZES[int(torch.randint(len(SIZES), (), generator=rng))]
    parts = torch.arange(len(x)).chunk(SITES)
    sites = {f"site-{j}": shifted_site(x[part], y[part], kind, size, rng) for j, part in enumerate(parts)}
    return f"{base}-{kind}-{i}", sites


def principal(x: Tensor) -> Tensor:
    """At most WIDTH directions of the most variance, with falling spreads."""
    centred = x - x.mean(0)
    z = centred @ torch.linalg.svd(centred[:1000], full_matrices=False)[2][:WIDTH].T
    return z / z.std(0).clamp_min(1e-6) * torch.linspace(1, 0.2, z.shape[1])


def shifted_site(x: Tensor, y: Tensor, kind: str, size: float, rng: torch.Generator) -> Rows:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng)

    d, spread = x.shape[1], x.std(0)
    if "label" in kind:
        weight = torch.rand(int(y.max()) + 1, generator=rng) ** (4 * size)
        chosen = torch.multinomial(weight[y] + 1e-9, min(max(len(y) // 2, 50), len(y)), generator=rng)
        x, y = x[chosen], y[chosen]
    if "diag" in kind:
        x = x * torch.exp(0.7 * size * normal(d)) + size * spread * normal(d)
    if kind == "offset":
        x = x + size * spread * normal(d)
    if kind == "affine":
        x = x @ (torch.eye(d) + size * normal(d, d) / d**0.5) + 0.5 * size * spread * normal(d)
    if kind == "noise":
        x = x + 1.5 * size * float(torch.rand((), generator=rng)) * spread * normal(*x.shape)
    if kind == "missing":
        x = x * (torch.rand(d, generator=rng) > 0.5 * min(size, 1.2))
    return x, y


def main() -> None:
    """Write what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("real", "generated"))
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets")
    parser.add_argument("--out", type=Path, required=True, help="where the files go")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shifts", type=int, default=120)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "generated":
        for i in range(args.shifts):
            name, sites = generated(args.data, i)
            write(args.out / f"generated-{name}.npz", sites, [f"site-{SITES - 1}"])
        return
    for seed in range(args.seeds):
        for name in SETS:
            domains = thinned(load(args.data / name), seed, MOST_ROWS.get(name, 800))
            write(args.out / f"real-{name}-{seed}.npz", domains, sorted(domains))


if __name__ == "__main__":
    main()
