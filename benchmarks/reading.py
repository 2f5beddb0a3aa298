"""What it costs to read a site's data, beside the shortest loop that reads the same files into an array.

    python benchmarks/reading.py              # 10 000 small PNG files, 1 GB of .npz, tables of 20 000 000 cells
    python benchmarks/reading.py --quick

Every figure is of a process of its own, the faster of two; memory is anonymous memory over what the process held before.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import PeakMemory
from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import inspect

SIDE, FEATURES, CELLS = 32, 1000, 20
TRIES = 2
PYTHON = "csv-python"  # the same table without pyarrow


@dataclass(frozen=True)
class Row:
    """One kind of data: seconds and MB (10^6 bytes)."""

    kind: str
    rows: int
    mb: float
    read_s: float
    plain_s: float
    ratio: float
    result_mb: float
    read_over: float
    plain_over: float
    check_s: float
    check_over: float


def main() -> int:
    """Measure and tell."""
    args = arguments()
    if args.child:
        if Path(args.child[1]).name == PYTHON:
            sys.modules["pyarrow.csv"] = None  # type: ignore[assignment]
        print(json.dumps(CHILDREN[args.child[0]](Path(args.child[1]))))
        return 0
    with tempfile.TemporaryDirectory(prefix="tideline-reading-", dir=args.folder) as home:
        for kind, (make, _) in KINDS.items():
            if not args.only or kind in args.only:
                show(measured(kind, make(Path(home) / kind, args)), args.json)
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000, help="how many PNG files")
    parser.add_argument("--gb", type=float, default=1.0, help="size of the .npz file, in 10^9 bytes")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the tables, of 20 features each")
    parser.add_argument("--only", action="append", default=[], choices=KINDS, help="one kind; repeatable")
    parser.add_argument("--folder", default=None, help="where the files are made [default: the system's temporary folder]")
    parser.add_argument("--quick", action="store_true", help="a small form")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.add_argument("-child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.images, args.gb, args.rows = 200, 0.01, 5000
    return args


def measured(kind: str, folder: Path) -> Row:
    """One row: three children, each the faster of its tries."""
    read, plain, check = (best(what, folder) for what in ("read", f"plain-{kind}", "check"))
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6
    ratio = round(read["s"] / plain["s"], 2)
    times = (round(read["s"], 2), round(plain["s"], 2), ratio)
    over = (round(read["over"]), round(plain["over"]), round(check["s"], 2), round(check["over"]))
    return Row(kind, read["rows"], round(size, 1), *times, round(read["mb"], 1), *over)


def best(what: str, folder: Path) -> dict[str, Any]:
    """The faster of some children."""
    command = [sys.executable, __file__, "-child", what, str(folder)]
    found = [json.loads(subprocess.run(command, capture_output=True, check=True, env=os.environ).stdout) for _ in range(TRIES)]
    return min(found, key=lambda each: float(each["s"]))


def show(row: Row, as_json: bool) -> None:
    """A row, for programs or for people."""
    if as_json:
        print(json.dumps(asdict(row)), flush=True)
        return
    print(", ".join(f"{key} {value}" for key, value in asdict(row).items()), flush=True)


def make_images(folder: Path, args: Any) -> Path:
    """PNG files of 32 x 32 in colour, ten classes; smooth, so that they compress as photographs do."""
    rng = np.random.default_rng(0)
    for i in range(args.images):
        path = folder / "ward" / str(i % 10) / f"{i:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)).resize((SIDE, SIDE)).save(path)
    return folder


def make_npz(folder: Path, args: Any) -> Path:
    """Features of float32."""
    folder.mkdir()
    n = max(int(args.gb * 1e9 / 4 / FEATURES), 2)
    np.savez(folder / "ward.npz", x=np.random.default_rng(0).random((n, FEATURES), np.float32), y=np.arange(n) % 10)
    return folder


def make_csv(folder: Path, args: Any) -> Path:
    """Numbers of six digits."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "ward.csv").open("w") as file:
        file.write(",".join([f"f{i}" for i in range(CELLS)] + ["y"]) + "\n")
        for start in range(0, args.rows, 1000):
            x = rng.random((min(1000, args.rows - start), CELLS))
            file.writelines(",".join(f"{v:.6f}" for v in row) + f",{i % 10}\n" for i, row in enumerate(x.tolist(), start))
    return folder


def make_parquet(folder: Path, args: Any) -> Path:
    """The same numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    x = np.random.default_rng(0).random((args.rows, CELLS)).round(6)
    columns = {f"f{i}": x[:, i] for i in range(CELLS)} | {"y": np.arange(args.rows) % 10}
    pq.write_table(pa.table(columns), folder / "ward.parquet", row_group_size=100_000)
    return folder


def plain_images(folder: Path) -> np.ndarray:
    """A loop over sorted files into one array."""
    files = sorted(folder.rglob("*.png"))
    x = np.empty((len(files), SIDE, SIDE, 3), np.uint8)
    for i, file in enumerate(files):
        with Image.open(file) as image:
            x[i] = np.asarray(image)
    return x


def plain_npz(folder: Path) -> np.ndarray:
    """np.load."""
    x: np.ndarray = np.load(folder / "ward.npz", allow_pickle=False)["x"]
    return x


def plain_csv(folder: Path) -> np.ndarray:
    """np.loadtxt."""
    return np.loadtxt(folder / "ward.csv", np.float32, delimiter=",", skiprows=1)


def plain_parquet(folder: Path) -> np.ndarray:
    """pyarrow's table, its columns side by side."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "ward.parquet", use_threads=False)
    return np.stack([table.column(i).to_numpy() for i in range(CELLS)], axis=1).astype(np.float32)


KINDS: dict[str, tuple[Callable[[Path, Any], Path], Callable[[Path], np.ndarray]]] = {
    "images": (make_images, plain_images),
    "npz": (make_npz, plain_npz),
    "csv": (make_csv, plain_csv),
    PYTHON: (make_csv, plain_csv),
    "parquet": (make_parquet, plain_parquet),
}


def world_of(folder: Path) -> World:
    """The world of what was made."""
    inputs = {"images": (3, SIDE, SIDE), "npz": (FEATURES,)}.get(folder.name, (CELLS,))
    return World(inputs=inputs, classes=10)


def timed(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Seconds and memory of some work in this process, and its result."""
    torch.set_num_threads(1)  # as in a trainer
    with PeakMemory({"own": os.getpid()}, 0.01) as memory:
        idle, began = memory.now()["own"], time.perf_counter()
        made = work()
        seconds = time.perf_counter() - began
        most = max(memory.now()["own"], memory.peaks["own"])
    return {"s": seconds, "over": most - idle}, made


def read(folder: Path) -> dict[str, Any]:
    """As an agent does."""
    figures, holdings = timed(lambda: read_folder(folder, world_of(folder), Role.SOURCE))
    sides = (holdings.train, holdings.held_out)
    return figures | {"rows": sum(map(len, sides)), "mb": sum(4 * len(side.x) * math.prod(side.x.shape) for side in sides) / 1e6}


def check(folder: Path) -> dict[str, Any]:
    """As `tideline data check` does."""
    figures, report = timed(lambda: inspect(folder, world_of(folder), Role.SOURCE))
    assert report.usable
    return figures


CHILDREN: dict[str, Callable[[Path], dict[str, Any]]] = {
    "read": read,
    "check": check,
    **{f"plain-{kind}": lambda folder, plain=plain: timed(lambda: plain(folder))[0] for kind, (_, plain) in KINDS.items()},
}


if __name__ == "__main__":
    sys.exit(main())
