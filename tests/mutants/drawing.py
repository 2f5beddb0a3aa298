"""Draw mutants of core, engine and numerics: one small change in one line each, the same ones for the same seed and tree."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

from tests.planted.faults import ROOT

PLACES = ("shared/tideline/core", "shared/tideline/engine", "shared/tideline/numerics")
SEED, COUNT = 20261128, 200
LEFT_OUT = ("annotation", "returns", "decorator_list")  # fields of the syntax tree
# Operators whose mutants look like mistakes of people. The others turn `<` into `is not`, or `+` into `>>`.
OPERATORS = (
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop"),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("BitOr_BitAnd", "BitAnd_BitOr")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Is_IsNot", "IsNot_Is")),
    *(f"ReplaceUnaryOperator_{pair}" for pair in ("Delete_Not", "Delete_USub")),
)


@dataclass(frozen=True)
class Mutant:
    """The change that an operator makes where it fits for the `occurrence`-th time in a file (from the root)."""

    path: str
    line: int
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        """A name that no other mutant of this tree has."""
        return f"{self.path}:{self.line}:{self.operator}:{self.occurrence}"


def draw_mutants(tree: Path = ROOT, seed: int = SEED, count: int = COUNT) -> list[Mutant]:
    """Return `count` mutants on different lines. Each line that can be mutated is as likely as any other."""
    lines = [(path, line) for path in source_paths(tree) for line in lines_of_code(tree / path)]
    rng = random.Random(seed)
    rng.shuffle(lines)
    candidates: dict[str, Mapping[int, list[Mutant]]] = {}
    drawn: list[Mutant] = []
    for path, line in lines:
        if path not in candidates:
            candidates[path] = mutants_by_line(path, (tree / path).read_text(encoding="utf-8"))
        if line in candidates[path]:
            drawn.append(rng.choice(candidates[path][line]))
        if len(drawn) == count:
            break
    return drawn


def source_paths(tree: Path) -> list[str]:
    """Return the modules that may be mutated, from the root."""
    return sorted(str(path.relative_to(tree)) for place in PLACES for path in (tree / place).rglob("*.py"))


def lines_of_code(path: Path) -> list[int]:
    """Return the numbers of the lines on which an expression begins that a function or a module computes."""
    return sorted({node.lineno for node in expressions(ast.parse(path.read_text(encoding="utf-8")))})


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield every expression below a node, but for annotations and decorators: a mutant there would change no result."""
    for name, value in ast.iter_fields(node):
        if name in LEFT_OUT:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST):
                yield from expressions(child)


def mutants_by_line(path: str, text: str) -> dict[int, list[Mutant]]:
    """Return every mutant of a module that changes what is computed, by its line."""
    nodes, provider = list(ast_nodes(get_ast(text))), OperatorProvider()
    spans = left_out_spans(ast.parse(text))
    found: dict[int, list[Mutant]] = {}
    for name in OPERATORS:
        operator = provider[name]()
        positions = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(positions):
            if not any(begin <= start < end for begin, end in spans):
                found.setdefault(start[0], []).append(Mutant(path, start[0], name, occurrence))
    return found


def left_out_spans(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where each annotation and decorator begins and ends: line from 1, column from 0."""
    values = [getattr(node, name, None) for node in ast.walk(tree) for name in LEFT_OUT]
    nodes = [node for value in values for node in (value if isinstance(value, list) else [value]) if isinstance(node, ast.expr)]
    return [((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)) for node in nodes]


def mutated(mutant: Mutant, text: str) -> str:
    """Return a module's text with the mutant in it."""
    changed: str | None = mutate_code(text, OperatorProvider()[mutant.operator](), mutant.occurrence)
    assert changed is not None and changed != text, f"{mutant.name} does not fit today's code: draw again"
    return changed
