"""Methods that offer `confusion` and `label_shift`: one exchange after the last scoring, which agrees with what was scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.laws.case import Case, cases
from tideline.algorithms import METHODS
from tideline.learning.evaluate import SHARES, SHIFT, SHIFT_NAME, TOGETHER

AT_NIGHT = pytest.mark.nightly(job="methods")
COMPARED = {"fada", "fdann", "fdan", "kd3a", "adabn"}  # FADA, and what it is compared with


def cases_with(setting: str) -> list[Case]:
    return [case for case in cases(METHODS) if hasattr(case.config, setting)]


def last_phase(case: Case, setting: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the result of a run with a setting, and its last phase, which a run without the setting lacks."""
    stage, run = case.played(config={setting: True}, preset="tiny")
    result, (plain, other) = stage.result(run), case.played()
    assert name not in [phase["name"] for phase in plain.result(other)["phases"]]
    assert result["phases"][-1]["name"] == name
    return result, result["phases"][-1]


def sites_of(case: Case, kind: str) -> set[str]:
    return {name for name, role in case.roster.items() if role == kind}


def test_the_methods_of_alignment_count() -> None:
    assert {case.name for case in cases_with("label_shift")} >= COMPARED
    assert {*COMPARED, "fedavg"} <= {case.name for case in cases_with("confusion")}


@pytest.mark.parametrize("case", cases_with("confusion"), ids=str)
def test_what_is_taken_for_what_is_what_was_scored(case: Case) -> None:
    """The share on the diagonal is the site's accuracy."""
    result, last = last_phase(case, "confusion", "confusion")
    scored = {client["name"]: client["accuracy"] for client in result["clients"] if client.get("accuracy") is not None}
    counted = {name: last["tables"][key]["values"] for name in scored if (key := f"confusion of {name}") in last["tables"]}
    assert counted.keys() >= sites_of(case, "target")
    assert counted
    for name, values in counted.items():
        assert np.trace(matrix := np.array(values)) / matrix.sum() == pytest.approx(scored[name])


@pytest.mark.parametrize(
    "case",
    [case if case.name in ("fdan", "adabn") else pytest.param(case, marks=AT_NIGHT) for case in cases_with("label_shift")],
    ids=str,
)
def test_classes_are_counted_and_compared(case: Case) -> None:
    """Shares of each site sum to one, a target's by its own model; all sources and targets are there."""
    _, last = last_phase(case, "label_shift", SHIFT_NAME)
    shares, far = last["tables"][SHARES], last["tables"][SHIFT]
    assert set(shares["columns"]) == set(case.roster)
    assert np.array(shares["values"]).sum(0) == pytest.approx(np.ones(len(case.roster)))
    assert set(far["rows"]) == sites_of(case, "source") | {TOGETHER} and set(far["columns"]) == sites_of(case, "target")
    assert (np.array(far["values"]) >= 0).all() and (np.array(far["values"]) <= 1).all()
