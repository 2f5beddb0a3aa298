"""`tideline data check` and `predict`, of folders and of functions: what people and programs are told, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.cli.world import COMMAND, assert_refuses, json_of, output_of, refusal_of, tide, tide_process  # noqa: F401 (the command line is built once)
from tests.learning.images_on_disk import save_classes
from tests.learning.test_tables import table, write
from tideline import nets
from tideline.cli.guard import DONE, REFUSED
from tideline.core.asked.world import World, plain_world, world_in
from tideline.learning.model_file import Model, packed


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with images of two kinds of animal."""
    save_classes(tmp_path / "site" / "ward", {"cat": 6, "dog": 4})
    return tmp_path / "site"


def test_a_folder_that_can_be_used(site: Path) -> None:
    """In words: counts, classes, and the world that fits, to be copied into an experiment."""
    done = output_of(tide("data", "check", site))
    assert "An agent can use this folder." in done and "read as a source" in done
    assert 'world: {model: lenet, inputs: [3, 8, 8], classes: 2, class_names: ["cat", "dog"]}' in done
    assert "training + held out: cat " in done


def test_columns_of_tables(tmp_path: Path) -> None:
    """What each holds, for the owner's eyes, and columns that fit several folders, to be copied into an experiment."""
    write(tmp_path / "a", "csv", {"age": [30, 41, None, 55], "sex": ["f", "m"] * 2, "y": [0, 1] * 2})
    write(tmp_path / "b", "csv", {"sex": ["d", "m"] * 2, "age": [1.5, 2, 3, 4], "y": [0, 1] * 2})
    done = output_of(tide("data", "check", tmp_path / "a"))
    assert "30 to 55" in done and "0.250" in done and "f, m" in done
    assert '\n    "age": {"missing": "indicator"}\n    "sex": ["f", "m"]\n' in done
    both = tide("data", "check", tmp_path / "a", tmp_path / "b")
    assert both.exit_code == DONE and "A world that fits all of them:\n\nworld:\n  model: tabular\n" in both.output
    assert '"sex": ["d", "f", "m"]' in both.output
    found = json_of(tide("data", "check", tmp_path / "a", tmp_path / "b", "--json"))
    assert (
        found["usable"] and len(found["folders"]) == 2 and found["world"]["columns"][0] == {"name": "age", "missing": "indicator"}
    )


def test_a_world_of_columns_is_there_to_be_copied(tmp_path: Path) -> None:
    """A line for each column, and which of the table's are no part of it: such as a column that is the same in every row."""
    write(tmp_path, "csv", {"month": ["May"] * 4, "yes: no": ["a", "#b"] * 2, "age": [30, 41, None, 55], "y": [0, 1] * 2})
    done = tide("data", "check", tmp_path)
    copied = yaml.safe_load(done.output.split("A world that fits:\n\n")[1].split("\n\n")[0])["world"]
    assert plain_world(world_in(copied)) == json_of(tide("data", "check", tmp_path, "--json"))["world"]
    assert "Not in this world: month. A column is proposed if" in done.output


def test_a_folder_that_would_be_refused(site: Path) -> None:
    (site / "ward" / "cat" / "01.png").write_bytes(b"x")
    done = tide("data", "check", site)
    assert done.exit_code == REFUSED
    assert "Refused: " in done.output and "1 of 10 images cannot be read" in done.output
    assert "cat/01.png" in done.output and "What to do: " in done.output
    assert "An agent would refuse this folder." in done.output


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_the_world_of_an_experiment(site: Path, tmp_path: Path, whole: bool, suffix: str) -> None:
    world = {"inputs": [1, 8, 8], "classes": 3, "class_names": ["cat", "dog", "owl"]}
    file = tmp_path / f"digits.{suffix}"
    file.write_text(json.dumps({"method": "fedavg", "world": world} if whole else world))
    told = json_of(tide("data", "check", site, "--world", file, "--json"))
    assert told["usable"] and told["given"] and told["world"] == {**world, "model": "lenet", "sizes": {}}
    (domain,) = told["domains"]
    assert [c["name"] for c in domain["classes"]] == ["cat", "dog", "owl"]
    assert domain["samples"] == 10 and domain["held_out"] == 2 and domain["balance"]


def test_a_world_that_does_not_fit(site: Path, tmp_path: Path) -> None:
    """The report says why, and ends with 2; a world that is none is told with its line."""
    file = tmp_path / "digits.yaml"
    file.write_text("method: fedavg\nworld:\n  inputs: [1, 8, 8]\n  classes: 2\n")
    done = tide("data", "check", site, "--world", file, "--json")
    assert done.exit_code == REFUSED
    told = json.loads(done.stdout)
    assert not told["usable"] and "none of the classes 0 to 1" in told["refused"][0]["what"]
    assert told["domains"][0]["refused"] == told["refused"][0] and told["refused"][0]["path"] == str(site / "ward")
    file.write_text("method: fedavg\nworld:\n  inputs: [1, 8, 8]\n  classes: 1\n")
    assert_refuses(tide("data", "check", site, "--world", file), f"{file}:4: world.classes is 1")
    file.write_text("inputs: [1, 8, 8]\nclasses: 1\n")
    assert f"{file}:2: world.classes is 1" in tide("data", "check", site, "--world", file).output


@pytest.mark.parametrize("args", [("--role", "boss"), ("--world", "nowhere.yaml")])
def test_wrong_options(site: Path, args: tuple[str, str]) -> None:
    assert_refuses(tide("data", "check", site, *args), "What to do: ")


def test_no_folder(tmp_path: Path) -> None:
    done = tide("data", "check", tmp_path / "none", "--json")
    assert done.exit_code == REFUSED and json.loads(done.stdout)["kind"] == "DataRefused"


def test_tables_without_labels(tmp_path: Path) -> None:
    write(tmp_path, "csv", {k: v for k, v in table().items() if k != "y"})
    done = tide("data", "check", tmp_path)
    assert done.exit_code == DONE and "read as a target" in done.output and "no labels" in done.output
    assert "world: {model: mlp, inputs: [2]}, with any number of classes" in done.output
    assert tide("data", "check", tmp_path, "--role", "source").exit_code == REFUSED


def test_a_folder_whose_labels_tell_no_world(tmp_path: Path) -> None:
    """People and programs are told that none was guessed; an agent can use it."""
    np.savez(tmp_path / "many.npz", x=np.zeros((60, 8, 8), np.uint8), y=np.arange(60) * 1000)
    done = output_of(tide("data", "check", tmp_path))
    assert "No world could be guessed: the labels have more than" in done and "What to do: Give the run's" in done
    assert "An agent can use this folder, if its labels are classes of the run." in done
    told = json_of(tide("data", "check", tmp_path, "--json"))
    assert told["usable"] and told["world"] is None and "1000 different" in told["unguessed"]


def test_a_cell_is_told_to_its_owner(tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text('a,b,y\n1,"3,5",0\n2,3,1\n4,5,2\n')
    done = tide("data", "check", tmp_path)
    assert done.exit_code == REFUSED
    assert all(words in done.output for words in ("line 2, column 2", "cell: 3,5", "column: b"))


def test_names_from_elsewhere_do_not_steer_the_terminal(tmp_path: Path) -> None:
    """A domain's and a class's name may hold anything that a file system takes, and many classes are not all told."""
    save_classes(tmp_path / "wa\x1b[31mrd", {"c\x1bt": 5, "dog": 5})
    done = tide("data", "check", tmp_path)
    assert done.exit_code == REFUSED and "\x1b" not in done.output  # the name of a class has to be printable
    np.savez(tmp_path / "many.npz", x=np.zeros((60, 8, 8), np.uint8), y=np.arange(60))
    assert tide("data", "check", tmp_path).exit_code == REFUSED


def test_a_sample_of_digits(tmp_path: Path) -> None:
    """A folder that an agent can use; the parts of a domain share nothing."""
    told = [tide("data", "sample", tmp_path / n, "--domain", "usps", "--part", f"{n}/2", "--json") for n in "12"]
    said = [json.loads(each.stdout) for each in told]
    assert said[0]["samples"] > 900 and said[0]["held_out"] > 200 and said[0]["folder"] == str(tmp_path / "1")
    assert tide("data", "check", tmp_path / "1", "--role", "source").exit_code == DONE
    one, two = ({row.tobytes() for row in np.load(tmp_path / n / "usps.npz", allow_pickle=False)["x"]} for n in "12")
    assert not one & two
    assert "held out" in output_of(tide("data", "sample", tmp_path / "bare", "--domain", "optdigits", "--no-labels"))
    assert "y" not in np.load(tmp_path / "bare" / "optdigits.npz", allow_pickle=False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--domain", "uspz"), "Use one of: mnist, usps, optdigits, coloured (did you mean usps?)"),
        (("--domain", "usps", "--part", "3/2"), "--part is '3/2'"),
        (("--domain", "usps", "--part", "1/5000"), "cannot be dealt in 5000 parts"),
    ],
)
def test_a_sample_that_cannot_be(tmp_path: Path, given: tuple[str, ...], told: str) -> None:
    assert told in " ".join(refusal_of(tide("data", "sample", tmp_path / "new", *given)).split())
    assert not (tmp_path / "new").exists()


def test_a_sample_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Cannot write to" in refusal_of(tide("data", "sample", tmp_path / "file", "--domain", "usps"))


def test_check_says_where_features_have_other_scales(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (40, 2)) * (0.01, 4e6)
    np.savez(tmp_path / "table.npz", x=x.astype(np.float32), y=np.arange(40) % 2)
    (file := tmp_path.with_suffix(".yaml")).write_text("{model: linear, inputs: [2], classes: 2, normalise: none}")
    for given, words in (
        ((), "A run brings them to one scale"),
        (("--world", file), "learn next to nothing from the small ones"),
    ):
        shown = output_of(tide("data", "check", tmp_path, *given))
        assert "features of other scales: ranges from 0.019" in shown and words in " ".join(shown.split())


@pytest.mark.parametrize("words", [False, True])
def test_whose_rows_are_is_told(tmp_path: Path, words: bool) -> None:
    """How many units there are; their column is no feature, and in no world that is proposed."""
    more = {"sex": ["f", "m"] * 20} if words else {}
    write(tmp_path / "d", "csv", {**table(40), **more, "patient": [i % 7 for i in range(40)]})
    (tmp_path / "d" / "transforms.toml").write_text('[ward]\nunit = "patient"\n')
    done = tide("data", "check", tmp_path / "d")
    assert done.exit_code == DONE, done.output
    assert "ward, its rows belong to: 7 patients" in done.output and '"patient"' not in done.output
    (folder,) = json_of(tide("data", "check", tmp_path / "d", "--json"))["domains"]
    assert (folder["unit"], folder["units"]) == ("patient", 7)
    assert next(each["use"] for each in folder["columns"] if each["name"] == "patient") == "unit"


PLACE = "python:tests.learning.python_sites"


def checked(*words: str) -> tuple[int, str]:
    result = tide("data", "check", *words)
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


def test_what_is_wrong_with_it() -> None:
    row = "row 17 of the training dataset: reading it raised OSError"
    for name, words in {"no": "cannot be loaded: AttributeError", "row_17": row, "raises": "raises KeyError"}.items():
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
    assert_refuses(tide(*command), words, "python:MODULE:NAME")


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
    told = output_of(tide("predict", "--model", model, "--data", data, "--out", out, "--device", "cpu", *more, "--json"))
    found, rows = json.loads(told), 4 if "--part" in more else 6
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
