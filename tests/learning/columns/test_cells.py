"""Cells of declared columns, in .csv by both readers and in .parquet: what they come to, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.learning.test_tables import refused, write
from tideline.core.asked.world import World, world_in
from tideline.core.run import Role
from tideline.learning.formats.columns import fast_csv
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.scan import scan

Read = Callable[[Path, World], torch.Tensor]
KINDS = pytest.mark.parametrize("kind", ["csv", "slow", "parquet"])


@pytest.fixture(autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind") == "slow":
        monkeypatch.setattr(fast_csv, "check_head", unsure)


def unsure(*given: object) -> None:
    raise fast_csv.Unsure


def of(columns: Any, **more: Any) -> World:
    return world_in({"columns": columns, "classes": 2, "model": "mlp", **more})


def laid(folder: Path, kind: str, columns: dict[str, Any]) -> Path:
    return write(folder, kind.replace("slow", "csv"), {**columns, "y": [0, 1] * 2})


def read(folder: Path, world: World) -> list[list[float]]:
    return torch.cat([part.x for part in scan(folder, world)]).tolist()


@KINDS
def test_categories_have_an_input_each(tmp_path: Path, kind: str) -> None:
    """In the world's order, not in that of the table; in whichever order its columns stand."""
    laid(tmp_path, kind, {"note": ["p", "q", "r", "s"], "sex": ["m", "f", "m", "f"], "age": [1.5, 2, 3, 4]})
    assert read(tmp_path, of({"age": "number", "sex": ["f", "m"]})) == [[1.5, 0, 1], [2, 1, 0], [3, 0, 1], [4, 1, 0]]


@KINDS
def test_codes(tmp_path: Path, kind: str) -> None:
    """A category's number; others and missing ones have the last two."""
    laid(tmp_path, kind, {"kind": ["b", "zz", None, "a"]})
    given = {"categories": ["a", "b"], "as": "codes", "other": True, "missing": "indicator"}
    assert read(tmp_path, of({"kind": given})) == [[1], [2], [3], [0]]


@KINDS
def test_missing_cells_have_an_input(tmp_path: Path, kind: str) -> None:
    laid(tmp_path, kind, {"a": [1.5, None, 3, 4], "sex": ["f", None, "m", "f"]})
    world = of({"a": "number", "sex": ["f", "m"]}, missing="indicator")
    assert read(tmp_path, world) == [[1.5, 0, 1, 0, 0], [0, 1, 0, 0, 1], [3, 0, 0, 1, 0], [4, 0, 1, 0, 0]]


@KINDS
def test_missing_cells_that_a_median_fills_are_nan(tmp_path: Path, kind: str) -> None:
    laid(tmp_path, kind, {"a": [1.5, None, 3, 4]})
    x = read(tmp_path, of({"a": {"missing": "median"}}))
    assert math.isnan(x[1][0]) and [row[0] for row in x if row != x[1]] == [1.5, 3, 4]


@pytest.mark.parametrize("kind", ["csv", "slow"])
@pytest.mark.parametrize("cell", ["", "NA", "na", " N/A ", "NaN", "nan", "NULL", "Null", '""', '"NA"'])
def test_what_counts_as_missing(tmp_path: Path, kind: str, cell: str) -> None:
    (tmp_path / "ward.csv").write_text(f"a,b\n1,x\n{cell},x\n3,y\n")
    assert read(tmp_path, of({"a": {"missing": "indicator"}, "b": ["x", "y"]}))[1] == [0, 1, 1, 0]
    error = refused(tmp_path, "line 3, column 1: the value is missing", Role.TARGET, of({"a": "number", "b": ["x", "y"]}))
    assert "missing: median" in error.todo


@pytest.mark.parametrize("kind", ["csv", "slow"])
@pytest.mark.parametrize("cell", ["-nan", "inf", "-inf", "1e999", "x", "1,5", "none", "0x1p3", "-"])
def test_what_does_not(tmp_path: Path, kind: str, cell: str) -> None:
    (tmp_path / "ward.csv").write_text(f'a,b\n1,x\n"{cell}",x\n3,y\n')
    world = of({"a": {"missing": "indicator"}, "b": ["x", "y"]})
    assert refused(tmp_path, "line 3, column 1: not a finite number", Role.TARGET, world).context["cell"] == cell


@KINDS
def test_a_category_that_is_not_declared(tmp_path: Path, kind: str) -> None:
    """The column is named; the cell is for the owner alone. `other` gives it a place."""
    laid(tmp_path, kind, {"sex": ["f", "m", "secret", "f"]})
    place = "row 2" if kind == "parquet" else "line 4"
    error = refused(tmp_path, f"{place}, column sex: the category is none of those", Role.TARGET, of({"sex": ["f", "m"]}))
    assert error.context["cell"] == "secret" and "secret" not in f"{error.what} {error.todo}" and "other: true" in error.todo
    assert read(tmp_path, of({"sex": {"categories": ["f", "m"], "other": True}}))[2] == [0, 0, 1]


@KINDS
def test_a_missing_category_is_refused_without_a_rule(tmp_path: Path, kind: str) -> None:
    laid(tmp_path, kind, {"sex": ["f", "m", None, "f"]})
    refused(tmp_path, "column sex: the value is missing", Role.TARGET, of({"sex": {"categories": ["f", "m"], "other": True}}))
    assert read(tmp_path, of({"sex": {"categories": ["f", "NA"], "other": True, "missing": "indicator"}}))[2] == [0, 0, 0, 1]


@KINDS
def test_a_word_for_missing_may_be_a_category(tmp_path: Path, kind: str) -> None:
    laid(tmp_path, kind, {"where": ["NA", "EU", "EU", "NA"]})
    assert read(tmp_path, of({"where": ["EU", "NA"]})) == [[0, 1], [1, 0], [1, 0], [0, 1]]


@KINDS
def test_a_missing_column_is_named(tmp_path: Path, kind: str) -> None:
    laid(tmp_path, kind, {"aeg": [1, 2, 3, 4]})
    error = refused(tmp_path, "there is no column 'age', which the world declares", Role.TARGET, of(["age"]))
    assert error.context["near"] == "did you mean aeg?" and "aeg" not in f"{error.what} {error.todo}"


@KINDS
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scale = 2", "scale has no meaning for a table whose columns the world declares"),
        ("mean = [1.0]", "mean has no meaning"),
        ('drop = ["age"]', "declares the column 'age', which has another use here"),
        ('label = "age"', "declares the column 'age', which has another use here"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, kind: str, text: str, said: str) -> None:
    laid(tmp_path, kind, {"age": [1, 2, 3, 4]})
    (tmp_path / "transforms.toml").write_text(f"[ward]\n{text}\n")
    refused(tmp_path, said, Role.TARGET, of(["age"]))


@KINDS
def test_truth_and_whole_numbers_are_categories_too(tmp_path: Path, kind: str) -> None:
    laid(tmp_path, kind, {"ill": [True, False, True, False], "ward": [1.0, 2.0, 1.0, 2.0]})
    for ill in (["false", "true"], ["0", "1"]):
        assert read(tmp_path, of({"ill": {"categories": ill, "as": "codes"}, "ward": ["1", "2"]}))[0] == [1, 1, 0]


def test_arrays_have_no_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "ward.npz", x=np.zeros((4, 1)))
    refused(tmp_path, "the arrays of an .npz file have none", Role.TARGET, of(["age"]))


NUMBERS = [
    pa.array([1, 2, None, 4], pa.int64()),
    pa.array([1.0, 2.0, math.nan, 4.0]),
    pa.array([decimal.Decimal("1.00"), decimal.Decimal("2.00"), None, decimal.Decimal("4.00")]),
    pa.array([1, 2, None, 4]).dictionary_encode(),
    pa.array(["1", "2", "NA", "4"]),
    pa.array(["1", "2", "NA", "4"]).dictionary_encode(),
    pa.array(["1", "2", "", "4"], pa.large_string()),
]


@pytest.mark.parametrize("values", NUMBERS, ids=lambda values: str(values.type))
def test_types_of_numbers(tmp_path: Path, values: Any) -> None:
    write(tmp_path, "parquet", {"a": values})
    assert read(tmp_path, of({"a": {"missing": "indicator"}})) == [[1, 0], [2, 0], [0, 1], [4, 0]]
    refused(tmp_path, "row 2, column 1: the value is missing", Role.TARGET, of(["a"]))


DATES = [datetime.date(2020, 1, day) for day in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("values", "words", "todo"),
    [
        (pa.array(DATES), "dates or times", "days since a date"),
        (pa.array([1, 2, 3, 4], pa.timestamp("ns")), "dates or times", "days since a date"),
        (pa.array([True, False] * 2), "true and false", "Write 0 and 1"),
        (pa.array([[1]] * 4), "holds no numbers", "numbers of each part"),
        (pa.array([b"x"] * 4), "holds no numbers", "numbers of each part"),
    ],
)
def test_types_that_are_no_numbers(tmp_path: Path, values: Any, words: str, todo: str) -> None:
    write(tmp_path, "parquet", {"a": values})
    error = refused(tmp_path, words, Role.TARGET, World(inputs=(1,), classes=2))
    assert todo in error.todo and error.context["kind"]


def test_declared_types(tmp_path: Path) -> None:
    """Truth values are numbers where the world says so, dates categories."""
    write(tmp_path, "parquet", {"a": pa.array([True, None, False, True]), "day": DATES})
    assert read(tmp_path, of({"a": {"missing": "indicator"}}))[:2] == [[1, 0], [0, 1]]
    assert read(tmp_path, of({"day": [str(day) for day in DATES]}))[1] == [0, 1, 0, 0]
    refused(tmp_path, "dates or times", Role.TARGET, of(["day"]))


def test_wide_values_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "parquet", {"a": [1.0, None, 1e39, 1.0]})
    refused(tmp_path, "too large for float32", Role.TARGET, of({"a": {"missing": "median"}}))


def test_extra_columns_are_left(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": list("abcd"), "b": [1, 2, 3, 4], "y": [0, 1, 0, 1]}), tmp_path / "ward.parquet")
    assert read_folder(tmp_path, of(["b"]), Role.SOURCE).train.labelled
