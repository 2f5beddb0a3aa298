"""Every method, by name. One line each; nothing else in the repository knows a method's name."""

from __future__ import annotations

from tideline.core.registry import Methods

METHODS: Methods = (
    ("fedavg", "tideline.algorithms.averaging:fedavg"),
    ("fedprox", "tideline.algorithms.averaging:fedprox"),
    ("local", "tideline.algorithms.personal:local"),
    ("feddadil", "tideline.algorithms.feddadil:feddadil"),
)
