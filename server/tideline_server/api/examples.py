"""Experiments to begin from, shown in the manual. A test starts each of them."""

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
