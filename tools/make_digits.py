"""Cuts the small digit sets that ship with Tideline from larger ones. Same source, same arrays.

    python tools/make_digits.py SOURCE_DIR

SOURCE_DIR holds `mnist.npz` (x, y, train_idx, test_idx, source_id: row in the official test file) and `usps.npz`
(x, y, train_idx, test_idx). The README.md beside the shipped files says where these come from.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHIPPED = Path(__file__).parents[1] / "shared/tideline/learning/datasets/digits_data"
TRAIN, TEST = 2000, 500


def stratified(rows: NDArray[Any], y: NDArray[Any], size: int, seed: int) -> NDArray[Any]:
    """`size` of the rows, sorted, their classes as frequent as among all (largest remainders decide)."""
    rng = np.random.RandomState(seed)
    classes, counts = np.unique(y[rows], return_counts=True)
    exact = counts * size / len(rows)
    take = np.floor(exact).astype(int)
    take[np.argsort(take - exact, kind="stable")[: size - take.sum()]] += 1
    picks = [rng.permutation(rows[y[rows] == c])[:n] for c, n in zip(classes, take, strict=True)]
    return np.sort(np.concatenate(picks))


def cut(raw: Any, train: NDArray[Any], test: NDArray[Any], seed: int) -> dict[str, Any]:
    """The shipped arrays: 2000 rows of `train` and 500 of `test`, in the order of the source."""
    x, y = raw["x"], raw["y"]
    held = stratified(test, y, TEST, seed)
    rows = np.sort(np.concatenate([stratified(train, y, TRAIN, seed), held]))
    test_idx = np.flatnonzero(np.isin(rows, held)).astype(np.int32)
    return {"x": x[rows], "y": y[rows], "test_idx": test_idx, "row": rows.astype(np.int32)}


def make(source: Path) -> dict[str, dict[str, Any]]:
    """All shipped files: name -> arrays."""
    mnist, usps = (np.load(source / f"{name}.npz", allow_pickle=False) for name in ("mnist", "usps"))
    odd = np.flatnonzero(mnist["source_id"] % 2 == 1)
    odd_test = stratified(odd, mnist["y"], len(odd) // 5, seed=1)
    return {
        "mnist": cut(mnist, mnist["train_idx"], mnist["test_idx"], seed=0),
        "mnist_for_coloured": cut(mnist, np.setdiff1d(odd, odd_test), odd_test, seed=1),
        "usps": cut(usps, usps["train_idx"], usps["test_idx"], seed=2),
    }


def main() -> None:
    """Write the files and say how large they became."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("source", type=Path, metavar="SOURCE_DIR")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="where to write (default: into the package)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, arrays in make(given.source).items():
        path = given.out / f"{name}.npz"
        np.savez_compressed(path, **arrays)
        sys.stdout.write(f"{path.name}: {len(arrays['y'])} rows, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
