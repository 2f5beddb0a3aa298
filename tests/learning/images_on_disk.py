"""Folders of images for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, height: int = 8, width: int = 8, colours: int = 3) -> np.ndarray:
    """Pixels (height, width, 3), or (height, width) for one colour, all different by seed."""
    shape = (height, width, colours) if colours > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def save(path: Path, x: np.ndarray) -> Path:
    """One image file, of the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(x).save(path)
    return path


def save_classes(domain: Path, counts: Mapping[str, int], side: int = 8) -> Path:
    """A folder for each class, with so many colour images each."""
    for i, (name, count) in enumerate(counts.items()):
        for k in range(count):
            save(domain / name / f"{k:02}.png", picture(100 * i + k, side, side))
    return domain
