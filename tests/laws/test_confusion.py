"""Every method that offers `confusion: true`: after the last scoring, counts that agree with what was scored."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.case import Case, cases
from tideline.algorithms import METHODS

COUNTING = [case for case in cases(METHODS) if hasattr(case.config, "confusion")]


def test_the_methods_of_alignment_count() -> None:
    """FADA, and what it is compared with."""
    assert {"fada", "fdann", "fdan", "kd3a", "adabn", "fedavg"} <= {case.name for case in COUNTING}


@pytest.mark.parametrize("case", COUNTING, ids=str)
def test_what_is_taken_for_what_is_what_was_scored(case: Case) -> None:
    """The share on the diagonal is the site's accuracy; without the setting nobody counts."""
    stage, run = case.played(config={"confusion": True}, preset="tiny")
    result = stage.result(run)
    last = result["phases"][-1]
    assert last["name"] == "confusion"
    scored = {client["name"]: client["accuracy"] for client in result["clients"] if client.get("accuracy") is not None}
    counted = {
        name: np.array(last["tables"][key]["values"]) for name in scored if (key := f"confusion of {name}") in last["tables"]
    }
    assert counted.keys() >= {name for name, role in case.roster.items() if role == "target"}
    assert counted
    for name, matrix in counted.items():
        assert np.trace(matrix) / matrix.sum() == pytest.approx(scored[name])
    plain, other = case.played()
    assert "confusion" not in [phase["name"] for phase in plain.result(other)["phases"]]
