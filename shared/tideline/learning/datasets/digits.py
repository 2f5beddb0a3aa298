"""Four domains of real handwritten digits, small enough to ship, and data folders made of them.

    mnist      28 x 28 grey    2500 rows, white on black
    usps       16 x 16 grey    2500 rows, scanned envelopes, with their own class frequencies
    optdigits   8 x 8  grey    1797 rows, values 0..16, by way of scikit-learn
    coloured   28 x 28 RGB     2500 rows, other MNIST digits laid over patches of photographs

No handwritten digit is in both mnist and coloured. `digits_data/README.md` says where all this comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest
from tideline.learning.formats.holdings import Rows, legacy, split_rows
from tideline.learning.partition.deals import at_random

DOMAINS = ("mnist", "usps", "optdigits", "coloured")
CLASSES = 10
# Fixed, so that sites which each write their own part get disjoint ones.
DEAL_SEED = 0
BACKGROUND_SEED = 0


@dataclass(frozen=True)
class Raw:
    """One domain. x (n, H, W) or (n, H, W, 3) uint8; y (n,) uint8; test_idx (m,) int32; scale: what means 1.0, or 255."""

    x: NDArray[np.uint8]
    y: NDArray[np.uint8]
    test_idx: NDArray[np.int32]
    scale: float | None

    def half_turned(self) -> Raw:
        """As a camera that hangs upside down sees it."""
        return replace(self, x=np.ascontiguousarray(self.x[:, ::-1, ::-1]))


def load(domain: str) -> Raw:
    """The domain's rows, the same bytes every time. Raises ConfigRefused for a name that is not in DOMAINS."""
    if domain not in LOADERS:
        todo = f"Use one of: {', '.join(DOMAINS)}{nearest(domain, list(DOMAINS))}"
        raise ConfigRefused(f"There is no digits domain {domain}", todo, path="domain")
    return LOADERS[domain]()


def write_site(
    folder: Path, domain: str, part: int = 0, parts: int = 1, rows: int | None = None, labels: bool = True
) -> dict[str, int]:
    """Write `folder`/`domain`.npz, for `read_folder`; returns how many rows are for training and how many are held out.

    part, parts  this site gets part number `part` (from 0) of `parts` disjoint ones, dealt at random
    rows         keep about this many of them, training and held out in proportion; None keeps all
    labels       False leaves y out altogether. Not needed for a target, which drops its training labels on reading
                 and can be scored only if y is there

    Raises ConfigRefused for an unknown domain, a part that does not exist, or too few rows to split.
    """
    raw = load(domain)
    train, held = deal(raw, part, parts, rows)
    return write_rows(folder, domain, raw, train, held, labels)


def write_rows(folder: Path, domain: str, raw: Raw, train: Rows, held: Rows, labels: bool = True) -> dict[str, int]:
    """Write `folder`/`domain`.npz of these rows; how many are for training and how many are held out."""
    chosen = np.sort(np.concatenate([train, held]))
    arrays: dict[str, Any] = {"x": raw.x[chosen], "test_idx": np.flatnonzero(np.isin(chosen, held)).astype(np.int32)}
    if labels:
        arrays["y"] = raw.y[chosen]
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{domain}.npz", **arrays)
    if raw.scale is not None:
        transforms = folder / "transforms.toml"
        text = transforms.read_text(encoding="utf-8") if transforms.exists() else ""
        if f"[{domain}]" not in text:
            transforms.write_text(f"{text}[{domain}]\nscale = {raw.scale:g}\n", encoding="utf-8")
    return {"samples": len(train), "held_out": len(held)}


def deal(raw: Raw, part: int, parts: int, rows: int | None) -> tuple[Rows, Rows]:
    """The rows (train, held out) of one part, in shuffled order, thinned to about `rows` in all."""
    if not 0 <= part < parts:
        raise ConfigRefused(f"There is no part {part} of {parts}", "Count parts from 0", path="part")
    if len(raw.test_idx) < parts:
        raise ConfigRefused(f"{len(raw.y)} rows cannot be dealt in {parts} parts", "Ask for fewer parts", path="parts")
    held = raw.test_idx[at_random(len(raw.test_idx), parts, DEAL_SEED)[part]].astype(np.int64)
    others = np.setdiff1d(np.arange(len(raw.y)), raw.test_idx)
    train = others[at_random(len(others), parts, DEAL_SEED)[part]]
    if rows is None or rows >= len(train) + len(held):
        return train, held
    if rows < 2:
        raise ConfigRefused(f"rows is {rows}; a site needs at least 2", "Ask for more rows", path="rows")
    n_held = min(max(round(rows * len(held) / (len(train) + len(held))), 1), rows - 1)
    return train[: rows - n_held], held[:n_held]


def shipped(name: str) -> Raw:
    place = resources.files(__package__ or "") / "digits_data" / f"{name}.npz"
    with place.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return Raw(arrays["x"], arrays["y"], arrays["test_idx"], None)


def optdigits() -> Raw:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    _, held = split_rows(len(bunch.target))
    return Raw(bunch.images.astype(np.uint8), bunch.target.astype(np.uint8), held.astype(np.int32), 16.0)


def coloured() -> Raw:
    """|photograph - digit| in every channel: the recipe of MNIST-M (Ganin et al., JMLR 2016) with other photographs."""
    grey = shipped("mnist_for_coloured")
    patches = photo_patches(len(grey.x), BACKGROUND_SEED).astype(np.int16)
    x = np.abs(patches - grey.x[..., None]).astype(np.uint8)
    return Raw(x, grey.y, grey.test_idx, None)


def photo_patches(n: int, seed: int, size: int = 28) -> NDArray[np.uint8]:
    """Patches (n, size, size, 3) from random places of scikit-learn's two sample photographs."""
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    rng = legacy(seed)
    patches = np.empty((n, size, size, 3), dtype=np.uint8)
    for patch in patches:
        photo = photos[rng.randint(len(photos))]
        top, left = (rng.randint(side - size + 1) for side in photo.shape[:2])
        patch[:] = photo[top : top + size, left : left + size]
    return patches


LOADERS: Mapping[str, Callable[[], Raw]] = {
    "mnist": lambda: shipped("mnist"),
    "usps": lambda: shipped("usps"),
    "optdigits": optdigits,
    "coloured": coloured,
}
