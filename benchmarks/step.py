"""What a training step costs, beside a loop that is written by hand with the same network, rows and optimiser.

    python benchmarks/step.py                 # a small network of 64 x 64 pixels on the CPU; ResNet-50 where there is a GPU
    python benchmarks/step.py --quick

Both train in turns on rows in memory; a figure is the median of the rounds, `ratio` the median of each round's own ratio.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.core.asked.computing import Computing, Precision
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.local_training import LocalTraining, optimiser
from tideline.nets.computing import CPU, CUDA, DTYPES, computing_at

RATE, MOMENTUM, DECAY = 0.01, 0.9, 5e-4


@dataclass(frozen=True)
class Row:
    """One case: images a second of both loops, their ratio, and how busy the GPU was, in percent."""

    device: str
    network: str
    pixels: int
    precision: str
    batch: int
    ours: float
    by_hand: float
    ratio: float
    busy: float | None


@dataclass(frozen=True)
class Case:
    """What is trained, and where."""

    world: World
    batch: int
    rows: int
    precision: Precision
    device: str = CPU

    def data(self) -> Data:
        """Random images; nothing is learnt from them."""
        x = torch.randn(self.rows, *self.world.inputs)
        y = torch.randint(self.world.classes, (self.rows,))
        return Data(MemoryRows(x), y, torch.zeros(self.rows, dtype=torch.int64), ("d",))


def main() -> int:
    """Measure and print."""
    args = arguments()
    torch.set_num_threads(args.threads)
    for case in cases(args.quick):
        row = measured(case, args.rounds)
        print(json.dumps(asdict(row)) if args.json else line(row), flush=True)
    if not torch.cuda.is_available():
        print("ResNet-50 at 224 pixels in bfloat16: not measured, there is no GPU here", file=sys.stderr)
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each loop")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads on the CPU")
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser.parse_args()


def cases(quick: bool) -> Iterator[Case]:
    """The CPU's, and the GPU's where there is one."""
    small = World(inputs=(3, 64, 64), classes=10, model="lenet")
    for precision in (Precision.FLOAT32, Precision.BFLOAT16):
        yield Case(small, 32, 128 if quick else 640, precision)
    if torch.cuda.is_available():
        large = World(inputs=(3, 224, 224), classes=10, model="resnet50")
        yield Case(large, 128, 512 if quick else 2560, Precision.BFLOAT16, CUDA)


def measured(case: Case, rounds: int) -> Row:
    """Both loops in turns, so that what else the machine does falls on both."""
    data, start = case.data(), nets.weights_of(nets.build(case.world))
    ours, by_hand, busy = list[float](), list[float](), None
    loops: list[tuple[Callable[[Case, Data, dict[str, Tensor]], float], list[float]]] = [(product, ours), (hand_written, by_hand)]
    with utilisation(case.device) as seen:
        for turn in range(rounds + 1):
            for loop, found in loops if turn % 2 else loops[::-1]:
                seconds = loop(case, data, start)
                if turn:  # the first warms up
                    found.append(case.rows / seconds)
    busy = statistics.median(seen) if seen else None
    where = torch.cuda.get_device_name() if case.device == CUDA else CPU
    return Row(
        device=where,
        network=case.world.model,
        pixels=case.world.inputs[-1],
        precision=case.precision.value,
        batch=case.batch,
        ours=round(statistics.median(ours), 1),
        by_hand=round(statistics.median(by_hand), 1),
        ratio=round(statistics.median(a / b for a, b in zip(ours, by_hand, strict=True)), 3),
        busy=busy,
    )


def product(case: Case, data: Data, start: dict[str, Tensor]) -> float:
    """Seconds of an epoch as a site trains it."""
    with computing_at(Computing(precision=case.precision), case.device):
        net = nets.loaded(case.world, start, case.device)
        by = optimiser(LocalTraining(), net.parameters(), RATE, MOMENTUM, DECAY)
        many = {"epochs": 1, "batch": case.batch, "device": case.device}
        return timed(case.device, lambda: fit(net, data, cross_entropy, by, rng=torch.Generator().manual_seed(0), **many))


def hand_written(case: Case, data: Data, start: dict[str, Tensor]) -> float:
    """Seconds of an epoch of a bare loop."""
    net = nets.build(case.world)
    net.load_state_dict(start)
    net = net.to(case.device, memory_format=torch.channels_last if case.device == CUDA else torch.preserve_format).train()
    gpu = case.device == CUDA
    by = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=True if gpu else None)
    x, y = data.x.all("a benchmark"), data.y
    assert y is not None

    def epoch() -> None:
        total = torch.zeros((), device=case.device)
        for at in torch.randperm(len(x)).split(case.batch):
            images, labels = x[at].to(case.device), y[at].to(case.device)
            by.zero_grad(set_to_none=True)
            with torch.autocast(case.device, DTYPES[case.precision]) if case.precision in DTYPES else nullcontext():
                out = net(images.contiguous(memory_format=torch.channels_last) if gpu else images)
            loss = nn.functional.cross_entropy(out.float(), labels)
            loss.backward()
            by.step()
            total += loss.detach() * len(at)
        float(total / len(x))

    return timed(case.device, epoch)


def timed(device: str, run: Callable[[], object]) -> float:
    """Seconds with all that a GPU had to do; on the CPU its own seconds, so that what else the machine does counts little."""
    if device == CPU:
        began = time.process_time()
        run()
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - began


@contextmanager
def utilisation(device: str) -> Iterator[list[float]]:
    """How busy the GPU is, in percent, read twice a second by nvidia-smi; nothing where there is none."""
    seen, over = list[float](), threading.Event()

    def read() -> None:
        while not over.wait(0.5):
            ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
            said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
            seen.extend(float(each) for each in said[:1] if each.isdigit())

    reader = threading.Thread(target=read, daemon=True)
    if device == CUDA and shutil.which("nvidia-smi"):
        reader.start()
    try:
        yield seen
    finally:
        over.set()
        if reader.is_alive():
            reader.join()


def line(row: Row) -> str:
    """A row in words."""
    busy = "" if row.busy is None else f", GPU {row.busy:.0f} % busy"
    loops = f"{row.ours:.0f} images/s, by hand {row.by_hand:.0f}, ratio {row.ratio:.3f}{busy}"
    return f"{row.device}, {row.network} at {row.pixels} pixels, {row.precision}, batch {row.batch}: {loops}"


if __name__ == "__main__":
    sys.exit(main())
