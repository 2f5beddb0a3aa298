"""Experiments, and plans of links, to begin from, shown in the manual. A test asks for each of them."""

from __future__ import annotations

from typing import Any

EXPERIMENTS: dict[str, Any] = {
    "roster": {
        "summary": "Federated averaging among named sites",
        "value": {
            "name": "first try",
            "method": "fedavg",
            "config": {"rounds": 5, "epochs": 1, "rate": 0.05},
            "world": {"inputs": [1, 28, 28], "classes": 10, "model": "lenet"},
            "roster": {"hospital-a": "source", "hospital-b": "source", "hospital-c": "target"},
            "seed": 7,
        },
    },
    "quorum": {
        "summary": "From a preset, closing rounds without the slowest",
        "value": {
            "method": "fedprox",
            "preset": "tiny",
            "config": {"mu": 0.1},
            "roster": {"hospital-a": "source", "hospital-b": "source", "hospital-c": "source"},
            "waiting": {"target_replies": 2, "min_replies": 2, "deadline": 3600},
        },
    },
    "reference": {
        "summary": "With a second run to compare with",
        "value": {
            "method": "fedprox",
            "config": {"rounds": 3},
            "roster": {"hospital-a": "source", "hospital-b": "target"},
            "reference": {"method": "fedavg", "roles": ["source"]},
        },
    },
}

LINKS: dict[str, Any] = {
    "measured": {
        "summary": "From what devices measured",
        "value": {
            "devices": [
                {"name": "hospital-a", "error": 0.12, "count": 1800, "labelled": 1600, "watts": 0.25},
                {"name": "hospital-b", "error": 0.3, "count": 1500, "labelled": 1300, "watts": 0.3},
                {"name": "hospital-c", "error": 1.0, "count": 1000, "labelled": 0, "watts": 0.2},
            ],
            "d": [[None, 0.4, 0.9], [0.4, None, 0.1], [0.9, 0.1, None]],
            "rates": [[None, 8e7, 7e7], [8e7, None, 6.5e7], [7e7, 6.5e7, None]],
            "phi": {"energy": 1.0},
            "sweep": [0.01, 100.0],
        },
    },
    "bounds": {
        "summary": "From bounds and joules, with a device that has to be a target",
        "value": {
            "devices": [{"name": "a", "S": 1.8}, {"name": "b", "S": 2.0}, {"name": "c", "S": 2.7}],
            "T": [[None, 28.4, 53.5], [28.6, None, 13.7], [54.4, 14.4, None]],
            "K": [[None, 3.1, None], [3.7, None, 4.3], [2.9, 2.9, None]],
            "pins": ["c"],
        },
    },
}
