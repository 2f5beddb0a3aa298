"""Which tests are played against a mutant: those that execute its line, the most promising first."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.mutants.drawing import Mutant
from tests.mutants.reach import seconds_by_test, tests_by_line

MOST_SECONDS = 60.0  # of tests, for one mutant: what survives them is called a survivor
FIRST_SECONDS, FIRST_OF_ONE_FUNCTION = 8.0, 3  # the first batch: quick, and of many kinds


def read_reach(folder: Path, paths: Iterable[str]) -> Reach:
    """Return what tests.mutants.reach recorded of these modules."""
    return Reach(seconds_by_test(folder), {path: tests_by_line(folder, path) for path in paths})


@dataclass(frozen=True)
class Reach:
    """What a recorded suite executed. seconds: of each test. lines: of each module, the tests that execute each line."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, set[str]]]

    @cached_property
    def modules(self) -> Counter[str]:
        """How many modules each test executes."""
        return Counter(test for lines in self.lines.values() for test in set().union(*lines.values()))

    def tests(self, mutant: Mutant, text: str) -> list[str]:
        """Return the tests that execute the mutant's line, those first that are quick and execute few other modules."""
        lines = self.lines[mutant.path]
        for scope in scopes(ast.parse(text), mutant.line):
            tests: set[str] = set().union(*(lines.get(line, set()) for line in scope))
            if tests:
                return sorted(tests, key=lambda test: (self.modules[test] * (0.05 + self.seconds[test]), test))
        return []

    def batches(self, tests: Iterable[str]) -> Iterator[list[str]]:
        """Yield a small first batch, then the others as far as time goes."""
        functions: Counter[str] = Counter()
        first: list[str] = []
        others: list[str] = []
        spent = 0.0
        for test in tests:
            function = test.partition("[")[0]
            functions[function] += 1
            spent += self.seconds[test]
            if spent <= FIRST_SECONDS and functions[function] <= FIRST_OF_ONE_FUNCTION:
                first.append(test)
            elif spent <= MOST_SECONDS or not others:
                others.append(test)
        yield from filter(None, (first, others))


def scopes(tree: ast.Module, line: int) -> Iterator[range]:
    """Yield the lines of the statement at a line, then those of its function, then those of the module."""
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)]
    functions = [node for node in around if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if functions:
        statement = max(around, key=lambda node: node.lineno)
        body = getattr(statement, "body", None)
        yield range(statement.lineno, body[0].lineno if body else (statement.end_lineno or 0) + 1)
        function = max(functions, key=lambda node: node.lineno)
        yield range(function.lineno, (function.end_lineno or 0) + 1)
    yield range(1, 10**6)
