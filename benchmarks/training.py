"""How fast a site trains, beside a hand-written loop of torch with its DataLoader over the same images.

    python benchmarks/training.py             # a small network on 64 x 64 images, from memory and from PNG files
    python benchmarks/training.py --quick

Loops take turns in one process. A row has the median images/s of `fit` and of the loop, and the median ratio of two epochs that
follow each other: other work on the machine slows both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tideline.core.asked.world import World
from tideline.core.rows import Augment, Colour, Flip, MemoryRows, Rows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.formats.folder import read_folder
from tideline.learning.loading.augmented import Augmented
from tideline.learning.loading.workers import reading_ahead

SIDE, CLASSES, BATCH, RATE, WHITE = 64, 10, 32, 0.01, 255.0
WORKERS = 0, 1, 2, 4
SHAPE = 3, SIDE, SIDE


@dataclass(frozen=True)
class Row:
    """One way to hold images: images/s of `fit`, of the loop with as many workers, and the first by the second."""

    images: str
    workers: int
    fit: float
    loop: float
    ratio: float


Epoch = Callable[[], None]


def main() -> int:
    """Measure and tell."""
    args = arguments()
    torch.set_num_threads(args.threads)
    for row in measured(args.images, args.tries, args.files):
        print(json.dumps(asdict(row)) if args.json else told(row), flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000, help="number of images")
    parser.add_argument("--tries", type=int, default=9, help="epochs of each, of which the median counts")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--files", action=argparse.BooleanOptionalAction, default=True, help="also images in files")
    parser.add_argument("--quick", action="store_true", help="a small form: images in memory")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    args = parser.parse_args()
    if args.quick:
        args.images, args.tries, args.files = 64, 1, False
    return args


def told(row: Row) -> str:
    return f"{row.images:>9} {row.workers:>2} workers  fit {row.fit:8.0f}/s  loop {row.loop:8.0f}/s  ratio {row.ratio:.2f}"


def measured(n: int, tries: int, files: bool) -> Iterator[Row]:
    """Images in memory; then in files, by threads and by processes; then those in memory, augmented by threads."""
    x, y = pictures(n)
    yield compared("memory", 0, x, y, MemoryRows(x.float() / WHITE), Held(x, y), tries)
    if not files:
        return
    with tempfile.TemporaryDirectory() as folder:
        place = saved(Path(folder), x, y)
        data = read_folder(Path(folder), World(inputs=SHAPE, classes=CLASSES), Role.SOURCE, held=0).view(View.TRAIN, Role.SOURCE)
        assert data.y is not None
        listed = Files(place)
        for workers in WORKERS:
            yield compared("files", workers, x, data.y, data.x, listed, tries)
    by = Augment(flip=Flip.HORIZONTAL, crop=(0.6, 1.0), colour=Colour(0.2, 0.2, 0.2, 0.05))
    for workers in WORKERS:
        yield compared("augmented", workers, x, y, Augmented(MemoryRows(x.float() / WHITE), by), Changed(x, y), tries)


def pictures(n: int) -> tuple[Tensor, Tensor]:
    """Bytes (n, 3, SIDE, SIDE), and labels."""
    rng = Generator().manual_seed(0)
    rough = torch.rand(n, 3, 8, 8, generator=rng)
    x = nn.functional.interpolate(rough, SIDE, mode="bilinear")
    return (WHITE * x).to(torch.uint8), torch.arange(n) % CLASSES


def saved(folder: Path, x: Tensor, y: Tensor) -> list[tuple[Path, int]]:
    """The images as PNG files, a folder for each class."""
    places = []
    for i, (image, label) in enumerate(zip(x, y.tolist(), strict=True)):
        path = folder / "all" / str(label) / f"{i:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(path)
        places.append((path, label))
    return places


class Held(TorchDataset[tuple[Tensor, int]]):
    """Bytes in memory, as most write it."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y.tolist()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i].float() / WHITE, self.y[i]


class Changed(Held):
    """The same, augmented by torchvision's transforms."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        from torchvision.transforms import v2

        super().__init__(x, y)
        flip, crop = v2.RandomHorizontalFlip(), v2.RandomResizedCrop(SIDE, (0.6, 1.0))
        self.change = v2.Compose([flip, crop, v2.ColorJitter(0.2, 0.2, 0.2, 0.05)])

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image, label = super().__getitem__(i)
        return self.change(image), label


class Files(TorchDataset[tuple[Tensor, int]]):
    """Image files."""

    def __init__(self, places: list[tuple[Path, int]]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        path, label = self.places[i]
        with Image.open(path) as image:
            return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / WHITE, label


def compared(
    images: str, workers: int, x: Tensor, y: Tensor, rows: Rows, dataset: TorchDataset[tuple[Tensor, int]], tries: int
) -> Row:
    """Both loops in turns, each with a network of its own."""
    n = len(rows)
    ours, loop = ours_over(rows, y[:n], workers), loop_over(dataset, workers)
    ours(), loop()
    both = [(n / seconds(ours), len(x) / seconds(loop)) for _ in range(tries)]
    fits, loops = zip(*both, strict=True)
    return Row(images, workers, median(fits), median(loops), median(a / b for a, b in both))


def seconds(epoch: Epoch) -> float:
    began = time.perf_counter()
    epoch()
    return time.perf_counter() - began


def network() -> nn.Module:
    torch.manual_seed(0)
    conv = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))


def ours_over(rows: Rows, y: Tensor, workers: int) -> Epoch:
    """An epoch of `fit`, as a step runs it."""
    net, rng = network(), Generator().manual_seed(1)
    by = torch.optim.SGD(net.parameters(), RATE, 0.9)
    data = Data(rows, y, torch.zeros(len(rows), dtype=torch.int64), ("all",))

    def epoch() -> None:
        with reading_ahead(workers):
            fit(net, data, cross_entropy, by, epochs=1, batch=BATCH, rng=rng)

    return epoch


def loop_over(dataset: TorchDataset[tuple[Tensor, int]], workers: int) -> Epoch:
    """An epoch as most write it by hand. Its processes stay from one epoch to the next."""
    net = network()
    by = torch.optim.SGD(net.parameters(), RATE, 0.9)
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)

    def epoch() -> None:
        net.train()
        total = 0.0
        for x, y in loader:
            by.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            by.step()
            total += loss.item()

    return epoch


if __name__ == "__main__":
    sys.exit(main())
