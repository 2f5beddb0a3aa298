"""Make sequences for four people who wear a sensor of acceleration: standing, walking, running and climbing, 6 seconds each.

Three axes, 20 values a second. Each wears it in another way: turned, at another sensitivity, with another offset, and moves at a
pace of their own. `person-d/steps.npz` has labels to score by alone: its training rows have none.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STEPS, A_SECOND, ROWS = 120, 20, 240
CLASSES = ("standing", "walking", "running", "climbing")
# Of each class: steps a second, and how far each axis swings, in g.
MOVES = {"standing": (0.3, (0.02, 0.02, 0.03)), "walking": (1.8, (0.2, 0.1, 0.3)), "running": (2.7, (0.5, 0.3, 1.0))}
MOVES["climbing"] = (1.3, (0.3, 0.1, 0.45))


class Wearer(NamedTuple):
    turned: float  # radians, about the first axis
    gain: float
    offset: tuple[float, float, float]
    pace: float
    noise: float


WEARERS = {
    "person-a": Wearer(0.0, 1.0, (0.0, 0.0, 0.0), 1.0, 0.05),
    "person-b": Wearer(0.1, 1.05, (0.03, 0.0, 0.03), 1.05, 0.06),
    "person-c": Wearer(-0.1, 0.95, (0.0, 0.03, -0.03), 0.95, 0.05),
    "person-d": Wearer(0.5, 2.2, (0.6, -0.8, 0.4), 1.02, 0.12),
}


def moved(kind: str, by: Wearer, rng: np.random.Generator) -> NDArray[np.float64]:
    """Six seconds (3, STEPS) of a movement, as the sensor has it."""
    rate, swings = MOVES[kind]
    t = np.arange(STEPS) / A_SECOND
    phase = 2 * np.pi * (rate * by.pace * rng.uniform(0.9, 1.1) * t + rng.uniform())
    strength = rng.uniform(0.8, 1.2)
    own = np.stack([a * strength * np.sin(phase * (1 + (i == 1)) + i) for i, a in enumerate(swings)])
    own[2] += 1 + 0.3 * swings[2] * np.abs(np.sin(phase / 2))  # gravity, and the foot that meets the ground
    sin, cos = np.sin(by.turned), np.cos(by.turned)
    seen = np.stack([own[0], cos * own[1] - sin * own[2], sin * own[1] + cos * own[2]])
    return by.gain * seen + np.array(by.offset)[:, None] + rng.normal(0, by.noise, seen.shape)


def write(folder: Path, by: Wearer, rng: np.random.Generator) -> None:
    """`steps.npz`: x (n, 3, STEPS), y (n,)."""
    folder.mkdir(parents=True, exist_ok=True)
    y = rng.permutation(np.arange(ROWS) % len(CLASSES))
    x = np.stack([moved(CLASSES[label], by, rng) for label in y])
    np.savez_compressed(folder / "steps.npz", x=x.astype(np.float32), y=y)


if __name__ == "__main__":
    for number, (name, wearer) in enumerate(WEARERS.items()):
        write(Path(name), wearer, np.random.default_rng(number))
