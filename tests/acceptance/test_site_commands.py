"""What an owner takes out of an agent's home: listed, written, drawn, refused in words. Nothing of it needs the coordinator."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tideline.cli.app import app
from tideline.core.run import RunId
from tideline_agent.vault import FolderVault

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def ended(federation: Net) -> str:
    run = federation.run({"method": "feddadil", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5})
    federation.completed(run)
    return run


def said(*args: str | Path, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["site", *map(str, args), "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def home(federation: Net, name: str) -> Path:
    return federation.home / f"home-{name}"


@pytest.mark.quick
def test_runs_are_listed(federation: Net, ended: str) -> None:
    (row,) = [r for r in said("list", "--home", home(federation, "c")) if r["run"] == ended]
    assert (row["method"], row["role"]) == ("feddadil", "target")
    names = [r["name"] for r in said("list", "--home", home(federation, "c"), "--run", ended)]
    assert names == ["classifier", "model", "picture", "summary_1"]
    assert said("list", "--home", home(federation, "a"), "--run", ended) == []


def test_a_summary_is_written(federation: Net, ended: str, tmp_path: Path) -> None:
    """A file that NumPy opens without pickles, with a point for each class."""
    out = tmp_path / "summary.npz"
    told = said("export", "--home", home(federation, "c"), "--run", ended, "summary_1", "--out", out)
    with np.load(out, allow_pickle=False) as arrays:
        assert {k: list(v.shape) for k, v in arrays.items()} == told["arrays"] == {"x": [3, 64], "y": [3], "soft": [3, 3]}
        assert np.allclose(arrays["soft"].sum(1), 1)


def test_a_model_is_written_and_predicts(federation: Net, data: dict[str, Path], ended: str, tmp_path: Path) -> None:
    """The site's own model, by its name, predicts the site's held-out rows as its score says; a source has none."""
    out, rows = tmp_path / "model.safetensors", tmp_path / "rows.csv"
    told = said("export", "--home", home(federation, "c"), "--run", ended, "model", "--out", out)
    assert (told["site"], told["method"], told["note"]) == ("c", "feddadil", "")
    args = ["predict", "--model", out, "--data", data["c"], "--held-out", "--out", rows, "--json"]
    scores = json.loads(CliRunner().invoke(app, list(map(str, args))).stdout)
    assert scores["accuracy"]["value"] == told["metrics"]["accuracy"] and scores["rows"] == 12
    refused = said("export", "--home", home(federation, "a"), "--run", ended, "model", "--out", out, code=2)
    assert "nothing is kept at this site" in refused["detail"]


def test_a_picture_is_drawn(federation: Net, ended: str, tmp_path: Path) -> None:
    """A PNG, and its numbers beside it: a line for each row of the site and each point of its barycenter."""
    out = tmp_path / "points.png"
    said("picture", "--home", home(federation, "c"), "--run", ended, "--out", out)
    assert out.read_bytes().startswith(b"\x89PNG")
    with out.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {r["cloud"] for r in rows} == {"site", "barycenter"}
    assert sum(r["cloud"] == "site" for r in rows) == 48  # four fifths of 60


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("export", "--run", "RUN", "sumary_1", "--out", "x.npz"), "did you mean summary_1?"),
        (("export", "--run", "RUN", "summary_1", "--out", "x.csv"), "does not end in .npz"),
        (("export", "--run", "RUN", "summary_1", "--out", "nowhere/x.npz"), "There is no folder nowhere"),
        (("picture", "--run", "RUN", "--out", "x.jpg"), "does not end in .png"),
        (("list", "--run", "unknown"), "remembers no run unknown"),
        (("export", "--run", "RUN", "points", "--out", "x.npz"), "kept are: classifier, model, picture, summary_1"),
    ],
)
def test_refusals(federation: Net, ended: str, args: tuple[str, ...], words: str) -> None:
    command, *rest = (ended if a == "RUN" else a for a in args)
    told = said(command, "--home", home(federation, "c"), *rest, code=2)
    assert words in f"{told['detail']} {told['todo']}"


def test_a_source_has_nothing_to_draw(federation: Net, ended: str, tmp_path: Path) -> None:
    told = said("picture", "--home", home(federation, "a"), "--run", ended, "--out", tmp_path / "x.png", code=2)
    assert told["detail"] == f"Of run {ended} nothing is kept at this site yet, so nothing named 'picture'"
    assert f"See `tideline site list --run {ended}`; some methods" in told["todo"]


def words(*args: str | Path) -> str:
    result = CliRunner().invoke(app, ["site", *map(str, args)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_list_of_nothing_is_a_sentence(federation: Net, ended: str, tmp_path: Path) -> None:
    """Where there is nothing to list no table is drawn; where there is something one is."""
    told = words("list", "--home", home(federation, "a"), "--run", ended)
    assert told.startswith(f"There is nothing to export of run {ended} at this site yet: some methods") and told.count("\n") == 1
    assert "summary_1" in words("list", "--home", home(federation, "c"), "--run", ended)
    (tmp_path / "runs").mkdir()
    assert words("list", "--home", tmp_path) == "There is no run in this home yet.\n"


def test_a_run_that_has_just_been_asked(tmp_path: Path) -> None:
    """Before a site's first answer nothing is kept, and that is no error."""
    (tmp_path / "runs" / "new").mkdir(parents=True)
    FolderVault(tmp_path / "runs").note(RunId("new"), {"method": "any", "role": "target"})
    assert said("list", "--home", tmp_path, "--run", "new") == []


@pytest.mark.parametrize("run", ["../..", "..", "a/b", "", "x" * 300])
def test_an_odd_id_is_what_its_owner_typed(tmp_path: Path, run: str) -> None:
    (tmp_path / "runs").mkdir()
    for command in (("list",), ("export", "picture", "--out", tmp_path / "x.npz")):
        told = said(*command, "--home", tmp_path, "--run", run, code=2)
        assert (told["kind"], told["todo"]) == ("NotFound", "Use an id from `tideline site list`")


def test_a_folder_that_is_no_home(tmp_path: Path) -> None:
    told = said("list", "--home", tmp_path, code=2)
    assert "not an agent's home" in told["detail"]


def test_a_run_is_forgotten_beside_a_working_agent(federation: Net) -> None:
    """The agent goes on with other runs; what the owner did not name is still there."""
    given = {"method": "local", "preset": "tiny", "world": WORLD, "roster": SITES, "reference": None}
    first, second = federation.run(given), federation.run(given)
    for run in (first, second):
        federation.ended(run)
    told = said("forget", "--home", home(federation, "a"), first, "--unfinished", "--yes")
    assert told["forgotten"] == [first] and told["bytes"] > 0
    third = federation.run(given)
    federation.completed(third)
    there = {row["run"] for row in said("list", "--home", home(federation, "a"))}
    assert {second, third} <= there and first not in there
