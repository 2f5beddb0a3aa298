"""A ratchet on sizes: the numbers may be lowered, never raised. The worst five are printed where one is missed."""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.architecture.sources import REPOSITORY, sources

FUNCTION_MEDIAN, FUNCTION_P90, FUNCTION_MAX = 10, 30, 80
ARGUMENTS_P90 = 5
FILE_MAX = 500  # the limit; about 150 is the habit
FOLDER_MAX = 15


@dataclass(frozen=True)
class Function:
    """One function: where it is, its lines without the docstring, its arguments without self."""

    where: str
    lines: int
    arguments: int


def functions() -> Iterator[Function]:
    """Every function and method of the four roots."""
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{source.path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"
                yield Function(where, length(node), arguments(node))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    assert node.end_lineno is not None
    total = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        assert first.end_lineno is not None
        total -= first.end_lineno - first.lineno + 1
    return total


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """All arguments but self and cls."""
    a = node.args
    named = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len([n for n in named if n not in ("self", "cls")]) + bool(a.vararg) + bool(a.kwarg)


def p90(numbers: list[int]) -> int:
    """The 90th percentile: nine in ten are not larger."""
    return sorted(numbers)[-(-9 * len(numbers) // 10) - 1]


def worst(rows: list[tuple[int, str]]) -> str:
    """The largest five, one a line."""
    return "\n" + "\n".join(f"{size:5d}  {where}" for size, where in sorted(rows, reverse=True)[:5])


def test_functions_are_short() -> None:
    """Median, 90th percentile and longest."""
    rows = [(f.lines, f.where) for f in functions()]
    lines = [n for n, _ in rows]
    assert len(lines) > 200
    assert statistics.median(lines) <= FUNCTION_MEDIAN, worst(rows)
    assert p90(lines) <= FUNCTION_P90, worst(rows)
    assert max(lines) <= FUNCTION_MAX, worst(rows)


def test_functions_take_few_arguments() -> None:
    """The 90th percentile; many settings travel as one config value."""
    rows = [(f.arguments, f.where) for f in functions()]
    assert p90([n for n, _ in rows]) <= ARGUMENTS_P90, worst(rows)


def test_files_are_short() -> None:
    """One screenful of ideas a file."""
    rows = [(len(s.path.read_text().splitlines()), str(s.path.relative_to(REPOSITORY))) for s in sources()]
    assert max(n for n, _ in rows) <= FILE_MAX, worst(rows)


def test_folders_hold_few_files() -> None:
    """A newcomer guesses which one to open. Migrations are a history and no choice."""
    count = Counter(s.path.parent.relative_to(REPOSITORY) for s in sources() if s.path.parent.name != "versions")
    assert max(count.values()) <= FOLDER_MAX, worst([(n, str(folder)) for folder, n in count.items()])


def test_the_measure_measures() -> None:
    """A docstring does not count, neither does self; what is inside counts."""
    text = 'class A:\n    def f(self, a, *b, c=1, **d):\n        """One.\n\n        Two."""\n        x = 1\n        return x\n'
    node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    assert (length(node), arguments(node)) == (3, 4)
    assert p90([1] * 9 + [100]) == 1
    assert p90([1] * 8 + [100] * 2) == 100
