"""Runs that protect rows over the network: real agents, whose noise is their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net, net
from tests.cli.world import tide, tide_process
from tideline.core.errors import Refused

pytestmark = pytest.mark.processes
PRIVACY = {"rows": 40, "noise": 2.0, "delta": 1e-3, "rate": 0.25}
ASKED: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": {**WORLD, "normalise": "none"}, "roster": SITES}


@pytest.mark.smoke
def test_from_an_experiment_to_what_it_cost(federation: Net) -> None:
    """It completes, says its epsilon, tells no loss and no number of rows, and each agent that trained has a key of its own."""
    run = federation.run(ASKED | {"privacy": PRIVACY})
    found = federation.completed(run)
    assert found["privacy"]["noise"] == 2.0 and found["privacy"]["epsilon"] > 0
    assert all(each["samples"] in (None, PRIVACY["rows"]) for each in found["clients"])
    shown = tide("run", "show", run, "--home", str(federation.folder)).stdout
    assert "each row of a site is protected: epsilon" in shown
    keys = list(federation.folder.parent.rglob("noise.key"))
    assert keys and len({key.read_bytes() for key in keys}) == len(keys)
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    again = federation.ended(federation.run(ASKED | {"privacy": PRIVACY}))
    assert again["state_digest"] != found["state_digest"], "the noise of another run is other noise"


def test_what_cannot_be_private_is_refused_at_the_start(federation: Net) -> None:
    with pytest.raises(Refused, match="cannot protect rows") as refused:
        federation.run(ASKED | {"method": "feddadil", "privacy": PRIVACY})
    assert (
        "transport plans" in refused.value.what and "fedavg" in refused.value.todo and refused.value.context["path"] == "privacy"
    )


def test_a_target_joins_with_labels_of_its_own(federation: Net) -> None:
    """It trains under noise beside the sources: its labels follow row by row from models that everybody has."""
    config = {"threshold": 0.4, "rounds": 2, "times": 1, "rounds_between": 2, "evaluate_every": 4}
    found = federation.completed(federation.run(ASKED | {"method": "self_training", "config": config, "privacy": PRIVACY}))
    assert any("config.threshold" in note for note in found["notes"])
    target = next(name for name, role in SITES.items() if role == "target")
    spent = {each["name"]: each["epsilon"] for each in found["clients"]}
    assert 0 < spent[target] < max(spent.values()) <= found["privacy"]["epsilon"]


def test_a_target_adapts_a_source_model_that_was_learnt_under_noise(federation: Net) -> None:
    """And its own model, of which nothing tells, costs its rows nothing."""
    config = {"source_epochs": 2, "rounds": 1, "epochs": 2, "score_own": False}
    found = federation.completed(federation.run(ASKED | {"method": "shot", "config": config, "privacy": PRIVACY}))
    assert {each["field"] for each in found["contract"]} == {"f", "g", "samples", "metrics.source_only"}


def ward(folder: Path, patients: bool) -> Path:
    """A table of 60 rows of 20 patients, whose site says so, or does not."""
    folder.mkdir()
    rows = [f"{i % 7 / 7},{i % 5 / 5},{i % 3},p{i // 3}" for i in range(60)]
    (folder / "ward.csv").write_text("\n".join(["a,b,y,patient", *rows, ""]))
    said = 'unit = "patient"' if patients else 'drop = ["patient"]'
    (folder / "transforms.toml").write_text(f"[ward]\n{said}\n")
    return folder


def test_patients_are_protected_as_a_whole(tmp_path: Path) -> None:
    """By sites whose tables say whose rows are, at budgets that count patients; another is refused before any work."""
    world = {"inputs": [2], "classes": 3, "model": "linear", "normalise": "none"}
    policy = "[least]\nrows = 1\n[privacy]\nunit = 'patient'\nepsilon = 100.0\ndelta = 1e-3\n"
    privacy = {"unit": "patient", "rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5, "quantile": 0.5}
    given = {"method": "fedavg", "preset": "tiny", "world": world, "privacy": privacy}
    with net(tmp_path) as made:
        made.coordinator()
        for name, says in (("a", True), ("b", False)):
            made.agent(name, ward(tmp_path / f"data-{name}", says), "source", *made.policy(policy))
        for name in "ab":
            made.heard(name, "enrolled")
        found = made.completed(made.run({**given, "roster": {"a": "source"}}))
        assert any("each patient of a site is protected" in each for each in found["notes"])
        ended = tide_process("site", "budget", "--home", made.home / "home-a", "--json")
        (budget,) = json.loads(ended.stdout)["budgets"]
        assert budget["unit"] == "patient" and budget["spent"] > 0
        run = made.run({**given, "roster": {"b": "source"}})
        made.until(lambda: made.result(run)["status"] == "stalled", "the run to stall")
        assert "do not say which rows belong together" in made.result(run)["cause"]
        rows = made.run({**given, "roster": {"a": "source"}, "privacy": {**privacy, "unit": None}})
        made.until(lambda: made.result(rows)["status"] == "stalled", "the run to stall")
        assert "protects each row, where each patient is to be protected" in made.result(rows)["cause"]
