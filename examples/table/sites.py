"""Tables of four clinics, made up: ages, measurements, a sex, a ward, an admission; some cells are missing.

    python sites.py

Which class a patient is of depends on what is measured in the same way everywhere. But clinic D, which has no labels to train
with, has another apparatus and other patients: its pressures and lab values have an offset and a scale of their own, its patients
are older, and it measures less.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HEAD = ["age", "sex", "ward", "admission", "pressure", "lab", "pulse", "outcome"]
WARDS = ["surgery", "medicine", "intensive", "neurology"]
ADMISSIONS = ["planned", "urgent", "transfer"]


@dataclass(frozen=True)
class Clinic:
    """What is otherwise at one place: ages, offsets and scales of what it measures, and the share of cells that are missing."""

    age: float = 55.0
    offset: float = 0.0
    scale: float = 1.0
    missing: float = 0.05
    rows: int = 600


CLINICS = {
    "clinic-a": Clinic(),
    "clinic-b": Clinic(age=50.0, missing=0.1),
    "clinic-c": Clinic(age=60.0, offset=0.3),
    "clinic-d": Clinic(age=68.0, offset=2.2, scale=1.8, missing=0.2, rows=1200),
}


def table(clinic: Clinic, seed: int) -> list[list[str]]:
    """Rows as a clinic writes them."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(clinic.rows):
        ill = int(rng.random() < 0.45)
        pressure, lab, pulse = rng.normal(size=3) + ill * np.array([1.3, 1.5, 0.4])
        ward = rng.choice(WARDS, p=[0.2, 0.3, 0.4, 0.1] if ill else [0.4, 0.35, 0.1, 0.15])
        admission = rng.choice(ADMISSIONS, p=[0.2, 0.6, 0.2] if ill else [0.6, 0.3, 0.1])
        measured = clinic.offset + clinic.scale * np.array([pressure, lab])
        cells = [
            f"{max(18.0, rng.normal(clinic.age + 4 * ill, 12)):.0f}",
            rng.choice(["f", "m"]),
            ward,
            admission,
            f"{120 + 15 * measured[0]:.0f}",
            f"{4 + measured[1]:.2f}",
            f"{75 + 9 * pulse:.0f}",
        ]
        gaps = rng.random(len(cells)) < np.array([0.0, 0.02, 0.0, 0.05, *[clinic.missing] * 3])
        rows.append([*("" if gap else str(cell) for cell, gap in zip(cells, gaps, strict=True)), ["well", "ill"][ill]])
    return rows


def write(folder: Path, rows: list[list[str]], head: list[str]) -> None:
    """A data folder with one table, whose column of labels is `outcome`."""
    folder.mkdir(exist_ok=True)
    with (folder / "patients.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    (folder / "transforms.toml").write_text('[patients]\nlabel = "outcome"\n')


if __name__ == "__main__":
    for seed, (name, clinic) in enumerate(CLINICS.items()):
        write(Path(name), table(clinic, seed), HEAD)
    # New patients of clinic D, from another export: the same columns in another order, and one more.
    new = [["2026-03", *reversed(row)] for row in table(CLINICS["clinic-d"], 99)]
    write(Path("new-patients"), new, ["month", *reversed(HEAD)])
