"""A ratchet on sizes: the numbers may be lowered, never raised. The worst five are printed where one is missed."""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from collections.abc import Iterator

from tests.architecture.sources import REPOSITORY, place, sources

Function = ast.FunctionDef | ast.AsyncFunctionDef

FUNCTION_MEDIAN, FUNCTION_P90, FUNCTION_MAX = 10, 30, 80
ARGUMENTS_P90 = 5
FILE_MAX = 500  # the limit; about 150 is the habit
FOLDER_MAX = 15


def functions() -> Iterator[tuple[str, Function]]:
    """Yield every function and method of the four roots, with its place."""
    for source in sources():
        for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef):
            yield f"{place(source, node.lineno)} {node.name}", node


def length(node: Function) -> int:
    """Return the number of lines from `def` to the end, without the docstring."""
    first = node.body[0]
    docstring = 0 if ast.get_docstring(node, clean=False) is None else (first.end_lineno or 0) - first.lineno + 1
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def arguments(node: Function) -> int:
    """Return the number of arguments without self and cls."""
    a = node.args
    named = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len([n for n in named if n not in ("self", "cls")]) + bool(a.vararg) + bool(a.kwarg)


def p90(numbers: list[int]) -> int:
    """Return the 90th percentile: nine in ten numbers are not larger."""
    return sorted(numbers)[-(-9 * len(numbers) // 10) - 1]


def worst(rows: list[tuple[int, str]]) -> str:
    """Return the largest five, one a line."""
    return "\n" + "\n".join(f"{size:5d}  {where}" for size, where in sorted(rows, reverse=True)[:5])


def test_functions_are_short() -> None:
    """Median, 90th percentile and longest."""
    rows = [(length(node), where) for where, node in functions()]
    lines = [n for n, _ in rows]
    assert len(lines) > 200
    assert statistics.median(lines) <= FUNCTION_MEDIAN, worst(rows)
    assert p90(lines) <= FUNCTION_P90, worst(rows)
    assert max(lines) <= FUNCTION_MAX, worst(rows)


def test_functions_take_few_arguments() -> None:
    """The 90th percentile; many settings travel as one config value."""
    rows = [(arguments(node), where) for where, node in functions()]
    assert p90([n for n, _ in rows]) <= ARGUMENTS_P90, worst(rows)


def test_files_are_short() -> None:
    """One screenful of ideas a file."""
    rows = [(len(s.text.splitlines()), str(s.path.relative_to(REPOSITORY))) for s in sources()]
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
