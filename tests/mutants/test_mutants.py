"""Mutants are drawn the same way each time, change one line, and are played with the tests that execute it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.choosing import FIRST_OF_ONE_FUNCTION, Reach, scopes
from tests.mutants.drawing import Mutant, draw_mutants, expressions, mutants_by_line, mutated
from tests.mutants.playing import Workshop

MODULE = '''"""A module."""
from dataclasses import dataclass

LIMIT: "int | None" = 3


@dataclass(frozen=True)
class Box:
    size: int = 2


def is_small(size: "int | None") -> "bool":
    """Say whether 4 is enough."""
    if size is None:
        return False
    return size < LIMIT
'''
PLACE = "shared/tideline/core/some.py"


def tree(folder: Path) -> Path:
    """Return a tree of one module."""
    path = folder / PLACE
    path.parent.mkdir(parents=True)
    path.write_text(MODULE)
    return folder


def test_the_same_seed_draws_the_same_mutants(tmp_path: Path) -> None:
    """Each on a line of its own, as many as there are lines or as are asked for."""
    place = tree(tmp_path)
    assert draw_mutants(place, 7, 3) == draw_mutants(place, 7, 3) != draw_mutants(place, 8, 3)
    assert sorted(mutant.line for mutant in draw_mutants(place, 7, 99)) == [4, 9, 14, 15, 16]


def test_a_mutant_changes_its_line_alone() -> None:
    """No annotation, decorator or docstring is changed: nothing could notice that."""
    for line, mutants in mutants_by_line(PLACE, MODULE).items():
        for mutant in mutants:
            pairs = zip(MODULE.splitlines(), mutated(mutant, MODULE).splitlines(), strict=True)
            assert [number for number, (before, after) in enumerate(pairs, 1) if before != after] == [line]
    assert not any(isinstance(node, ast.BinOp) for node in expressions(ast.parse("x: int | None = 3")))


def test_the_scope_of_a_line_grows() -> None:
    """Its statement, its function, its module; what is executed at imports has the module alone."""
    module = ast.parse(MODULE)
    assert [(scope.start, scope.stop) for scope in scopes(module, 14)][:2] == [(14, 15), (12, 17)]
    assert len([*scopes(module, 9)]) == 1


def test_promising_tests_are_played_first() -> None:
    """Quick ones that execute few other modules, and few of one function."""
    names = [f"a.py::test_one[{i}]" for i in range(5)] + ["a.py::test_slow"]
    reach = Reach(dict.fromkeys(names, 0.01) | {"a.py::test_slow": 30.0}, {PLACE: {16: set(names)}})
    tests = reach.tests(Mutant(PLACE, 16, "AddNot", 0), MODULE)
    assert tests[-1] == "a.py::test_slow"
    first, others = reach.batches(tests)
    assert len(first) == FIRST_OF_ONE_FUNCTION and [*first, *others] != [] and set(first) | set(others) == set(names)


@pytest.mark.nightly(job="services")
def test_a_mutant_is_caught_by_a_test_that_passes_without_it(tmp_path: Path) -> None:
    """A test that always fails catches nothing."""
    place = tree(tmp_path)
    (place / "tests").mkdir()
    (place / "tests" / "test_some.py").write_text(
        "def test_broken():\n    assert False\n\n\n"
        "def test_limit():\n    from tideline.core.some import is_small\n    assert is_small(2) and not is_small(3)\n"
    )
    (place / "shared" / "tideline" / "__init__.py").write_text("")
    workshop = Workshop(place, place)
    (mutant,) = [mutant for mutant in mutants_by_line(PLACE, MODULE)[16] if mutant.operator == "ReplaceComparisonOperator_Lt_LtE"]
    names = ["tests/test_some.py::test_broken", "tests/test_some.py::test_limit"]
    try:
        assert workshop.play(mutant, [names]) == ("tests/test_some.py::test_limit", 2)
    finally:
        workshop.warm.close()
    assert (place / PLACE).read_text() == MODULE
