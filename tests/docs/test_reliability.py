"""docs/reliability.md promises R1 to R9, and each promise names tests that are there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.manual import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = dict(re.findall(r"^\| (R\d) \|(.*)\|$", PAGE, re.M))


def test_every_property_has_a_row() -> None:
    """R1 to R9, each with its words, its means and its tests."""
    assert list(ROWS) == [f"R{n}" for n in range(1, 10)]
    assert all(len([cell for cell in row.split("|") if cell.strip()]) == 3 for row in ROWS.values())


@pytest.mark.parametrize("number", ROWS)
def test_its_tests_are_there(number: str) -> None:
    """Every test that a row names, file and function."""
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", ROWS[number])
    assert named
    for path, function in named:
        tree = ast.parse((ROOT / path).read_text())
        tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
        assert tests and (not function or function in tests), f"{path}::{function}"
