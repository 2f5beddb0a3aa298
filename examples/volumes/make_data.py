"""Make volumes for four clinics: spheres and cubes in noise, and a scanner of its own at each.

A scanner has a gain, an offset, a blur, noise, and a field that is brighter on one side. `clinic-d/scans.npy` has labels to score
by alone: its training rows have none.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, rotate

SIDE, ROWS = 12, 160
CLASSES = ("sphere", "cube")


class Scanner(NamedTuple):
    gain: float
    offset: float
    blur: float
    noise: float
    field: float  # how much brighter one side is


SCANNERS = {
    "clinic-a": Scanner(1.0, 0.0, 0.4, 0.10, 0.0),
    "clinic-b": Scanner(1.15, 0.05, 0.5, 0.12, 0.1),
    "clinic-c": Scanner(0.9, -0.05, 0.6, 0.10, 0.1),
    "clinic-d": Scanner(0.3, 0.05, 0.5, 0.03, 0.1),
}


def solid(kind: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """A solid (SIDE, SIDE, SIDE) of a size, at a place and turned at random."""
    axis = np.arange(SIDE) - (SIDE - 1) / 2
    z, y, x = np.meshgrid(*(axis - move for move in rng.uniform(-1, 1, 3)), indexing="ij")
    radius = rng.uniform(3.0, 4.2)
    if kind == "sphere":
        return (z**2 + y**2 + x**2 <= radius**2).astype(float)
    half = radius * (np.pi / 6) ** (1 / 3)  # of as large a volume
    cube = (np.maximum(np.maximum(abs(z), abs(y)), abs(x)) <= half).astype(float)
    turned: NDArray[np.float64] = rotate(cube, rng.uniform(-20, 20), axes=(1, 2), reshape=False, order=1)
    return turned


def scanned(volume: NDArray[np.float64], by: Scanner, rng: np.random.Generator) -> NDArray[np.float64]:
    """What a scanner makes of it."""
    slope = np.linspace(-1, 1, SIDE)[:, None, None]
    seen = gaussian_filter(volume, by.blur) * (1 + by.field * slope)
    return by.gain * seen + by.offset + rng.normal(0, by.noise, volume.shape)


def write(folder: Path, by: Scanner, rng: np.random.Generator) -> None:
    """`scans.npy` (n, 1, SIDE, SIDE, SIDE) and its labels."""
    folder.mkdir(parents=True, exist_ok=True)
    y = rng.permutation(np.arange(ROWS) % len(CLASSES))
    x = np.stack([scanned(solid(CLASSES[label], rng), by, rng) for label in y])
    np.save(folder / "scans.npy", x[:, None].astype(np.float32))
    np.save(folder / "scans.y.npy", y)


if __name__ == "__main__":
    for number, (name, scanner) in enumerate(SCANNERS.items()):
        write(Path(name), scanner, np.random.default_rng(number))
