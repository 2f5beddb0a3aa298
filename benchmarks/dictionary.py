"""What a local epoch of dictionary learning costs, beside the plain loop that one would write first.

    python benchmarks/dictionary.py [--d 4096] [--classes 10] [--points 500] [--batch 100] [--atoms 3] [--epochs 8] [--profile]

The plain loop has torch.autograd through the barycentric map, ot.emd atom by atom and torch.optim.Adam over whole atoms. Both
start from the same atoms and draw the same mini-batches, turn about, an epoch each; `ratio` is the plain loop's fastest epoch
over ours, so that larger is better. Both losses of the last epoch stand beside it: with the same optimiser they have to agree.
Memory is measured for each alone, in a process of its own. `--profile` says instead where the time of both goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import ot
import torch
from torch import Generator, Tensor

from benchmarks.measure import PeakMemory
from tideline.numerics.labels.softmax import project
from tideline.numerics.transport.dictionary import (
    Dictionary,
    Fit,
    Pool,
    fit,
    fresh,
    logits_of,
    one_hot_logits,
    slices,
    soft_labels,
)

AGREE = 0.02  # relative, between losses of the same optimiser
# Functions whose time, with what they call, makes up a part.
PARTS = {
    "transport": {"plan", "plain_plan"},
    "costs": {"squared_distances", "labelled", "plain_cost"},
    "maps": {"carried"},
    "optimiser": {"step_", "step", "zero_grad"},
    "autograd": {"_engine_run_backward"},
    "draws": {"draw"},
}
TOL, ITERATIONS = 1e-4, 10
Epoch = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One measurement: seconds of the fastest epoch, ratios of the fastest and of the medians; memory at its peak, beside atoms
    and data, in MB; losses."""

    d: int
    optimiser: str
    ours_s: float
    plain_s: float
    ratio: float
    median_ratio: float
    ours_mb: float
    plain_mb: float
    ours_loss: float
    plain_loss: float


@dataclass(frozen=True)
class Problem:
    """Atoms, a client's data, and the settings."""

    atoms: Dictionary
    z: Tensor
    y: Tensor
    settings: Fit


def main() -> int:
    """Measure each size with each optimiser; a line a row. 1 where equal optimisers disagree."""
    args = arguments()
    torch.set_num_threads(args.threads)
    if args.alone:
        return alone(args)
    if args.profile:
        return profiled(args)
    rows = [measure(args, d, optimiser) for d in args.d for optimiser in ("adam", "rows")]
    for row in rows:
        sys.stdout.write((json.dumps(asdict(row)) if args.json else line(row)) + "\n")
    return int(any(r.optimiser == "adam" and abs(r.ours_loss / r.plain_loss - 1) > AGREE for r in rows))


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, nargs="+", default=[4096, 512], help="features")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--points", type=int, default=500, help="of an atom")
    parser.add_argument("--batch", type=int, default=100, help="points of a mini-batch")
    parser.add_argument("--atoms", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8, help="epochs of each measurement; the first warms up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alone", choices=("ours", "plain"), help="print the memory of one of the two, and no more")
    parser.add_argument("--optimiser", choices=("adam", "rows"), default="adam", help="with --alone")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, and no more")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    return parser.parse_args()


def problem(args: Any, d: int, optimiser: str) -> Problem:
    """Standard normal atoms; data of one Gaussian a class."""
    rng = Generator().manual_seed(0)
    labels = torch.arange(args.points) * args.classes // args.points
    y = soft_labels(one_hot_logits(labels, args.classes, 0.9)).expand(args.atoms, -1, -1).contiguous()
    atoms = Dictionary(torch.randn(args.atoms, args.points, d, generator=rng), y)
    centres, of = torch.randn(args.classes, d, generator=rng), torch.randint(args.classes, (1000,), generator=rng)
    z = centres[of] + torch.randn(1000, d, generator=rng)
    settings = Fit(args.batch, rate=0.03, optimiser=optimiser, iterations=ITERATIONS)
    return Problem(atoms, z, torch.nn.functional.one_hot(of, args.classes).float(), settings)


def measure(args: Any, d: int, optimiser: str) -> Row:
    """Ours and the plain loop turn about, so that other work on the machine slows both; then the memory of each alone."""
    p = problem(args, d, optimiser)
    runs = {"ours": ours(p), "plain": plain(p)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    last = dict.fromkeys(runs, float("nan"))
    for _ in range(args.epochs):
        for name, epoch in runs.items():
            began = time.perf_counter()
            last[name] = epoch()
            times[name].append(time.perf_counter() - began)
    fast = {name: min(seconds[1:] or seconds) for name, seconds in times.items()}
    middle = {name: statistics.median(seconds[1:] or seconds) for name, seconds in times.items()}
    ratios = (fast["plain"] / fast["ours"], middle["plain"] / middle["ours"])
    memory = (process_mb(args, "ours", d, optimiser), process_mb(args, "plain", d, optimiser))
    return Row(d, optimiser, fast["ours"], fast["plain"], *ratios, *memory, last["ours"], last["plain"])


def process_mb(args: Any, name: str, d: int, optimiser: str) -> float:
    """What `alone` prints, from a process of its own."""
    sizes = [f"--{key}={getattr(args, key)}" for key in ("classes", "points", "batch", "atoms", "threads")]
    command = [sys.executable, __file__, f"--alone={name}", f"--optimiser={optimiser}", f"--d={d}", *sizes]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def alone(args: Any) -> int:
    """Print the memory that three epochs need at most, their state included, beside atoms and data."""
    make = {"ours": ours, "plain": plain}[args.alone]
    make(problem(args, 8, args.optimiser))()  # loads libraries and starts threads
    p = problem(args, args.d[0], args.optimiser)
    with PeakMemory({"me": os.getpid()}, seconds=0.002) as memory:
        before = memory.now()["me"]
        epoch = make(p)
        for _ in range(3):
            epoch()
    sys.stdout.write(f"{memory.peaks['me'] - before}\n")
    return 0


def profiled(args: Any) -> int:
    """A table for each size and optimiser: milliseconds of an epoch in each part, by Python's own profile."""
    for d in args.d:
        for optimiser in ("adam", "rows"):
            p = problem(args, d, optimiser)
            for name, epoch in {"ours": ours(p), "plain": plain(p)}.items():
                report = "  ".join(f"{part} {1e3 * s:.1f}" for part, s in shares(epoch, args.epochs).items())
                sys.stdout.write(f"d={d:5d} {optimiser:5s} {name:5s} ms an epoch: {report}\n")
    return 0


def shares(epoch: Epoch, epochs: int) -> dict[str, float]:
    """Seconds of an epoch in each part, nested calls included; the parts do not overlap. The first epoch warms up."""
    epoch()
    with cProfile.Profile() as profile:
        for _ in range(epochs):
            epoch()
    stats = pstats.Stats(profile)
    taken = dict.fromkeys(PARTS, 0.0)
    for (_, _, function), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        for part, functions in PARTS.items():
            taken[part] += cumulative / epochs if function in functions else 0.0
    whole = stats.total_tt / epochs  # type: ignore[attr-defined]
    return {**taken, "rest": whole - sum(taken.values()), "whole": whole}


def ours(p: Problem) -> Epoch:
    """An epoch of `fit`, which goes on from the one before."""
    rng = Generator().manual_seed(1)
    K = len(p.atoms.z)
    held = [p.atoms, torch.full((K,), 1 / K), fresh(p.atoms, p.settings.optimiser)]

    def epoch() -> float:
        fitted = fit(*held, p.z, p.y, p.settings, rng)
        held[:] = fitted.dictionary, fitted.alpha, fitted.moments
        return fitted.loss

    return epoch


def plain(p: Problem) -> Epoch:
    """The loop written straight down."""
    rng, pool = Generator().manual_seed(1), Pool.of(p.z, p.y)
    K, n, _ = p.atoms.z.shape
    z, logits = p.atoms.z.clone().requires_grad_(), logits_of(p.atoms.y).requires_grad_()
    alpha = torch.full((K,), 1 / K, requires_grad=True)
    optimiser = torch.optim.Adam([z, logits, alpha], lr=p.settings.rate)

    def epoch() -> float:
        losses = []
        for rows in slices(n, p.y.shape[1], p.settings.batch):
            z_q, y_q = pool.draw(len(rows), rng)
            assert y_q is not None
            optimiser.zero_grad()
            z_b, y_b = plain_barycenter(z[:, rows], logits[:, rows].softmax(-1), alpha)
            cost = plain_cost(z_b, z_q, y_b, y_q)
            loss = (cost * plain_plan(cost)).sum()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                alpha.copy_(project(alpha))
            losses.append(loss.item())
        return statistics.mean(losses)

    return epoch


def plain_barycenter(z: Tensor, y: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Plans without gradient from the largest atom on; the last map with one."""
    k, n = int(alpha.argmax()), z.shape[1]
    with torch.no_grad():
        z_b, y_b = z[k], y[k]
        beta = max(float(torch.cdist(z_k, z_b).square().max()) for z_k in z)
        for _ in range(ITERATIONS):
            plans = [plain_plan(plain_cost(z_k, z_b, y_k, y_b, beta)) for z_k, y_k in zip(z, y, strict=True)]
            before = z_b
            z_b, y_b = (sum(n * a * g.T @ x for a, g, x in zip(alpha, plans, each, strict=True)) for each in (z, y))
            if (z_b - before).square().sum(-1).max() <= TOL**2 * beta:
                break
    z_b, y_b = (sum(n * a * g.T @ x for a, g, x in zip(alpha, plans, each, strict=True)) for each in (z, y))
    return z_b, y_b


def plain_cost(z_p: Tensor, z_q: Tensor, y_p: Tensor, y_q: Tensor, beta: float | None = None) -> Tensor:
    """The labelled cost."""
    cost = torch.cdist(z_p, z_q) ** 2
    return cost + (cost.max().item() if beta is None else beta) * torch.cdist(y_p, y_q) ** 2


def plain_plan(cost: Tensor) -> Tensor:
    """The exact plan, a constant."""
    n, m = cost.shape
    plan = ot.emd(np.full(n, 1 / n), np.full(m, 1 / m), cost.detach().numpy().astype(np.float64))
    return torch.from_numpy(plan).to(cost.dtype)


def line(row: Row) -> str:
    """A row for people."""
    return (
        f"d={row.d:5d} {row.optimiser:5s} ours {row.ours_s * 1e3:7.1f} ms  plain {row.plain_s * 1e3:7.1f} ms"
        f"  ratio {row.ratio:5.2f} (medians {row.median_ratio:5.2f})  memory {row.ours_mb:6.1f} and {row.plain_mb:6.1f} MB"
        f"  loss {row.ours_loss:.6g} and {row.plain_loss:.6g}"
    )


if __name__ == "__main__":
    sys.exit(main())
