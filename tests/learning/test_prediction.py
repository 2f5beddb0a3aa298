"""Rows of every kind of folder, predicted in order; shares with their intervals."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.learning import python_sites
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.learning.model_file import Model
from tideline.learning.prediction import Classifier, Tally, device_of, predict_data
from tideline.learning.sites.module import read_python
from tideline.numerics.labels.scores import wilson

FEATURES = World(inputs=(4,), classes=2, model="linear", class_names=("no", "yes"))
SITES = "python:tests.learning.python_sites"
THREE = World(inputs=(4,), classes=3, model="linear", class_names=("a", "b", "c"))


def model(world: World = FEATURES) -> Classifier:
    torch.manual_seed(0)
    return Classifier(Model(world, nets.weights_of(nets.build(world))))


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_table_whose_rows_are_partly_labelled(tmp_path: Path) -> None:
    """Every row is predicted, with a label or without, and those with one are scored; held-out ones alone, if asked for."""
    rows = ["a,b,c,d,label", *(f"{i},1,2,3,{('no', 'yes', '')[i % 3]}" for i in range(15))]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ward.csv").write_text("\n".join(rows) + "\n")
    made = model()
    found = predict_data(made, tmp_path / "in", tmp_path / "out.csv")
    assert (found["rows"], found["labelled"]) == (15, 10)
    read = lines(tmp_path / "out.csv")
    assert [(row["domain"], row["row"]) for row in read] == [("ward", str(i)) for i in range(15)]
    x = torch.tensor([[float(i), 1, 2, 3] for i in range(15)])
    assert [row["class"] for row in read] == list(made.predict(x).names)
    assert np.allclose([float(row["p(yes)"]) for row in read], made.predict(x).probabilities[:, 1])
    held = predict_data(made, tmp_path / "in", tmp_path / "held.csv", held_out=True)
    assert held["rows"] == 3 and {row["row"] for row in lines(tmp_path / "held.csv")} < {row["row"] for row in read}


def test_images_have_the_names_of_their_files(tmp_path: Path) -> None:
    world = World(inputs=(1, 8, 8), classes=2, model="lenet", class_names=("no", "yes"))
    for i in range(4):
        place = tmp_path / "in" / "scans" / ("no", "yes")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(place / f"{i}.png")
    found = predict_data(model(world), tmp_path / "in", tmp_path / "out.csv")
    assert (found["rows"], found["labelled"]) == (4, 4)
    assert [row["row"] for row in lines(tmp_path / "out.csv")] == ["no/0.png", "no/2.png", "yes/1.png", "yes/3.png"]


def test_a_targets_folder_with_strange_training_labels(tmp_path: Path) -> None:
    """As an agent does for a target: held-out labels are all that is read."""
    (tmp_path / "in").mkdir()
    y = np.array([9] * 8 + [0, 1])
    np.savez(tmp_path / "in" / "a.npz", x=np.zeros((10, 4), np.float32), y=y, test_idx=np.array([8, 9]))
    found = predict_data(model(), tmp_path / "in", tmp_path / "out.csv")
    assert (found["rows"], found["labelled"]) == (10, 2)


def test_a_folder_that_breaks_midway_leaves_nothing(tmp_path: Path) -> None:
    """A value that is not finite is refused by its row, and no half file stays."""
    (tmp_path / "in").mkdir()
    x = np.zeros((10, 4), np.float32)
    x[7, 1] = np.nan
    np.savez(tmp_path / "in" / "a.npz", x=x)
    with pytest.raises(DataRefused, match=r"a\.npz"):
        predict_data(model(), tmp_path / "in", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_classes_of_the_folder_must_be_the_models(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in" / "a.npz", x=np.zeros((10, 4), np.float32))
    (tmp_path / "in" / "classes.txt").write_text("yes\nno\n")
    with pytest.raises(DataRefused, match="names class 0 'yes'; the world names it 'no'"):
        predict_data(model(), tmp_path / "in", tmp_path / "out.csv")


def test_shares_and_intervals() -> None:
    """Wilson's interval: 8 of 10 is 0.490 to 0.943, as his formula gives it; none and all stay within 0 and 1."""
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == 1.0
    tally = Tally(3)
    tally.add(torch.tensor([0, 0, 1, -1]), torch.tensor([0, 1, 1, 2]))
    scores = tally.scores(("a", "b", "c"))
    assert (scores["rows"], scores["labelled"]) == (4, 3)
    assert scores["accuracy"]["value"] == pytest.approx(2 / 3)  # type: ignore[call-overload,index]
    assert scores["recall"].keys() == {"a", "b"}  # type: ignore[union-attr]


def test_devices() -> None:
    """A word that is no device is refused; auto is one that is there."""
    assert device_of("cpu") == "cpu" and device_of("auto") in ("cpu", "cuda")
    with pytest.raises(ConfigRefused, match="There is no device 'warp'"):
        device_of("warp")


@pytest.mark.parametrize(
    ("name", "options", "dataset", "numbers", "labelled"),
    [
        ("as_three", {}, "test", range(6), 6),
        ("as_three", {"part": "validation"}, "validation", range(4), 4),
        ("as_three", {"part": "train"}, "train", range(20), 20),
        ("as_three", {"held_out": True}, "test", range(6), 6),
        ("in_two", {}, "validation", range(10), 10),
        ("alone", {}, "train", range(30), 30),
        ("half_labelled", {}, "train", range(30), 15),
        ("unlabelled", {}, "train", range(30), 0),
    ],
)
def test_rows_of_a_function(
    tmp_path: Path, name: str, options: dict[str, Any], dataset: str, numbers: range, labelled: int
) -> None:
    """Those of its test dataset, or of the one that is asked for; as the model predicts them from memory."""
    made = model(THREE)
    found = predict_data(made, f"{SITES}:{name}", tmp_path / "out.csv", **options)
    assert (found["rows"], found["labelled"]) == (len(numbers), labelled)
    read, start = lines(tmp_path / "out.csv"), 24 if dataset == "test" else 20 * (dataset == "validation")
    assert [(row["domain"], row["row"]) for row in read] == [(dataset, str(i)) for i in numbers]
    assert [row["class"] for row in read] == list(made.predict(python_sites.X[start : start + len(numbers)]).names)


@pytest.mark.parametrize("name", ["alone", "in_two"])
def test_held_out_rows_of_a_function_are_an_agents(tmp_path: Path, name: str) -> None:
    """Without a test dataset they are the ones that its agent cuts off the rows to train on."""
    predict_data(model(THREE), f"{SITES}:{name}", tmp_path / "out.csv", held_out=True)
    held = read_python(f"tests.learning.python_sites:{name}", THREE, Role.SOURCE).held_out
    read = lines(tmp_path / "out.csv")
    assert torch.equal(python_sites.X[[int(row["row"]) for row in read]], held.x.all())
    assert {row["domain"] for row in read} == {"train"}


def test_a_function_that_gives_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ward").mkdir()
    (tmp_path / "ward" / "ward.csv").write_text("a,b,c,d,label\n" + "".join(f"{i},1,2,3,{'abc'[i % 3]}\n" for i in range(9)))
    monkeypatch.chdir(tmp_path)
    said = [predict_data(model(THREE), data, tmp_path / "out.csv") for data in ("ward", f"{SITES}:in_a_folder")]
    assert said[0] == said[1] and said[0]["rows"] == 9
    for data in ("ward", f"{SITES}:in_a_folder"):
        with pytest.raises(ConfigRefused, match="--part test names a dataset of a function"):
            predict_data(model(THREE), data, tmp_path / "no.csv", part="test")
    assert not (tmp_path / "no.csv").exists()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("good", {"part": "test"}, "--part test: the function gives no such dataset"),
        ("as_three", {"part": "tests"}, "--part tests: the function gives no such dataset"),
        ("as_three", {"part": "train", "held_out": True}, "holds no row to predict"),
        ("wide", {}, "row 0 of the training dataset: x is 5; the world expects 4"),
        ("other_names", {}, "The classes differ: class 2 is 'd' at the site and 'c' in the run"),
        ("row_17", {}, "row 17 of the training dataset: reading it raised OSError"),
        ("raises", {}, "raises KeyError"),
        ("nothing", {}, "gives nothing to train on"),
        ("no", {}, "cannot be loaded: AttributeError"),
    ],
)
def test_what_is_wrong_with_a_function(tmp_path: Path, name: str, options: dict[str, Any], said: str) -> None:
    """It is said with the function's name, without the words of its own errors, and nothing is written."""
    with pytest.raises((ConfigRefused, DataRefused), match=said) as refused:
        predict_data(model(THREE), f"{SITES}:{name}", tmp_path / "out.csv", **options)
    assert refused.value.todo and "patient" not in refused.value.what and list(tmp_path.iterdir()) == []


def test_labels_beyond_the_models_classes(tmp_path: Path) -> None:
    two = World(inputs=(4,), classes=2, model="linear")
    with pytest.raises(DataRefused, match="row 2 of the training dataset: the label is none of the classes 0 to 1"):
        predict_data(model(two), f"{SITES}:good", tmp_path / "out.csv")
