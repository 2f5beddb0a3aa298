"""What plans of links are asked with in tests."""

from __future__ import annotations

import copy
from typing import Any

NAMES = ("anna", "bert", "carl", "dora")
MEASURED: dict[str, Any] = {
    "devices": [
        {"name": "anna", "error": 0.1, "count": 1800, "labelled": 1600},
        {"name": "bert", "error": 0.3, "count": 1500, "labelled": 1300},
        {"name": "carl", "error": 1.0, "count": 1000, "labelled": 0},
        {"name": "dora", "error": 1.0, "count": 900, "labelled": 0},
    ],
    "d": [[0, 0.4, 0.9, 0.2], [0.4, 0, 0.1, 1.0], [0.9, 0.1, 0, 0.5], [0.2, 1.0, 0.5, 0]],
    "K": [[None, 3.0, 3.5, 4.0], [3.0, None, 4.5, 5.0], [3.5, 4.5, None, 2.0], [4.0, 5.0, 2.0, None]],
}
BOUNDS: dict[str, Any] = {
    "devices": [{"name": "a", "S": 1.0}, {"name": "b", "S": 2.0}, {"name": "c", "S": 3.0}],
    "T": [[None, 10.0, 20.0], [10.0, None, 8.0], [None, None, None]],
    "K": [[None, 1.0, 1.0], [1.0, None, 2.0], [None, None, None]],
    "pins": ["c"],
}


def changed(of: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A question with other values; None takes a key out."""
    return {key: value for key, value in (copy.deepcopy(of) | changes).items() if value is not None}


def device(i: int, of: dict[str, Any] = MEASURED, **changes: Any) -> dict[str, Any]:
    """A question whose device i is another; None takes a key out."""
    made = copy.deepcopy(of)
    made["devices"][i] = {key: value for key, value in (made["devices"][i] | changes).items() if value is not None}
    return made


def entry(key: str, i: int, j: int, value: Any, of: dict[str, Any] = MEASURED) -> dict[str, Any]:
    """A question with another number in a matrix."""
    made = copy.deepcopy(of)
    made[key][i][j] = value
    return made


def powered(watts: float = 0.25, rate: float = 8e7, **changes: Any) -> dict[str, Any]:
    """The measured question with watts and rates in place of K."""
    made = changed(MEASURED, K=None, rates=[[rate] * 4 for _ in range(4)], **changes)
    made["devices"] = [each | {"watts": watts} for each in made["devices"]]
    return made
