"""docs/architecture.md says what the tree has: packages, layers, declarations, and the functions on its two paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.sources import sources
from tests.architecture.test_layers import LAYERS, OURS, TOP
from tests.docs.manual import DOCS, ROOT, blocks, prose, section, tables, ticked

PAGE = DOCS / "architecture.md"
ROOTS = ("shared", "server", "client_agent")
PATHS = ("How a run starts", "How a reply is folded")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


@cache
def modules() -> dict[str, ast.Module]:
    """Every module, by its dotted name."""
    return {source.module: source.tree for source in sources()}


def packages() -> set[str]:
    """Every package of the three roots; migrations are files for a tool, which nobody imports."""
    found = (path.parent.relative_to(ROOT / root).parts for root in ROOTS for path in (ROOT / root).rglob("__init__.py"))
    return {".".join(parts) for parts in found if "migrations" not in parts}


def mapped() -> Iterator[str]:
    """The packages of the page's tree, by the indentation of its lines."""
    (tree,) = blocks(PAGE, "text")
    above: list[str] = []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, purpose = line.strip().partition(" ")
        assert purpose.strip(), line
        above = [*above[:depth], name]
        yield ".".join(above)


def names_of(target: ast.stmt) -> list[str]:
    """What a statement defines."""
    if isinstance(target, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [target.name]
    targets = target.targets if isinstance(target, ast.Assign) else [target.target] if isinstance(target, ast.AnnAssign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


def found(module: str, name: str) -> ast.stmt | None:
    """A definition of a module, such as `Agent` or `Agent.ready`."""
    body, at = modules()[module].body, None
    for part in name.split("."):
        at = next((each for each in body if part in names_of(each)), None)
        body = at.body if isinstance(at, ast.ClassDef) else []
    return at


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that a module defines."""
    if dotted in modules():
        return True
    parts = dotted.split(".")
    heads = [".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
    module = next((head for head in heads if head in modules()), None)
    return module is not None and found(module, dotted.removeprefix(f"{module}.")) is not None


def test_every_package_is_on_the_map() -> None:
    """The tree on the page is the tree of the code, each package once."""
    listed = list(mapped())
    assert len(listed) == len(set(listed))
    assert set(listed) == packages()


def test_what_is_named_exists() -> None:
    """Modules and paths in backticks."""
    named = ticked(prose(PAGE))
    dotted = [x for x in named if re.fullmatch(r"[\w.]+", x) and x.split(".")[0] in OURS]
    paths = [x for x in named if "/" in x and " " not in x]
    assert len(dotted) > 60 and paths
    assert [x for x in dotted if not exists(x)] + [x for x in paths if not (ROOT / x).exists()] == []


def test_layers_are_those_that_are_held() -> None:
    """The page's table is the one by which imports are checked."""
    (table,) = (each for each in tables(section(PAGE, "The map")) if each[0][0] == "`tideline.core`")
    told = {tuple(ticked(layer)): ticked(below) or [below] for layer, below in table}
    held = {(layer,): list(below) or ["nothing"] for layer, below in LAYERS.items() if layer != "tideline"}
    assert told == {**held, tuple(TOP): ["everything"]}


def declared() -> list[tuple[str, Definition]]:
    """Each declaration on the page, with the module that the comment above it names."""
    made = []
    for block in blocks(PAGE, "python"):
        parts = re.split(r"^# (\S+)$", block, flags=re.MULTILINE)[1:]
        for module, text in zip(parts[::2], parts[1::2], strict=True):
            made += [(module, each) for each in ast.parse(text).body]
    return made  # type: ignore[return-value]


def shape(statement: ast.stmt) -> str:
    """A definition without a field's default, or a function's body."""
    if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation) != "TypeAlias":
        return f"{ast.unparse(statement.target)}: {ast.unparse(statement.annotation)}"
    if isinstance(statement, ast.FunctionDef):
        returns = statement.returns and ast.unparse(statement.returns)
        return f"{statement.name}({ast.unparse(statement.args)}) -> {returns}"
    return ast.unparse(statement)


def members(body: list[ast.stmt], calls: bool) -> list[str]:
    """The fields that a class declares, or its calls."""
    return [shape(each) for each in body if isinstance(each, ast.FunctionDef if calls else ast.AnnAssign)]


def test_declarations_are_the_codes(subtests: pytest.Subtests) -> None:
    """Fields, types, arguments, bases: the same, in the same order. `...` after fields says that there are more."""
    for module, told in declared():
        (name,) = names_of(told)
        with subtests.test(f"{module}.{name}"):
            code = found(module, name)
            assert code is not None
            if isinstance(told, ast.ClassDef):
                assert isinstance(code, ast.ClassDef)
                compare(told, code)
            else:
                assert shape(told) == shape(code)


def compare(told: ast.ClassDef, code: ast.ClassDef) -> None:
    """Hold a class on the page against that of the code."""
    assert not told.bases or list(map(ast.unparse, told.bases)) == list(map(ast.unparse, code.bases))
    calls = isinstance(told.body[0], ast.FunctionDef)
    shown, held = members(told.body, calls), members(code.body, calls)
    cut = bool(shown) and isinstance(told.body[-1], ast.Expr)
    assert [x for x in held if x in shown] == shown
    assert cut == (len(held) > len(shown))


def test_paths_are_in_the_code() -> None:
    """Each row's function is in its row's module, and rows are numbered."""
    for heading in PATHS:
        rows = [row for table in tables(section(PAGE, heading)) for row in table]
        assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)), heading
        steps = [(*ticked(module), *ticked(function)) for _, module, function, _ in rows]
        assert [(module, name) for module, name in steps if found(module, name) is None] == []


def test_ports_are_where_the_page_says() -> None:
    """The table of the journal's ports has all of them, each in its module."""
    (table,) = tables(section(PAGE, "The types"))
    ports = [(ticked(port)[0], ticked(module)[0]) for port, module, _ in table]
    assert [port for port, module in ports if not isinstance(found(module, port), ast.ClassDef)] == []
    journal = found("tideline.engine.ports.journal", "Journal")
    assert isinstance(journal, ast.ClassDef)
    assert [port for port, _ in ports] == [ast.unparse(base) for base in journal.bases][:-1]
