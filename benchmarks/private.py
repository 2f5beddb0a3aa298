"""What private training costs: `fit_privately` beside `fit` on LeNet, the same number of rows a step.

    python benchmarks/private.py
    python benchmarks/private.py --quick

Both take turns in one process; the ratio is the median of those of turns in a row. Memory is the most that the process has held
when `fit` is done, and when both are.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Generator, nn

from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.private import fit_privately
from tideline.nets.small import LeNet
from tideline.numerics.privacy.streams import Stream

SIDE, CLASSES, ROWS, BATCH = 16, 10, 2048, 64
Train = Callable[[int], None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=32, help="steps of a turn")
    parser.add_argument("--tries", type=int, default=7, help="turns of each")
    parser.add_argument("--quick", action="store_true", help="one short turn")
    args = parser.parse_args()
    steps, tries = (2, 1) if args.quick else (args.steps, args.tries)
    torch.set_num_threads(1)
    plainly, privately = plain(), private()
    plainly(steps)
    before = peak()
    privately(steps)
    times = [[seconds(train, steps) / steps for train in (plainly, privately)] for _ in range(tries)]
    for name, found, held in zip(("plain", "private"), zip(*times, strict=True), (before, peak()), strict=True):
        sys.stdout.write(f"{name:>8}: {1e3 * median(found):7.1f} ms a step, {held:5.0f} MB\n")
    sys.stdout.write(f"   ratio: {median(b / a for a, b in times):.2f}\n")
    return 0


def start() -> tuple[nn.Module, Data]:
    """A network, and rows of noise."""
    torch.manual_seed(0)
    x = torch.rand(ROWS, 1, SIDE, SIDE, generator=Generator().manual_seed(0))
    data = Data(MemoryRows(x), torch.arange(ROWS) % CLASSES, torch.zeros(ROWS, dtype=torch.int64), ("all",))
    return LeNet(1, SIDE, SIDE, CLASSES), data


def plain() -> Train:
    """`fit` by steps."""
    net, data = start()
    by, rng = torch.optim.SGD(net.parameters(), 0.01), Generator().manual_seed(1)

    def train(steps: int) -> None:
        fit(net, data, cross_entropy, by, epochs=1, batch=BATCH, rng=rng, steps=steps)

    return train


def private() -> Train:
    """`fit_privately` by samples of as many rows on average."""
    net, data = start()
    by, stream = torch.optim.SGD(net.parameters(), 0.01), Stream(bytes(32))

    def train(steps: int) -> None:
        rate = BATCH / ROWS
        fit_privately(net, data, cross_entropy, by, rate=rate, steps=steps, clip=1.0, noise=1.0, rows=ROWS, stream=stream)

    return train


def seconds(train: Train, steps: int) -> float:
    began = time.perf_counter()
    train(steps)
    return time.perf_counter() - began


def peak() -> float:
    """The most that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
