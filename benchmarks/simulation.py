"""What a simulated round costs, beside the plain loop that one would write first.

    python benchmarks/simulation.py [--clients 50 500 50/1000] [--rounds 4] [--peers VENV] [--scale] [--quick]

Equal work in each column: each client has 20 training and 4 held-out rows of 8 x 8 digits, trains an MLP of 64-64-10 for an epoch
in batches of 10 (SGD, momentum 0.9), and scores the new mean on its held-out rows, one thread a step. Each column runs in a
process of its own; its figure is the median of the rounds after the first. An order is one training or one scoring. Memory is
that beside the data, with all processes that a column starts; accuracy is that of the last scoring.

loop        the plain loop: one network, into which each client's weights are loaded
ours        `tideline simulate`'s engine: every message encoded, hashed, checked and written to the journal
processes   the same with a pool of two processes
pfl         another simulator, in a virtual environment that --peers names; empty where that lacks it
flower      another, on Ray with two actors; the same
--scale     instead: 10, 100, 1,000 and 10,000 clients, the exponent of seconds over clients, and memory beside the data
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.measure import grown
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.settings import Plain
from tideline.core.step import Data
from tideline.engine.model.runs import Event
from tideline.engine.simulation.federation import Federation, OpenPool, SimSite
from tideline.engine.simulation.pools import InlinePool, ProcessPool
from tideline.learning.formats.holdings import Holdings

ROOT = Path(__file__).resolve().parent.parent
TRAIN, HELD_OUT, BATCH, RATE, MOMENTUM, DECAY = 20, 4, 10, 0.05, 0.9, 5e-4
WORLD = World(inputs=(64,), classes=10, model="mlp")
ORDER_MS = 0.4  # that an order may cost beside its training or scoring
SCALE = (10, 100, 1000, 10_000)
PEERS = {"pfl": ("pfl",), "flower": ("flwr", "ray")}  # what each needs; its program is peers/NAME_rounds.py
LACKS = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


class Figures(TypedDict):
    """What a column measures: seconds of a round, the median of those after the first, memory in MB, and accuracy in 0..1."""

    seconds: float
    memory_mb: float
    accuracy: float


EMPTY = Figures(seconds=math.nan, memory_mb=math.nan, accuracy=math.nan)


@dataclass(frozen=True)
class Clients:
    """How many there are, and how many of them train and are scored in a round; 0: all."""

    number: int
    cohort: int = 0

    @property
    def asked(self) -> int:
        return self.cohort or self.number

    def __str__(self) -> str:
        return f"{self.cohort}/{self.number}" if self.cohort else str(self.number)

    def drawn(self, rng: np.random.RandomState) -> Sequence[int]:
        """Who takes part in a training or in a scoring."""
        return sorted(rng.choice(self.number, self.asked, replace=False)) if self.cohort else range(self.number)


def clients_in(text: str) -> Clients:
    """Raises ValueError, which argparse tells."""
    cohort, _, number = text.rpartition("/")
    return Clients(int(number), int(cohort or 0))


@dataclass(frozen=True)
class Row:
    """Seconds of a round with so many clients, by column; memory in MB that each column takes beside the data; accuracy.

    Accuracy is the mean of the last scoring, in 0..1. A simulator that is not there has NaN.
    order_ms: what ours costs beside 1.25 times the loop, for each of the two orders of a client.
    """

    clients: str
    seconds: dict[str, float]
    memory_mb: dict[str, float]
    accuracy: dict[str, float]
    order_ms: float


@dataclass(frozen=True)
class Scale:
    """Seconds of a round and memory beside the data in MB, by clients; the exponent that fits the seconds best."""

    seconds: dict[str, float]
    memory_mb: dict[str, float]
    exponent: float


def main() -> int:
    """Measure; 1 where a limit is exceeded."""
    args = arguments()
    check_keys(Scale if args.scale else Row, args.limit)
    if args.column:
        sys.stdout.write(json.dumps(COLUMNS[args.column](args.clients[0], args.rounds)) + "\n")
        return 0
    if args.scale:
        row = scaled(args)
        return emit(row, shown_scale(row), args.limit, args.json)
    return max(emit(row, shown(row), args.limit, args.json) for row in (compared(args, n) for n in args.clients))


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=clients_in, nargs="+", help="how many, or 50/1000: of so many 50 a round")
    parser.add_argument("--rounds", type=int, default=4, help="rounds that are measured, after one that warms up")
    parser.add_argument("--peers", type=Path, help="a virtual environment that has pfl, Flower or both")
    parser.add_argument("--scale", action="store_true", help="how seconds and memory grow with the clients")
    parser.add_argument("--quick", action="store_true", help="few clients, two rounds")
    parser.add_argument("--column", choices=COLUMNS, help="measure this column alone, in this process")
    parser.add_argument("--json", action="store_true", help="a JSON object a row")
    parser.add_argument("--limit", type=limit, action="append", default=[], help="KEY=NUMBER; ends with 1 above it")
    args = parser.parse_args()
    if args.peers and not python_of(args.peers).exists():
        parser.error(f"--peers {args.peers}: there is no {python_of(args.peers)}; name the folder of a virtual environment")
    if args.quick:
        args.clients, args.rounds = args.clients or list(map(Clients, (8, 16) if args.scale else (8,))), 2
    args.clients = args.clients or [Clients(50), Clients(500), Clients(1000, 50)]
    return args


@cache
def rows() -> tuple[Tensor, Tensor]:
    """Digits, each pixel in 0..1: (1797, 64) and (1797,)."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16.0, dtype=torch.float32), torch.tensor(y)


def holdings(client: int) -> Holdings:
    """A client's rows, drawn for it alone."""
    x, y = rows()
    drawn = torch.tensor(np.random.RandomState(client).choice(len(x), TRAIN + HELD_OUT, replace=False))
    return Holdings(
        *(Data(MemoryRows(x[own]), y[own], torch.zeros(len(own), dtype=torch.int64), ("digits",)) for own in drawn.split(TRAIN))
    )


def warm_up() -> None:
    """Take a step, so that the 80 MB that torch loads with the first one are counted to no column."""
    weight = torch.nn.Parameter(torch.ones(1))
    weight.sum().backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD([weight], lr=RATE).step()


def loop(clients: Clients, rounds: int) -> Figures:
    """The plain loop."""
    torch.set_num_threads(1)
    sites, net = [holdings(client) for client in range(clients.number)], nets.build(WORLD)
    mean, rng = nets.weights_of(nets.build(WORLD)), np.random.RandomState(0)

    def play() -> tuple[list[float], float]:
        nonlocal mean
        took, scores = [], [math.nan]
        for _ in range(rounds + 1):
            began = time.perf_counter()
            mean = trained(net, mean, [sites[client] for client in clients.drawn(rng)])
            scores = scored(net, mean, [sites[client] for client in clients.drawn(rng)])
            took.append(time.perf_counter() - began)
        return took[1:], statistics.mean(scores)

    warm_up()
    memory, (seconds, accuracy) = grown(play)
    return {"seconds": statistics.median(seconds), "memory_mb": memory, "accuracy": accuracy}


def trained(net: torch.nn.Module, mean: dict[str, Tensor], sites: Sequence[Holdings]) -> dict[str, Tensor]:
    """The mean of what each client makes of the mean."""
    total = {name: torch.zeros_like(each) for name, each in mean.items()}
    for site in sites:
        net.load_state_dict(mean)
        net.train()
        optimiser = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
        for own in torch.randperm(TRAIN).split(BATCH):
            assert site.train.y is not None
            loss = torch.nn.functional.cross_entropy(net(site.train.x.all()[own]), site.train.y[own])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        for name, each in net.state_dict().items():
            total[name].add_(each, alpha=1 / len(sites))
    return total


def scored(net: torch.nn.Module, mean: dict[str, Tensor], sites: Sequence[Holdings]) -> list[float]:
    """The accuracy of a model at each client."""
    net.load_state_dict(mean)
    net.eval()
    with torch.no_grad():
        return [float((net(site.held_out.x.all()).argmax(1) == site.held_out.y).float().mean()) for site in sites]


@dataclass(frozen=True)
class Drawn:
    """A client's rows, opened in whichever process; where a run begins they are not counted as the engine's memory."""

    client: int

    def __call__(self, world: World, role: Role) -> Holdings:
        return holdings(self.client)


def ours(clients: Clients, rounds: int, open_pool: OpenPool = InlinePool) -> Figures:
    """The engine, in this process, or with a pool of processes."""
    names = [f"site-{client:05d}" for client in range(clients.number)]
    sites = {name: SimSite(Drawn(client)) for client, name in enumerate(names)}
    config = {"rounds": rounds + 1, "batch": BATCH, "rate": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    given = {"method": "fedavg", "config": config, "world": world_given(), "seed": 0, "roster": dict.fromkeys(names, "source")}
    if clients.cohort:  # the last scoring is of as many as the others
        given["sample"] = {"sites": clients.cohort, "last": "sample"}
    closed: list[float] = []

    def watch(event: Event) -> None:
        if event.kind == "closed" and event.data["phase"] in ("join", "score"):
            closed.append(time.perf_counter())

    def play() -> float:
        with closing(Federation(METHODS, sites, open_pool=open_pool)) as federation:
            result = federation.run(federation.start(given), watch)
        if result["status"] != "completed":
            sys.exit(f"The run did not complete: {result['cause']}")
        curve = result["curve"]
        return statistics.mean(point["accuracy"] for point in curve if point["cursor"] == curve[-1]["cursor"])

    warm_up()
    memory, accuracy = grown(play, children=open_pool is not InlinePool)
    took = [after - before for before, after in itertools.pairwise(closed)]
    return {"seconds": statistics.median(took[1:]), "memory_mb": memory, "accuracy": accuracy}


def world_given() -> dict[str, Plain]:
    return {"inputs": list(WORLD.inputs), "classes": WORLD.classes, "model": WORLD.model}


def processes(clients: Clients, rounds: int) -> Figures:
    """The engine with two processes."""
    return ours(clients, rounds, partial(ProcessPool, jobs=2))


COLUMNS: dict[str, Callable[[Clients, int], Figures]] = {"loop": loop, "ours": ours, "processes": processes}


def apart(column: str, clients: Clients, rounds: int) -> Figures:
    """A column, measured in a process of its own."""
    command = [sys.executable, __file__, "--column", column, "--clients", str(clients), "--rounds", str(rounds)]
    return figures(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def figures(printed: str) -> Figures:
    """The last line that a column's process prints."""
    found = json.loads(printed.splitlines()[-1])
    return Figures(seconds=float(found["seconds"]), memory_mb=float(found["memory_mb"]), accuracy=float(found["accuracy"]))


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def peer(venv: Path, name: str, clients: Clients, rounds: int) -> Figures:
    """Another simulator, measured by a program that runs in its own environment; empty where that lacks the simulator."""
    python, own = str(python_of(venv)), os.environ | {"OMP_NUM_THREADS": "1"}
    own.pop("PYTHONPATH", None)  # this environment's packages
    if subprocess.run([python, "-c", LACKS, *PEERS[name]], check=False, env=own).returncode:
        return EMPTY
    program = ROOT / "benchmarks" / "peers" / f"{name}_rounds.py"
    command = [python, str(program), str(clients.number), str(rounds), str(clients.asked)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=own)
    if done.returncode:
        sys.exit(f"{name} failed in {venv}; run {' '.join(command)} to see it. It ended with: {done.stderr[-1000:]}")
    return figures(done.stdout)


def compared(args: Any, clients: Clients) -> Row:
    """A row: all columns, one after the other."""
    measured = {column: apart(column, clients, args.rounds) for column in COLUMNS}
    if args.peers:
        measured |= {name: peer(args.peers, name, clients, args.rounds) for name in PEERS}
    seconds = {name: round(each["seconds"], 4) for name, each in measured.items()}
    beside = 1000 * (seconds["ours"] - 1.25 * seconds["loop"]) / (2 * clients.asked)
    return Row(
        clients=str(clients),
        seconds=seconds,
        memory_mb={name: round(each["memory_mb"], 1) for name, each in measured.items()},
        accuracy={name: round(each["accuracy"], 3) for name, each in measured.items()},
        order_ms=round(beside, 3),
    )


def shown(row: Row) -> list[str]:
    """A row in lines."""
    figures_of = {"s a round": row.seconds, "MB": row.memory_mb, "accuracy": row.accuracy}
    cells = [(name, *("" if math.isnan(each) else each for each in of.values())) for name, of in figures_of.items()]
    lines = table(("clients " + row.clients, *row.seconds), cells)
    return [*lines, f"beside 1.25 x the loop: {row.order_ms} ms an order (at most {ORDER_MS})", ""]


def scaled(args: Any) -> Scale:
    """Ours with more and more clients."""
    sizes = [clients.number for clients in args.clients] if args.quick else SCALE
    measured = {n: apart("ours", Clients(n), 2) for n in sizes}
    points = [(math.log(n), math.log(each["seconds"])) for n, each in measured.items()]
    exponent = float(np.polyfit(*zip(*points, strict=True), 1)[0]) if len(points) > 1 else float("nan")
    seconds = {str(n): round(each["seconds"], 4) for n, each in measured.items()}
    return Scale(seconds, {str(n): round(each["memory_mb"], 1) for n, each in measured.items()}, round(exponent, 3))


def shown_scale(row: Scale) -> list[str]:
    """The growth in lines."""
    lines = table(("clients", *row.seconds), [("s a round", *row.seconds.values()), ("MB", *row.memory_mb.values())])
    return [*lines, f"seconds grow with clients to the power of {row.exponent}"]


if __name__ == "__main__":
    sys.exit(main())
