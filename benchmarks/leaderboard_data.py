"""The sets of the leaderboard as data folders: vectors of features that nobody trains, one .npz with x and y for each domain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

Array = NDArray[np.generic]


def convert(source: Path, into: Path, rows: int) -> int:
    """Write a set's domains, at most `rows` of each, drawn by a fixed seed; the number of features. What is there stays."""
    files = sorted(source.glob("*.npz"))
    if len(files) < 3:
        raise SystemExit(f"{source} has {len(files)} .npz files; a comparison needs a file for each of three domains or more")
    into.mkdir(parents=True, exist_ok=True)
    for path in files:
        if not (into / path.name).exists():
            with np.load(path, allow_pickle=False) as file:
                x, y = features(source.name, path.stem, file), file["y"].astype(np.int64)
            chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:rows])
            unfinished = into / f".{path.name}"
            np.savez(unfinished, x=x[chosen], y=y[chosen])
            unfinished.rename(into / path.name)
    with np.load(into / files[0].name, allow_pickle=False) as file:
        return int(file["x"].shape[1])


def features(name: str, domain: str, file: np.lib.npyio.NpzFile) -> NDArray[np.float32]:
    """A domain's rows (n, d), prepared as studies of these sets do, none by what it learns of the rows."""
    x = file["x"].astype(np.float32)
    if name == "office_caltech10_surf":  # shares of a row, of mean 1, so that a learning rate fits all sets
        x *= x.shape[1] / x.sum(1, keepdims=True).clip(1)
    if name == "amazon_review":
        x = np.log1p(x[:, file["top400"]])
    if name == "digits":
        grey = torch.from_numpy(x.mean(3) if x.ndim == 4 else x)[:, None] / (16 if domain == "optdigits" else 255)
        x = functional.interpolate(grey, (16, 16), mode="bilinear", antialias=True).flatten(1).numpy()
    return x.reshape(len(x), -1)
