"""Each site's data: scikit-learn's 1,797 digits of 8 x 8 pixels, an SQLite table at each hospital. Nothing is downloaded.

`python sites.py` makes the databases, and a folder of new images. The third hospital's scanner has little contrast and much noise, and
only its test rows have labels.
"""

import os
import sqlite3
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import tideline

HERE = Path(__file__).parent
HOSPITALS = {"a": slice(0, 600), "b": slice(600, 1200), "c": slice(1200, 1600)}
NEW = slice(1600, 1797)


def scanner(x: np.ndarray, hospital: str) -> np.ndarray:
    """What a hospital's scanner makes of pixels x (n, 8, 8) in 0 to 1."""
    noise = np.random.default_rng(0).normal(0, 0.08, x.shape)
    return (0.5 + 0.35 * x + noise).clip(0, 1).astype(np.float32) if hospital == "c" else x


class Table:
    """The rows of a database: a dataset is anything with a length and rows by number."""

    def __init__(self, file: Path, use: str) -> None:
        self.file = file
        with sqlite3.connect(file) as database:
            self.ids = [row[0] for row in database.execute("SELECT id FROM scans WHERE use = ? ORDER BY id", (use,))]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int):
        with sqlite3.connect(self.file) as database:
            pixels, label = database.execute("SELECT pixels, label FROM scans WHERE id = ?", (self.ids[index],)).fetchone()
        return np.frombuffer(pixels, np.float32).reshape(1, 8, 8).copy(), label


def site() -> tideline.Site:
    """What `--data python:sites:site` names: the hospital that the variable HOSPITAL says."""
    file = HERE / f"hospital-{os.environ['HOSPITAL']}.db"
    return tideline.Site(train=Table(file, "train"), test=Table(file, "test"))


def write() -> None:
    """Make the databases, and new images of hospital c with their labels in a folder as agents take it."""
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32), digits.target
    for hospital, rows in HOSPITALS.items():
        file = HERE / f"hospital-{hospital}.db"
        file.unlink(missing_ok=True)
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE scans (id INTEGER PRIMARY KEY, use TEXT, pixels BLOB, label INTEGER)")
            for i, (image, label) in enumerate(zip(scanner(x[rows], hospital), y[rows], strict=True)):
                use = "test" if i % 4 == 0 else "train"
                known = None if hospital == "c" and use == "train" else int(label)
                database.execute("INSERT INTO scans VALUES (?, ?, ?, ?)", (i, use, image.tobytes(), known))
    folder = HERE / "new-scans"
    folder.mkdir(exist_ok=True)
    np.savez(folder / "c.npz", x=scanner(x[NEW], "c"), y=y[NEW])


if __name__ == "__main__":
    write()
