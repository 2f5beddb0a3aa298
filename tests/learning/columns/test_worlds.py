"""Columns that a world declares: how they are written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused
from tideline.core.tables.columns import Column, Missing, code_places, filled_places

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
