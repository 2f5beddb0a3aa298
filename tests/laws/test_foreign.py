"""Every method trains somebody else's network, or refuses it by a sentence before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.laws import results
from tests.laws.case import Case, cases
from tideline.algorithms import METHODS
from tideline.core.errors import ConfigRefused
from tideline.nets import registry

# What declares needs that a network of one's own does not say how to meet.
NEEDS_MORE = {"fedsr": "which layer could emit a mean", "gaussian_heads": "which learns its features"}
MODELS = {"convolutions": {"width": 5}, "sequence": {"hidden": [7]}}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """What the process adds, for one test."""
    registry.use(["tests.nets.foreign:NETWORKS"])
    yield
    registry.use([])


@dataclass(frozen=True)
class Foreign(Case):
    """A method with somebody else's network."""

    model: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.model}"

    def experiment(self, **more: Any) -> dict[str, Any]:
        model = {"name": self.model, "options": MODELS[self.model]}
        return {**super().experiment(**more), "world": {"inputs": [1, 8, 8], "classes": 3, "model": model}}


CASES = [Foreign(case.name, METHODS, model) for case in cases(METHODS) for model in MODELS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_method_takes_any_network_or_says_what_is_missing(case: Foreign) -> None:
    """It ends in models of that network, which predict as the result says."""
    if case.name in NEEDS_MORE:
        with pytest.raises(ConfigRefused, match=NEEDS_MORE[case.name]):
            case.played()
        return
    stage, run = case.played()
    result = stage.result(run)
    assert result["status"] == "completed", result["cause"]
    assert result["world"]["model"] == case.experiment()["world"]["model"]
    results.models_are_what_it_says(case)
