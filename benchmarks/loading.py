"""What it costs to open a large image set and to load it, beside the shortest loops that do the same.

    python benchmarks/loading.py                  # 100 000 JPEG files of 224 x 224: 2 GB, and a cache of 15 GB
    python benchmarks/loading.py --images 10000
    python benchmarks/loading.py --quick          # 2 000

The plain loops are what a person would write: a pool of threads that decodes into a mapped array, and torch's DataLoader over
that array. Each figure is of a process of its own; memory is anonymous and shared memory of that process and all that it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.measure import PeakMemory
from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.learning.cache.folder import Folder
from tideline.learning.cache.opening import RowsCache
from tideline.learning.formats.folder import read_folder
from tideline_agent.trainer import files_of

SIDE, CLASSES, BATCH = 224, 10, 64
WORLD = World(inputs=(3, SIDE, SIDE), classes=CLASSES)
FIRST_BAR, START_BAR, LOAD_BAR, MEMORY_BAR = 1.3, 3.0, 0.9, 1500.0


Told: TypeAlias = dict[str, float]  # what a child measured, by name


@dataclass(frozen=True)
class Row:
    """seconds; batches a second; MB (10^6 bytes)."""

    images: int
    first_s: float
    plain_first_s: float
    first_ratio: float
    start_s: float
    look_s: float
    batches: float
    plain_batches: float
    load_ratio: float
    first_mb: float
    load_mb: float


def main() -> int:
    """Measure and tell."""
    args = arguments()
    if args.child:
        told = CHILDREN[args.child[0]](Path(args.child[1]), args)
        print(json.dumps(told))
        return 0
    home = Path(tempfile.mkdtemp(prefix="tideline-loading-", dir=args.folder))
    try:
        write_images(home / "data" / "camera", args.images)
        found = measured(home, args)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(json.dumps(asdict(found)) if args.json else text_of(found))
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=200, help="batches that are loaded, of 64 images")
    parser.add_argument("--folder", default=None, help="where the files are made [default: the system's temporary folder]")
    parser.add_argument("--quick", action="store_true", help="a small form")
    parser.add_argument("--json", action="store_true", help="a JSON object")
    parser.add_argument("-child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.images, args.batches = min(args.images, 2000), min(args.batches, 50)
    return args


def write_images(domain: Path, n: int) -> None:
    """Smooth pictures with some noise: about 20 kB each, like photographs of this size."""
    rng = np.random.default_rng(0)
    for c in range(CLASSES):
        (domain / str(c)).mkdir(parents=True)
    waves = rng.normal(size=(64, 8, 8, 3))

    def write(i: int) -> None:
        small = (waves[i % 64] * 40 + 128 + i % 17).clip(0, 255).astype(np.uint8)
        large = np.asarray(Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.int16)
        noise = np.random.default_rng(i).integers(-12, 13, large.shape, np.int16)
        Image.fromarray((large + noise).clip(0, 255).astype(np.uint8)).save(domain / str(i % CLASSES) / f"{i:06}.jpg", quality=85)

    with ThreadPoolExecutor(cores()) as threads:
        list(threads.map(write, range(n), chunksize=64))


def cores() -> int:
    return len(os.sched_getaffinity(0))


def measured(home: Path, args: argparse.Namespace) -> Row:
    """Every figure, ours and the plain loop's in turn; of loading the better of two."""
    child(home, "warm", args)
    plain_first, ours_first = child(home, "plain_first", args), child(home, "first", args)
    start = child(home, "start", args)
    loads = [(child(home, "plain_load", args), child(home, "load", args)) for _ in range(2)]
    plain, ours = (max(each[i]["batches"] for each in loads) for i in range(2))
    return Row(
        images=args.images,
        first_s=ours_first["s"],
        plain_first_s=plain_first["s"],
        first_ratio=round(ours_first["s"] / plain_first["s"], 3),
        start_s=start["s"],
        look_s=start["look_s"],
        batches=ours,
        plain_batches=plain,
        load_ratio=round(ours / plain, 3),
        first_mb=ours_first["mb"],
        load_mb=max(each[1]["mb"] for each in loads),
    )


def child(home: Path, name: str, args: argparse.Namespace) -> Told:
    """What a process of its own tells, with the peak of its memory and that of its children."""
    command = [sys.executable, __file__, "-child", name, str(home), "--images", str(args.images), "--batches", str(args.batches)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with PeakMemory({"me": process.pid}, 0.1, later=True) as memory:
        out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} failed")
    told: Told = json.loads(out.splitlines()[-1])
    return told | {"mb": round(memory.peaks["me"])}


def opened(home: Path) -> Any:
    return read_folder(home / "data", WORLD, Role.SOURCE, held=0, cache=RowsCache(Folder(home / "rows")))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    made = work()
    return round(time.perf_counter() - began, 3), made


def warm(home: Path, args: argparse.Namespace) -> Told:
    """Every file is read once, so that both loops find them in the kernel's memory, or neither does."""
    for file in (home / "data").rglob("*.jpg"):
        file.read_bytes()
    return {}


def first(home: Path, args: argparse.Namespace) -> Told:
    torch.set_num_threads(1)
    return {"s": timed(lambda: opened(home))[0]}


def plain_first(home: Path, args: argparse.Namespace) -> Told:
    """Decode and write the same bytes: a thread for each core, into a mapped file, which is on the disk in the end."""

    def work() -> None:
        files = sorted(str(file) for file in (home / "data").rglob("*.jpg"))
        into = np.memmap(home / "plain.bin", np.uint8, "w+", shape=(len(files), 3, SIDE, SIDE))

        def one(i: int) -> None:
            with Image.open(files[i]) as image:
                into[i] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)

        with ThreadPoolExecutor(cores()) as threads:
            list(threads.map(one, range(len(files))))
        into.flush()

    return {"s": timed(work)[0]}


def start(home: Path, args: argparse.Namespace) -> Told:
    """A later start: the look at all files that each step takes, and the opening."""
    torch.set_num_threads(1)
    look, _ = timed(lambda: files_of(home / "data"))
    return {"s": timed(lambda: opened(home))[0] + look, "look_s": look}


def load(home: Path, args: argparse.Namespace) -> Told:
    """Batches of shuffled rows, as a step asks for them."""
    torch.set_num_threads(1)
    rows = opened(home).train.x
    return {"batches": rate(rows.batch(rows_of) for rows_of in orders(len(rows), args.batches))}


def plain_load(home: Path, args: argparse.Namespace) -> Told:
    """The same by torch's DataLoader over the mapped array, without workers."""
    torch.set_num_threads(1)
    array = np.memmap(home / "plain.bin", np.uint8, "r", shape=(args.images, 3, SIDE, SIDE))

    class Mapped(torch.utils.data.Dataset[Tensor]):
        def __len__(self) -> int:
            return len(array)

        def __getitem__(self, row: int) -> Tensor:
            return torch.from_numpy(array[row].copy()).float().div_(255)

    drawn = orders(len(array), args.batches)
    return {"batches": rate(iter(torch.utils.data.DataLoader(Mapped(), batch_sampler=[each.tolist() for each in drawn])))}


def bare_load(home: Path, args: argparse.Namespace) -> Told:
    """The same by indexing the mapped array, a batch in one piece: nothing is checked, and nothing could be augmented."""
    torch.set_num_threads(1)
    array = np.memmap(home / "plain.bin", np.uint8, "r", shape=(args.images, 3, SIDE, SIDE))
    drawn = orders(len(array), args.batches)
    return {"batches": rate(torch.from_numpy(array[each.numpy()]).float().div_(255) for each in drawn)}


def orders(n: int, batches: int) -> list[Tensor]:
    """Numbers of shuffled rows, the same for both."""
    drawn = torch.Generator().manual_seed(1)
    return [torch.randint(n, (BATCH,), generator=drawn) for _ in range(batches)]


def rate(batches: Iterator[Tensor]) -> float:
    """Batches a second, without the first."""
    next(batches)
    began, n = time.perf_counter(), 0
    for batch in batches:
        assert batch.shape == (BATCH, 3, SIDE, SIDE) and batch.dtype == torch.float32
        n += 1
    return round(n / (time.perf_counter() - began), 2)


def text_of(found: Row) -> str:
    """The figures beside their bars."""
    lines = [
        (
            "first opening / plain loop",
            f"{found.first_s:.1f} s / {found.plain_first_s:.1f} s = {found.first_ratio:.2f}",
            FIRST_BAR,
        ),
        ("later start", f"{found.start_s:.2f} s, of which {found.look_s:.2f} s look at the files", START_BAR),
        ("batches a second / plain loop", f"{found.batches:.1f} / {found.plain_batches:.1f} = {found.load_ratio:.2f}", LOAD_BAR),
        ("peak memory, first opening", f"{found.first_mb:.0f} MB", MEMORY_BAR),
        ("peak memory, loading", f"{found.load_mb:.0f} MB", MEMORY_BAR),
    ]
    return "\n".join(f"{found.images:>7} images  {name:<30} {said:<50} bar {bar:g}" for name, said, bar in lines)


CHILDREN: dict[str, Callable[[Path, Any], dict[str, Any]]] = {
    "warm": warm,
    "first": first,
    "plain_first": plain_first,
    "start": start,
    "load": load,
    "plain_load": plain_load,
    "bare_load": bare_load,
}

if __name__ == "__main__":
    raise SystemExit(main())
