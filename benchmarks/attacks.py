"""Attacks on what a site sends after training, by epsilon: who is a member, which rows are read, and what canaries prove.

    python benchmarks/attacks.py                         digits that come with Tideline: some minutes
    python benchmarks/attacks.py --data DIR              features of a frozen encoder in DIR/pacs32_lite0/photo.npz as well
    python benchmarks/attacks.py --only canaries,trap --epsilon 4,none

Each attack has the weights before and after, and all settings; of a private site it lacks the key of its noise alone.

    membership  LiRA (Carlini et al., S&P 2022) with 16 shadow models: of members, the share that is found where 1 in 100 others
                is taken for one. 1 % is chance.
    gradients   one row, and eight, by the quotients of one step's update (Phong et al., 2018): how many rows are read
    trap        weights whose first layer counts rows between thresholds (Fowl et al., ICLR 2022): how many of 200 rows are read
    canaries    1,000 rows made to be seen, each in or out by a coin: the epsilon that guesses of them prove with 95 %
                (Steinke, Nasr, Jagielski, NeurIPS 2023). It may not be above what is claimed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from scipy.stats import binom, norm
from torch import Generator, Tensor, nn

from tests.site.inversion import crafted, read_rows, read_rows_of_units
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.learning.datasets import digits
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.private import fit_privately
from tideline.numerics.privacy.accounting import Sampled, noise_for
from tideline.numerics.privacy.streams import Stream

DELTA, CLIP = 1e-5, 1.0
SHADOWS, FALSE = 16, 0.01
CANARIES, SURE = 1000, 0.95
NEAR = 0.05
PLAIN_RATE = {"mlp": 0.3, "linear": 0.01}  # without clipping, features as long as 30 want small steps
NONE = "none"
Row = Mapping[str, Any]


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)
    for name in args.only.split(","):
        for row in ATTACKS[name](args):
            line = json.dumps(row) if args.json else " ".join(f"{key}={value}" for key, value in row.items())
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of sets of features")
    parser.add_argument("--only", default="membership,gradients,trap,canaries", help="which attacks, by commas")
    parser.add_argument("--epsilon", default="1,4,8,none", help="which, by commas")
    parser.add_argument("--quick", action="store_true", help="fewer rows, models and canaries: that all parts work")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    return parser.parse_args()


def trained(
    net: nn.Module, data: Data, epsilon: str, *, rate: float, epochs: int, sample: float, seed: int, clip: float = CLIP
) -> nn.Module:
    """A site's training in place: plain descent, or private steps of `epsilon` in all. sample: the share of rows in a step."""
    by, n = torch.optim.SGD(net.parameters(), rate), len(data)
    if epsilon == NONE:
        fit(net, data, cross_entropy, by, epochs=epochs, batch=max(1, round(sample * n)), rng=Generator().manual_seed(seed))
        return net
    steps = math.ceil(epochs / sample)
    noise = noise_for(float(epsilon), DELTA, lambda z: (Sampled(rate=sample, noise=z, times=steps),))
    stream = Stream(seed.to_bytes(32, "big"))
    fit_privately(net, data, cross_entropy, by, rate=sample, steps=steps, clip=clip, noise=noise, rows=n, stream=stream)
    return net


def data_of(x: Tensor, y: Tensor) -> Data:
    return Data(MemoryRows(x), y, torch.zeros(len(y), dtype=torch.int64), ("all",))


# Membership


def membership(args: argparse.Namespace) -> Iterator[Row]:
    models, most = (4, 80) if args.quick else (SHADOWS, 1000)
    for name, (x, y, world) in populations(args, most).items():
        for epsilon in args.epsilon.split(","):
            inside = torch.stack([coin(len(y), seed) for seed in range(models)])
            told = torch.stack([confidences(x, y, world, own, epsilon, seed) for seed, own in enumerate(inside)])
            found = likelihood_ratios(told, inside)
            limit = torch.quantile(found[~inside], 1 - FALSE)
            yield {"attack": "membership", "rows": name, "epsilon": epsilon} | {
                "found_percent": round(100 * float((found[inside] > limit).float().mean()), 2)
            }


def populations(args: argparse.Namespace, most: int) -> dict[str, tuple[Tensor, Tensor, World]]:
    """Rows, labels and the network that is attacked, by name."""
    raw = digits.load("optdigits")
    some = torch.randperm(len(raw.y), generator=Generator().manual_seed(0))[:most]
    x, y = torch.from_numpy(raw.x).float().flatten(1)[some] / 16, torch.from_numpy(raw.y).long()[some]
    found = {"digits, mlp": (x, y, World(inputs=(64,), classes=10, model="mlp"))}
    if args.data:
        with np.load(args.data / "pacs32_lite0" / "photo.npz", allow_pickle=False) as file:
            x, y = torch.from_numpy(file["x"].astype(np.float32)), torch.from_numpy(file["y"].astype(np.int64))
        some = torch.randperm(len(y), generator=Generator().manual_seed(0))[:most]
        found["features, head"] = x[some], y[some], World(inputs=(x.shape[1],), classes=int(y.max()) + 1, model="linear")
    return found


def coin(n: int, seed: int) -> Tensor:
    """Which of n rows are members: half of them."""
    return torch.rand(n, generator=Generator().manual_seed(1000 + seed)) < 0.5


def confidences(x: Tensor, y: Tensor, world: World, inside: Tensor, epsilon: str, seed: int) -> Tensor:
    """log(p / (1 - p)) of each row's own class under a model of the members: (n,)."""
    torch.manual_seed(seed)
    rate = PLAIN_RATE[world.model] if epsilon == NONE else 0.3
    net = trained(nets.build(world), data_of(x[inside], y[inside]), epsilon, rate=rate, epochs=30, sample=0.1, seed=seed)
    net.eval()
    with torch.no_grad():
        logits = net(x).double()
    own = logits.gather(1, y[:, None])[:, 0]
    return own - torch.logsumexp(logits.scatter(1, y[:, None], -torch.inf), dim=1)


def likelihood_ratios(told: Tensor, inside: Tensor) -> Tensor:
    """Of each model (m,) and row (n,), against Gaussians of the other models with and without that row, of one width."""
    found = torch.zeros_like(told)
    for at in range(len(told)):
        others, own = torch.cat([told[:at], told[at + 1 :]]), torch.cat([inside[:at], inside[at + 1 :]])
        means = [torch.where(which, others, torch.nan).nanmean(0) for which in (own, ~own)]
        width = max(float((others - torch.where(own, *means)).nan_to_num().std()), 1e-9)
        scores = [torch.from_numpy(norm.logpdf(told[at], mean.nan_to_num(), width)) for mean in means]
        found[at] = scores[0] - scores[1]
    return found


# Rows that are read


def gradients(args: argparse.Namespace) -> Iterator[Row]:
    """An update of one step on so many rows; each unit of the first layer tells a quotient."""
    raw = digits.load("optdigits")
    x, y = torch.from_numpy(raw.x).float().flatten(1) / 16, torch.from_numpy(raw.y).long()
    world, tries = World(inputs=(64,), classes=10, model="mlp"), 2 if args.quick else 20
    for many in (1, 8):
        for epsilon in args.epsilon.split(","):
            found = 0
            for seed in range(tries):
                own = torch.randperm(len(y), generator=Generator().manual_seed(seed))[:many]
                found += read_after_a_step(world, x[own], y[own], epsilon, seed)
            yield {"attack": "gradients", "rows": many, "epsilon": epsilon, "read_percent": round(100 * found / tries / many, 1)}


def read_after_a_step(world: World, x: Tensor, y: Tensor, epsilon: str, seed: int) -> int:
    """How many rows the quotients of an update tell."""
    torch.manual_seed(seed)
    net = nets.build(world)
    before = {name: each.clone() for name, each in nets.weights_of(net).items()}
    trained(net, data_of(x, y), epsilon, rate=1.0, epochs=1, sample=1.0, seed=seed)
    return read(x, read_rows_of_units(before, nets.weights_of(net)))


def read(x: Tensor, guesses: Tensor) -> int:
    """How many rows a guess is, up to NEAR of their norm."""
    if not len(guesses):
        return 0
    return int((torch.cdist(x, guesses.float().nan_to_num(1e6)).amin(1) < NEAR * x.norm(dim=1)).sum())


def trap(args: argparse.Namespace) -> Iterator[Row]:
    """One step on all rows, from weights that an operator made for it."""
    draw, world = Generator().manual_seed(1), World(inputs=(10,), classes=3, model="mlp")
    x, y = torch.randn(200, 10, generator=draw), torch.randint(0, 3, (200,), generator=draw)
    for epsilon in args.epsilon.split(","):
        before = crafted(world)
        net = trained(nets.loaded(world, before), data_of(x, y), epsilon, rate=100.0, epochs=1, sample=1.0, seed=0)
        found = read(x, read_rows(before, nets.weights_of(net)))
        yield {"attack": "trap", "rows": 200, "epsilon": epsilon, "read": found}


# Canaries


def canaries(args: argparse.Namespace) -> Iterator[Row]:
    """Rows that have a feature of their own, which no other row has: the weight of this feature says whether it was there."""
    many = 100 if args.quick else CANARIES
    inside = coin(many, 7)
    x, y = torch.eye(many), coin(many, 8).long()  # labels by another coin, so that a bias alone fits none of them
    world = World(inputs=(many,), classes=2, model="linear")
    for epsilon in args.epsilon.split(","):
        torch.manual_seed(0)
        net = nets.build(world)
        for each in net.parameters():
            nn.init.zeros_(each)
        trained(net, data_of(x[inside], y[inside]), epsilon, rate=1.0, epochs=10, sample=0.1, seed=3)
        weight = next(each for name, each in nets.weights_of(net).items() if name.endswith("weight"))
        signed = (weight[0] - weight[1]) * (1 - 2 * y)
        yield {"attack": "canaries", "rows": many, "epsilon": epsilon} | proven(signed, inside, many)


def proven(score: Tensor, inside: Tensor, many: int) -> Row:
    """The largest epsilon that any number of guesses proves: so many with the highest scores in, and with the lowest out."""
    best = {"proven_epsilon": 0.0, "guesses": 0, "right": 0}
    order = score.argsort(descending=True)
    tries = [r for r in (10, 20, 50, 100, 200, 500, 1000) if r <= many]
    for guesses in tries:
        half = guesses // 2
        right = int(inside[order[:half]].sum()) + int((~inside[order[len(order) - half :]]).sum())
        low = lower_bound(many, 2 * half, right, 1 - (1 - SURE) / len(tries))
        if low > best["proven_epsilon"]:
            best = {"proven_epsilon": round(low, 2), "guesses": 2 * half, "right": right}
    return best


def lower_bound(many: int, guesses: int, right: int, sure: float) -> float:
    """The epsilon below which so many right guesses would have a chance under 1 - sure, by bisection."""
    low, high = 0.0, 50.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(many, guesses, right, middle) < 1 - sure else (low, middle)
    return low


def chance(many: int, guesses: int, right: int, epsilon: float) -> float:
    """Of so many right guesses or more under (epsilon, DELTA): Steinke, Nasr, Jagielski, theorem 5.2."""
    share = 1 / (1 + math.exp(-epsilon))
    fewer = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, share)) if right else np.zeros(1)
    slope = float(np.max(fewer / np.arange(1, len(fewer) + 1), initial=0.0))
    return min(1.0, float(binom.sf(right - 1, guesses, share)) + 2 * many * DELTA * slope)


ATTACKS = {"membership": membership, "gradients": gradients, "trap": trap, "canaries": canaries}

if __name__ == "__main__":
    sys.exit(main())
