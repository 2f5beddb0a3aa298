"""Data that a function gives: what the owner's commands say of them, and an agent at its start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.world import COMMAND, tide, tide_process  # noqa: F401 (the command line is built once)
from tideline import nets
from tideline.cli.app import app
from tideline.core.asked.world import World
from tideline.learning.model_file import Model, packed

PLACE = "python:tests.learning.python_sites"


def checked(*words: str) -> tuple[int, str]:
    """`tideline data check WORDS`: its exit code, and what it said."""
    result = CliRunner().invoke(app, ["data", "check", *words])
    return result.exit_code, result.output


def test_a_function_is_checked_as_a_folder_is() -> None:
    code, said = checked(f"{PLACE}:good", "--json")
    report = json.loads(said)
    assert code == 0 and report["usable"] and report["role"] == "source"
    assert report["world"]["inputs"] == [4] and report["world"]["classes"] == 3
    (domain,) = report["domains"]
    assert (domain["kind"], domain["samples"], domain["held_out"]) == ("python", 30, 6)
    assert (domain["validation"], domain["content"]["shapes"]) == (3, {"4": 30})
    assert domain["content"]["low"] < domain["content"]["high"] and " 21 " in checked(f"{PLACE}:good")[1]


def test_as_a_target_its_training_labels_are_not_counted() -> None:
    _, said = checked(f"{PLACE}:good", "--role", "target", "--json")
    assert all(each["train"] is None for each in json.loads(said)["domains"][0]["classes"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no", "cannot be loaded: AttributeError"),
        ("row_17", "row 17 of the training dataset: reading it raised OSError"),
        ("raises", "raises KeyError"),
    ],
)
def test_what_is_wrong_with_it(name: str, words: str) -> None:
    code, said = checked(f"{PLACE}:{name}")
    assert code == 2 and words in said


def test_another_world(tmp_path: Path) -> None:
    file = tmp_path / "world.yaml"
    file.write_text("{inputs: [4], classes: 2, model: mlp}")
    code, said = checked(f"{PLACE}:good", "--world", str(file))
    assert code == 2 and "the label is none of the classes 0 to 1" in said and "would refuse these data" in said


@pytest.mark.parametrize(
    ("data", "words"),
    [("python:clinic", "--data python:clinic does not name a function"), ("clinic", "--data clinic is not a folder")],
)
def test_an_agent_says_at_once_what_names_no_data(tmp_path: Path, data: str, words: str) -> None:
    command = ("agent", "--coordinator", "127.0.0.1:1", "--role", "source", "--home", str(tmp_path), "--data", data)
    result = CliRunner().invoke(app, list(command))
    assert result.exit_code == 2 and words in result.output and "python:MODULE:NAME" in result.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of the functions' rows, as `run export` writes one."""
    world = World(inputs=(4,), classes=3, model="linear")
    file = tmp_path / "model.safetensors"
    file.write_bytes(packed(Model(world, nets.weights_of(nets.build(world)))))
    return file


@pytest.mark.parametrize("more", [(), ("--part", "validation"), ("--held-out",)])
def test_predict_takes_a_function(tmp_path: Path, model: Path, more: tuple[str, ...]) -> None:
    """The same door as an agent's: the rows to test on, or those that are asked for."""
    out, data = tmp_path / "rows.csv", f"{PLACE}:as_three"
    told = tide("predict", "--model", model, "--data", data, "--out", out, "--device", "cpu", *more, "--json")
    assert told.exit_code == 0, told.output
    found, rows = json.loads(told.stdout), 4 if "--part" in more else 6
    assert (found["rows"], found["labelled"]) == (rows, rows) and found["accuracy"]["rows"] == rows
    assert len(out.read_text().splitlines()) == rows + 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("python:no_such_module:site", "--data python:no_such_module:site cannot be loaded: ModuleNotFoundError"),
        ("python:tests.learning.python_sites", "does not name a function"),
        (f"{PLACE}:no", "cannot be loaded: AttributeError"),
        (f"{PLACE}:wide", "row 0 of the training dataset: x is 5; the world expects 4"),
        (f"{PLACE}:beyond", "the label is none of the classes 0 to 2"),
        (f"{PLACE}:raises", "raises KeyError"),
    ],
)
def test_what_predict_says_of_a_function_that_will_not_do(tmp_path: Path, model: Path, data: str, words: str) -> None:
    told = tide("predict", "--model", model, "--data", data, "--out", tmp_path / "rows.csv")
    assert told.exit_code == 2 and words in " ".join(told.stderr.split()) and not (tmp_path / "rows.csv").exists(), told.stderr


def test_the_words_of_a_row_that_cannot_be_read_are_in_the_log(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = tide("predict", "--model", model, "--data", f"{PLACE}:row_17", "--out", tmp_path / "rows.csv")
    assert told.exit_code == 2 and "patient 8" not in told.stderr and "patient 8" in caplog.text


@pytest.mark.processes
def test_an_agent_says_at_its_start_that_a_module_is_not_there(tmp_path: Path) -> None:
    where = ("--coordinator", "127.0.0.1:1", "--role", "source", "--home", tmp_path, "--data", "python:no_such:site")
    for command in ("agent", "doctor"):
        ended = tide_process(command, *where, limit=120)
        assert ended.returncode != 0 and "no_such" in ended.stdout + ended.stderr
