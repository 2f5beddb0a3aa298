"""Every method that the shared federation knows: those that are shipped, and those of the tests."""

from __future__ import annotations

from tideline.algorithms import METHODS as SHIPPED
from tideline.core.algorithm import Methods

METHODS: Methods = (
    *SHIPPED,
    ("gated", "tests.acceptance.gated:gated"),
    ("gated_weights", "tests.acceptance.gated:gated_weights"),
    ("peaks", "tests.engine.peaks:METHOD"),
    ("passing", "tests.engine.passing:METHOD"),
    ("toy", "tests.engine.toys:toy"),
)
