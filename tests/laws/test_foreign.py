"""Every method trains somebody else's network, or refuses it by a sentence before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.laws.case import Case, cases
from tideline.algorithms import METHODS
from tideline.core.errors import ConfigRefused
from tideline.engine.simulation.federation import simulate
from tideline.nets import registry

# What declares needs that a network of one's own does not say how to meet.
NEEDS_MORE = {"fedsr": "which layer could emit a mean"}
MODELS = {"convolutions": {"width": 5}, "sequence": {"hidden": [7]}}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """What the process adds, for one test."""
    registry.use(["tests.nets.foreign:NETWORKS"])
    yield
    registry.use([])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", cases(METHODS), ids=str)
def test_a_method_takes_any_network_or_says_what_is_missing(case: Case, model: str) -> None:
    given = case.experiment()
    given["world"] = {"inputs": [1, 8, 8], "classes": 3, "model": {"name": model, "options": MODELS[model]}}
    if case.name in NEEDS_MORE:
        with pytest.raises(ConfigRefused, match=NEEDS_MORE[case.name]):
            simulate(METHODS, given, case.sites())
        return
    result = simulate(METHODS, given, case.sites())
    assert result["status"] == "completed", result["cause"]
    assert result["world"]["model"] == given["world"]["model"]
