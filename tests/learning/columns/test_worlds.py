"""Columns that a world declares, what columns hold, and which columns of a world fit several tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.learning.test_tables import write
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.tables.columns import Coding, Column, Missing, code_places, filled_places
from tideline.learning.formats.columns import fast_csv
from tideline.learning.formats.columns.proposing import FEW, MANY
from tideline.learning.formats.columns.several import common_world
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import FolderReport, inspect

COLUMNS = {"age": "number", "sex": ["f", "m"], "kind": {"categories": [1, 2, 3], "as": "codes", "other": True}}


def of(columns: Any, **more: Any) -> World:
    return world_in({"columns": columns, "classes": 2, "model": "mlp", **more})


def test_inputs_follow_from_columns() -> None:
    world = of(COLUMNS)
    assert world.inputs == (4,) and [column.width for column in world.columns] == [1, 2, 1]
    assert code_places(world.columns) == (3,) and not world.fills
    assert of(COLUMNS, inputs=[4]) == world and of(["a", "b"]).inputs == (2,)


def test_a_rule_for_missing_cells() -> None:
    """Of the world, or of a column, whose own comes first; a category's missing cells have a place."""
    world = of({**COLUMNS, "bmi": {"missing": "indicator"}}, missing="median")
    assert [column.missing for column in world.columns] == [*[Missing.MEDIAN] * 3, Missing.INDICATOR]
    assert world.inputs == (1 + 3 + 1 + 2,) and filled_places(world.columns) == (0,) and world.fills
    assert world.columns[2].places == 3 + 1 + 1


@pytest.mark.parametrize("columns", [COLUMNS, [{"name": "b"}, "a"], {"sex": {"categories": ["f", "m"], "missing": "median"}}])
def test_a_world_is_written_as_it_was_read(columns: Any) -> None:
    world = of(columns)
    assert world_in(plain_world(world)) == world and isinstance(plain_world(world)["columns"], list)


def test_a_world_without_columns_is_what_it_was() -> None:
    assert "columns" not in plain_world(World()) and of({}, inputs=[3]).columns == ()


def test_the_order_is_part_of_the_world() -> None:
    assert of(["a", "b"]) != of(["b", "a"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"missing": "median"}, "there are no columns"),
        ({"columns": 3}, "should be a mapping of names"),
        ({"columns": {"a": [True, False]}}, "Put the category in quotes"),
        ({"columns": {"a": [0.5, 1.5]}}, "Put the category in quotes"),
        ({"columns": {"a": [None, "x"]}}, "Put the category in quotes"),
        ({"columns": {"a": ["x", "x "]}}, "cannot stand for one category alone"),
        ({"columns": {"a": ["", "x"]}}, "for empty cells there is the rule missing"),
        ({"columns": {"a": ["x"]}}, "has a single category"),
        ({"columns": {"a": {"as": "codes"}}}, "settings of categories, and no categories"),
        ({"columns": {"a": {"other": True}}}, "settings of categories, and no categories"),
        ({"columns": {"a": {"categories": ["x", "y"], "as": "numbers"}}}, "should be one of one_hot, codes"),
        ({"columns": ["a", " a"]}, "cannot name one column alone"),
        ({"columns": [""]}, "cannot name one column alone"),
        ({"columns": [{"categories": ["x", "y"]}]}, "name is missing"),
        ({"columns": ["a"], "inputs": [2]}, "its columns take 1 inputs"),
        ({"columns": {"a": "nmber"}}, "should be number, a list of categories, or a mapping"),
        ({"columns": {"a": {"kind": "x"}}}, "kind is not a known setting"),
        ({"columns": ["a"], "missing": "mean"}, "did you mean median?"),
        ({"columns": {"a": [f"{i:09}" for i in range(30_000)]}}, "characters of names and categories"),
        ({"columns": {"a": {"categories": ["x", "y"], "as": "codes"}}, "normalise": "site_whiten"}, "numbers of categories"),
    ],
)
def test_bad_columns_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigRefused) as refusal:
        world_in({"classes": 2, **given})
    assert words in str(refusal.value) and refusal.value.todo
    assert str(refusal.value.context["path"]).startswith("world.")


def test_a_column_is_plain_in_its_shortest_form() -> None:
    assert Column("age").plain == {"name": "age"}


KINDS = pytest.mark.parametrize("kind", ["csv", "slow", "parquet"])
MIXED = {
    "age": [30, 41, None, 55, 62, 70] * 2,
    "sex": ["f", "m", "m", "f", None, "m"] * 2,
    "born": ["1990-01-02", "1980-03-04"] * 6,
    "none": [None] * 12,
    "y": [0, 1] * 6,
}


def look(folder: Path, kind: str, columns: dict[str, list[object]], monkeypatch: pytest.MonkeyPatch) -> FolderReport:
    if kind == "slow":
        monkeypatch.setattr(fast_csv, "check_head", refuse)
    write(folder, "parquet" if kind == "parquet" else "csv", columns)
    return inspect(folder, None, None)


def refuse(*given: object) -> None:
    raise fast_csv.Unsure


@KINDS
def test_what_columns_hold(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges, categories and the share of missing cells; the world that fits has what a network can use."""
    report = look(tmp_path, kind, {**MIXED, "id": [f"p{i % 9}{i}" for i in range(12)]}, monkeypatch)
    age, sex, born, none, y, _ = report.domains[0].columns
    assert (age.kind, age.low, age.high, age.use) == ("number", 30, 70, "feature") and age.missing == pytest.approx(1 / 6)
    assert (sex.kind, sex.categories) == ("category", ("f", "m")) and sex.missing == pytest.approx(1 / 6)
    assert (born.kind, none.kind, none.missing, y.use) == ("date", "empty", 1.0, "label")
    world = world_in(report.world or {})
    assert world.columns[:2] == (Column("age", missing=Missing.INDICATOR), Column("sex", ("f", "m"), missing=Missing.INDICATOR))
    assert [column.name for column in world.columns] == ["age", "sex", "id"] and report.usable, report.refused
    assert read_folder(tmp_path, world, Role.SOURCE).train.labelled


@KINDS
def test_plain_numbers_need_no_columns(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = look(tmp_path, kind, {"a": [1, 2, 3, 4], "y": [0, 1, 0, 1]}, monkeypatch)
    assert report.world is not None and "columns" not in report.world and report.world["inputs"] == [1]
    assert [column.use for column in report.domains[0].columns] == ["feature", "label"]


def test_texts_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = FEW + 2
    report = look(
        tmp_path, "csv", {"note": [f"n{i}" for i in range(n)], "a": list(range(n)), "y": [0, 1] * (n // 2)}, monkeypatch
    )
    assert report.domains[0].columns[0].kind == "text"
    assert [column.name for column in world_in(report.world or {}).columns] == ["a"]


def test_numbers_with_a_mistake_are_refused_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 2 * FEW
    report = look(tmp_path / "a", "csv", {"a": [*range(n - 1), "typo"], "y": [0, 1] * FEW}, monkeypatch)
    assert f"line {n + 1}, column 1: not a finite number" in str(report.refused[0]["what"])
    report = look(tmp_path / "b", "csv", {"a": ['"1,5"', "2", "3", "4"], "y": [0, 1] * 2}, monkeypatch)
    assert "it has a decimal comma" in str(report.refused[0]["what"])


def test_several_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All categories of all, what all tables have, and a rule where one has gaps."""
    one = look(tmp_path / "a", "csv", {"sex": ["f", "m"] * 3, "a": [1] * 6, "x": [1, 2] * 3, "y": ["p", "q"] * 3}, monkeypatch)
    other = look(tmp_path / "b", "csv", {"a": [2, None] * 3, "sex": ["d", "f"] * 3, "y": ["q", "r"] * 3}, monkeypatch)
    world = common_world([one, other])
    assert world.columns == (Column("sex", ("d", "f", "m")), Column("a", missing=Missing.INDICATOR))
    assert world.class_names == ("p", "q", "r") and world.inputs == (5,)
    assert all(inspect(tmp_path / name, world, Role.SOURCE).usable for name in "ab") and world.model == "tabular"


def test_columns_with_categories_get_the_network_that_is_made_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only another folder has categories. A column of many is proposed as codes, which the network embeds."""
    n = MANY + 1
    words, labels = [f"w{i}" for i in range(n)] * 2, ["p", "q"] * n
    report = look(tmp_path / "a", "csv", {"ward": words, "sex": ["f", "m"] * n, "y": labels}, monkeypatch)
    world = world_in(report.world or {})
    assert world.model == "tabular" and [column.coding for column in world.columns] == [Coding.CODES, Coding.ONE_HOT]
    assert read_folder(tmp_path / "a", world, Role.SOURCE).train.x.shape == (3,)
    plain = look(tmp_path / "b", "csv", {"sex": [1, None] * n, "a": [1] * 2 * n, "y": labels}, monkeypatch)
    assert (plain.world or {})["model"] == "mlp"
    mixed = look(tmp_path / "c", "csv", {"a": ["u", "v"] * n, "b": [1] * 2 * n, "y": labels}, monkeypatch)
    other = look(tmp_path / "d", "csv", {"b": [1, None] * n, "a": ["u", "v"] * n, "y": labels}, monkeypatch)
    assert common_world([mixed, other]).model == "tabular"


def test_folders_without_anything_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = look(tmp_path / "a", "csv", {"a": [1, 2] * 2, "y": [0, 1] * 2}, monkeypatch)
    other = look(tmp_path / "b", "csv", {"b": ["u", "v"] * 2, "y": [0, 1] * 2}, monkeypatch)
    with pytest.raises(DataRefused, match="no column in common"):
        common_world([one, other])
    named = look(tmp_path / "c", "csv", {"a": [1, 2] * 2, "y": ["u", "v"] * 2}, monkeypatch)
    with pytest.raises(DataRefused, match="Some folders name their classes"):
        common_world([one, named])
    assert isinstance(common_world([one, one]), World)
