"""`tideline.connect`: runs of a coordinator from a program, in the words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tideline
from tests.cli.world import EXPERIMENT, KEY, Coordinator
from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound, Refused, Unreachable
from tideline.core.run import RunId


def server(there: Coordinator, **more: Any) -> tideline.Server:
    return tideline.connect(there.url, KEY, **more)


def test_a_run_is_started_watched_and_used(there: Coordinator, tmp_path: Path) -> None:
    run = server(there).start(EXPERIMENT, seed=5)
    assert run.status == "waiting" and run.result.data["seed"] == 5
    with pytest.raises(Refused, match="only a completed run has a final model"):
        run.model()
    with pytest.raises(NotFound, match="has no accuracy to plot"):
        run.plot()
    there.federation.run(RunId(run.id))
    assert run.watch(progress=False) is run
    result = run.result
    assert result.status == "completed" and {site.name for site in result.sites} == {"anna", "bert"}
    assert run.model().predict(torch.rand(2, 1, 28, 28)).classes.shape == (2,)
    found = run.metrics()  # a list, or a frame where pandas is installed
    rows = found if isinstance(found, list) else list(found.itertuples())
    assert any(row.metric == "accuracy" and row.n > 0 for row in rows if row.low is not None)
    assert run.plot().axes
    assert tideline.load(run.export(tmp_path / "model.safetensors")).model.origin.run == run.id


def test_runs_are_found_again(there: Coordinator) -> None:
    at = server(there)
    started = [at.start(EXPERIMENT).id, at.start(**EXPERIMENT).id]
    assert sorted(run.id for run in at.runs()) == sorted(started)
    assert at.run(started[0]).cancel().status == "cancelled"
    with pytest.raises(NotFound, match="There is no run"):
        at.run("no-such-run")


def test_initial_weights_are_uploaded(there: Coordinator, tmp_path: Path) -> None:
    at = server(there)
    first = at.start(EXPERIMENT)
    there.federation.run(RunId(first.id))
    weights = first.export(tmp_path / "model.safetensors")
    assert at.start(EXPERIMENT, weights=str(weights)).result.data["weights"]


def test_what_is_wrong_is_said(there: Coordinator, tmp_path: Path) -> None:
    with pytest.raises(IdentityRefused):
        tideline.connect(there.url, "another key")
    with pytest.raises(Unreachable, match="No coordinator answers at"):
        tideline.connect("http://127.0.0.1:9", KEY)
    with pytest.raises(ConfigRefused, match="is not an address"):
        tideline.connect("coordinator", KEY)
    with pytest.raises(ConfigRefused, match=r"config\.roundz is not a known setting"):
        server(there).start(EXPERIMENT, config={"roundz": 1})
    file = tmp_path / "experiment.yaml"
    file.write_text("method: fedavg\nconfig: {roundz: 1}\nroster: {anna: source}\n")
    with pytest.raises(ConfigRefused, match=r"experiment\.yaml:2: config\.roundz"):
        server(there).start(file)


def test_a_home_names_the_coordinator(there: Coordinator) -> None:
    assert tideline.connect(home=there.home).runs() == [] and there.url in repr(tideline.connect(home=there.home))
