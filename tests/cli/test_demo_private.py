"""The demo of privacy: what it asks for, what it refuses, and what it says of two results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_report import client, result
from tests.cli.world import refusal_of, tide
from tideline.cli.local import demo_private
from tideline.cli.local.demo_private import BUDGET, EPSILON, METHOD, beside, check_private, lines_of, policy_in, protected
from tideline.core.asked.private import Privacy
from tideline.core.errors import ConfigRefused
from tideline_agent.policy_file import read_policy

GIVEN: dict[str, Any] = {
    "method": METHOD,
    "preset": "demo",
    "world": {"model": "lenet"},
    "roster": {},
    "reference": {},
    "seed": 3,
}


def test_the_two_runs_differ_in_privacy_alone() -> None:
    made: Any = protected(GIVEN, None)
    assert Privacy(**made["privacy"]).epsilon == EPSILON < BUDGET < 2 * EPSILON, "one run fits into the budget, two do not"
    assert made["world"]["normalise"] == "none" and made["reference"] is None and made["seed"] == 3
    assert made["config"]["evaluate_every"] == made["config"]["rounds"], "scorings cost"
    other: Any = beside(made)
    assert "privacy" not in other and other["world"] == made["world"] and other["reference"] is None
    assert other["config"] == made["config"]
    few: Any = protected(GIVEN, 0)
    assert few["config"]["rounds"] == 0 and few["config"]["evaluate_every"] == 1


def test_owners_set_a_budget(tmp_path: Path) -> None:
    read_policy(policy_in(tmp_path, None))
    assert f"epsilon = {BUDGET}" in policy_in(tmp_path, None).read_text()
    assert policy_in(tmp_path, tmp_path / "own.toml") == tmp_path / "own.toml"


def test_what_cannot_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_private(None)
    check_private(METHOD)
    assert "--private shows fedavg, and --method is feddadil" in refusal_of(tide("demo", "--private", "--method", "feddadil"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigRefused, match="dp-accounting is not installed") as raised:
        check_private(None)
    assert raised.value.todo == "pip install 'tideline[privacy]'"


def test_it_says_what_privacy_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per kind of site, against the run without; who was not scored is left out, and a run that is not private is mute."""
    monkeypatch.setattr(demo_private, "budgets_of", lambda names, home: iter([f"budgets of {names}"]))
    sites = [
        client("anna", "source", accuracy=0.8),
        client("bert", "source", accuracy=None),
        client("carl", "target", accuracy=0.5),
    ]
    own: Any = result(sites, privacy={"epsilon": 6.0, "delta": 1e-5})
    plain: Any = result([{**each, "accuracy": 0.9} for each in sites])
    promise, without, labelled, budgets = lines_of(own, plain, tmp_path)
    assert "e^6 at most" in promise and "1e-05" in promise
    assert without.startswith("Accuracy at sites without labels: 50.0") and "it costs 40.0 points here" in without
    assert labelled.startswith("Accuracy at sites with labels: 80.0") and "it costs 10.0 points here" in labelled
    assert budgets == "budgets of ['anna', 'bert']"
    assert list(lines_of(plain, plain, tmp_path)) == []
