"""What a hypernetwork costs the coordinator, beside plain averaging: seconds and memory of one round, by number of clients.

    python benchmarks/hypernetwork.py [--clients 3,10,50] [--models inception,resnet18] [--threads 1] [--json]

A round at the coordinator with everything in files: the state is mapped, N clients' replies are mapped, the fold, and the next
state and the next orders written. `fold_s` is the fold alone, `round_s` all of it. Memory is the growth of anonymous memory over
what the process held, beside S, the hypernetwork with two moments and one gradient (of averaging: the model). Each in a process
of its own. ResNet-18 is generated in part: norms, bottleneck and classifier; all else is averaged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.measure import grown
from tideline import nets
from tideline.algorithms import METHODS
from tideline.archive.checks import Rules
from tideline.archive.folder import FolderParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World
from tideline.core.phase import Replies
from tideline.core.run import ClientId, Member, Role
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.compute.turns import game as turns
from tideline.engine.compute.turns.game import Game

PART = ["classifier.*", "*.bottleneck.*", "*.bn?.*", "*.downsample.1.*"]
WORLDS = {
    "inception": World(inputs=(3, 32, 32), classes=7, model="inception"),
    "resnet18": World(inputs=(3, 32, 32), classes=7, model="resnet18"),
}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "hfedf": ("hfedf", {}),
    "hfedf_chunked": ("hfedf", {"heads": "chunked"}),
}
MB = 1e6


def main() -> int:
    """A line a model, method and number of clients."""
    args = arguments()
    if args.one:
        model, row, n = args.one.split(",")
        sys.stdout.write(json.dumps(measured(model, row, int(n), args.threads)))
        return 0
    for model in args.models.split(","):
        for n in map(int, args.clients.split(",")):
            for row in ROWS:
                report = apart(f"{model},{row},{n}", args.threads)
                sys.stdout.write((json.dumps(report) if args.json else "  ".join(f"{k} {v}" for k, v in report.items())) + "\n")
                sys.stdout.flush()
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="3,10,50", help="numbers of clients, by commas")
    parser.add_argument("--models", default="inception,resnet18", help="networks, by commas")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--one", default="", help="one row in this process, such as inception,hfedf,10")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser.parse_args()


def apart(one: str, threads: int) -> Any:
    """One row, measured in a process of its own."""
    command = [sys.executable, __file__, "--one", one, "--threads", str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def game_of(model: str, row: str, n: int, threads: int) -> Game:
    """A run of a row's method with n clients."""
    name, config = ROWS[row]
    method = resolve(METHODS, name)
    generate = {"generate": PART} if name != "fedavg" and model == "resnet18" and row != "hfedf_chunked" else {}
    c = method.configure({"rounds": 3, "evaluate_every": 3, **config, **generate})
    roster = tuple(Member(ClientId(f"client-{i:02d}"), Role.SOURCE, True) for i in range(n))
    return Game(method=Configured(method, c), world=WORLDS[model], roster=roster, seed=0, threads=threads)


def measured(model: str, row: str, n: int, threads: int) -> dict[str, Any]:
    """The second round: the first warms up the libraries."""
    game = game_of(model, row, n, threads)
    with tempfile.TemporaryDirectory() as folder:
        parts = FolderParts(Path(folder), durable=False)
        compute = InlineCompute(parts, METHODS)
        turned = turns.begin(game)
        given = [reply(game, parts, i, turned.orders[m.id]) for i, m in enumerate(game.roster)]
        digest = encode(turned.state, parts).digest
        S = size(turned.state)
        del turned
        digest, _ = round_of(game, compute, parts, digest, 0, given)
        mb, (_, report) = grown(lambda: round_of(game, compute, parts, digest, 1, given))
    return {
        "model": model,
        "method": row,
        "clients": n,
        **report,
        "mb": round(mb, 1),
        "S_mb": round(S / MB, 1),
        "of_S": round(mb * MB / S, 2),
    }


def size(state: Any) -> int:
    """Bytes of the hypernetwork with two moments and one gradient; of averaging, of the model."""
    if hasattr(state, "theta"):
        return 4 * sum(w.nbytes for w in state.theta.values())
    return sum(w.nbytes for w in state.model.values())


def reply(game: Game, parts: FolderParts, i: int, order: Any) -> str:
    """A client's answer: the model moved at random, or by how much."""
    rng = torch.Generator().manual_seed(i)
    moved = {
        name: 0.01 * torch.randn(w.shape, generator=rng) if w.is_floating_point() else torch.zeros_like(w)
        for name, w in order.model.items()
    }
    step = game.plan[0].step
    assert step is not None
    names = set(step.gives.__dataclass_fields__)
    if "delta" in names:
        return encode(step.gives(moved), parts, Rules(like=(order,))).digest
    return encode(step.gives({name: order.model[name] + w for name, w in moved.items()}, 100), parts, Rules(like=(order,))).digest


def round_of(
    game: Game, compute: InlineCompute, parts: FolderParts, state: Any, cursor: int, given: list[str]
) -> tuple[Any, dict[str, float]]:
    """Decode, fold, ask, encode; the next state's digest, and seconds."""
    begun = time.monotonic()
    step = game.plan[cursor].step
    assert step is not None
    template = SimpleNamespace(model=nets.template(game.world))
    load = {
        m.id: (lambda d=d: decode(step.gives, d, parts, Rules(like=(template,)))) for m, d in zip(game.roster, given, strict=True)
    }
    before = decode(game.algorithm.state, state, parts)
    at = time.monotonic()
    turned = turns.close(game, before, cursor, Replies(load, {}))
    folded = time.monotonic()
    made = compute.encoded(game, turned, True)
    return made.state[0][0], {"fold_s": round(folded - at, 2), "round_s": round(time.monotonic() - begun, 2)}


if __name__ == "__main__":
    sys.exit(main())
