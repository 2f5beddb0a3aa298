"""Every method that offers `label_shift: true`: in the end classes are counted, a target's by its own model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.laws.case import Case, cases
from tideline.algorithms import METHODS
from tideline.learning.evaluate import SHARES, SHIFT, SHIFT_NAME, TOGETHER

COUNTING = [case for case in cases(METHODS) if hasattr(case.config, "label_shift")]


def test_the_methods_of_alignment_count() -> None:
    """FADA, and what it is compared with."""
    assert {"fada", "fdann", "fdan", "kd3a", "adabn"} <= {case.name for case in COUNTING}


@pytest.mark.parametrize("case", COUNTING, ids=str)
def test_classes_are_counted_and_compared(case: Case) -> None:
    """Shares of each site sum to one; all sources and targets are there; without the setting nobody counts."""
    stage, run = case.played(config={"label_shift": True}, preset="tiny")
    last = stage.result(run)["phases"][-1]
    assert last["name"] == SHIFT_NAME
    shares, far = last["tables"][SHARES], last["tables"][SHIFT]
    assert set(shares["columns"]) == set(case.roster)
    assert np.array(shares["values"]).sum(0) == pytest.approx(np.ones(len(case.roster)))
    sources, targets = ({name for name, role in case.roster.items() if role == kind} for kind in ("source", "target"))
    assert set(far["rows"]) == sources | {TOGETHER} and set(far["columns"]) == targets
    assert (np.array(far["values"]) >= 0).all() and (np.array(far["values"]) <= 1).all()
    plain, other = case.played()
    assert SHIFT_NAME not in [phase["name"] for phase in plain.result(other)["phases"]]
