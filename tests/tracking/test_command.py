"""What `run track` and `track:` refuse, and that nobody loads a tracker's package who does not ask for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.world import EXPERIMENT, Coordinator, refusal_of, tide
from tideline.client.http import Client
from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.engine.model.experiment import TRACKERS, read_experiment
from tideline.tracking.opening import Options, open_tracker


@pytest.mark.quick
@pytest.mark.parametrize(
    ("track", "path", "words"),
    [
        (["mflow"], "track[0]", "did you mean"),
        (["mlflow", "comet"], "track[1]", "mlflow, tensorboard, trackio, wandb"),
        (["mlflow", "mlflow"], "track[1]", "Name each tracker once"),
        ("mlflow", "track", ""),
        ([7], "track[0]", ""),
        (["<script>" * 99], "track[0]", "Use some of"),
    ],
)
def test_an_experiment_names_trackers_that_there_are(track: object, path: str, words: str) -> None:
    with pytest.raises(ConfigRefused) as raised:
        read_experiment({**EXPERIMENT, "track": track})
    assert str(raised.value.context["path"]).startswith(path) and words.lower() in raised.value.todo.lower()
    assert len(raised.value.what) < 200


def test_who_writes_a_run_down_makes_it_no_other(there: Coordinator, client: Client) -> None:
    """Equal digests of what was asked and of the final state; lists and results tell the trackers."""
    plain, tracked = there.complete(), there.complete(track=["tensorboard", "mlflow"])
    rows = [there.federation.run_service.find(RunId(run)) for run in (plain, tracked)]
    assert rows[0].spec.experiment == rows[1].spec.experiment and rows[0].state_digest == rows[1].state_digest
    assert {line["id"]: line["track"] for line in client.get("/runs")} == {plain: [], tracked: ["tensorboard", "mlflow"]}
    assert [client.run(run)["track"] for run in (plain, tracked)] == [[], ["tensorboard", "mlflow"]]
    listed = json.loads(tide("run", "list", "--home", there.home, "--json").stdout)
    assert {line["id"]: line["track"] for line in listed}[tracked] == ["tensorboard", "mlflow"]


def test_the_reference_of_a_run_names_none(there: Coordinator, client: Client) -> None:
    run = there.complete(method="fedprox", reference={"method": "fedavg"}, track=["mlflow"])
    assert {line["id"]: line["track"] for line in client.get("/runs")} == {run: ["mlflow"], f"{run}-ref": []}


@pytest.mark.quick
@pytest.mark.parametrize("name", TRACKERS)
def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    with pytest.raises(ConfigRefused, match="not installed here") as raised:
        open_tracker(name, Options(uri=str(tmp_path)))
    assert raised.value.todo == f"Install it beside tideline: pip install 'tideline[{name}]'"


@pytest.mark.quick
def test_what_the_command_refuses(there: Coordinator) -> None:
    both = "Either one run is followed or all"
    refusals = {"--to mlflow": both, "x --all --to mlflow": both, "x --to mflow": "did you mean"}
    refusals |= {
        "x --to trackio --format pickle": "--format is 'pickle'",
        "x --to trackio --register m": "--register is for mlflow",
    }
    for words, error in refusals.items():
        assert error in refusal_of(tide("run", "track", *words.split(), "--home", there.home))


def test_a_run_that_is_not_there(there: Coordinator, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    place = tmp_path / "tb"
    refused = tide("run", "track", "nobody", "--to", "tensorboard", "--uri", place, "--home", there.home)
    assert refused.exit_code == 2 and "There is no run" in refused.stderr and not list(place.iterdir())


def test_no_core_loads_a_tracker() -> None:
    """Not the coordinator, an agent, the command line, nor what decides which tracker is opened."""
    modules = "tideline_server.main tideline_agent.main tideline.cli.app tideline.tracking.opening tideline.tracking.following"
    check = f"import sys, importlib; [importlib.import_module(m) for m in {modules.split()!r}]; "
    check += f"sys.exit(str([n for n in sys.modules if n.split('.')[0] in {TRACKERS!r}] or ''))"
    assert subprocess.run([sys.executable, "-c", check], check=False, capture_output=True, text=True).stderr.strip() in ("", "[]")


REFUSED = {
    "tensorboard": {
        "--register m": "--register is for mlflow",
        "--uri here --experiment x": "--experiment is not for tensorboard",
        "": "Give --uri, a folder",
        "--uri https://example.org": "Give --uri, a folder",
    },
    "wandb": {
        "--uri https://api.wandb.ai": "the server is WANDB_BASE_URL",
        "--uri here --register a/b/c": "--register is 'a/b/c'",
        "--uri here --experiment a/b": "Check --experiment",
    },
}


@pytest.mark.parametrize("tracker", REFUSED)
def test_what_a_tracker_does_not_have(there: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str) -> None:
    pytest.importorskip(tracker)
    monkeypatch.chdir(tmp_path)
    run = there.complete()
    for more, words in REFUSED[tracker].items():
        assert words in refusal_of(tide("run", "track", run, "--to", tracker, "--home", there.home, *more.split()))


@pytest.mark.parametrize(("tracker", "name"), [("tensorboard", "fedavg-{run}"), ("wandb", "wandb")])
def test_a_folder_that_takes_no_file(there: Coordinator, tmp_path: Path, tracker: str, name: str) -> None:
    """Said with its path, and nothing is written elsewhere, as wandb would; the command ends, a service tries again."""
    pytest.importorskip(tracker)
    run, place = there.complete(), tmp_path / "place"
    place.mkdir()
    (place / name.format(run=run)).write_text("in the way")
    refused = tide("run", "track", run, "--to", tracker, "--uri", place, "--home", there.home)
    assert refused.exit_code == 3 and str(place) in refused.stderr
