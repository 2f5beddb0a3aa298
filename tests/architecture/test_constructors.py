"""Whoever makes a value of many fields names them: five arguments by position say nothing, and swap unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.architecture.sources import Source, origin, place, report, sources

MOST = 4  # fields that may be given by position


@cache
def classes() -> dict[str, tuple[Source, ast.ClassDef]]:
    """Return every class that stands at the top of a module of the four roots, by its dotted name."""
    return {f"{s.module}.{node.name}": (s, node) for s in sources() for node in s.tree.body if isinstance(node, ast.ClassDef)}


@cache
def names_of(module: str) -> dict[str, str]:
    """Return what a module's own names stand for: dotted names of classes and modules, defined there or imported."""
    source = next(s for s in sources() if s.module == module)
    own = {node.name: f"{module}.{node.name}" for node in source.tree.body if isinstance(node, ast.ClassDef)}
    imported = [(node, alias) for node in source.of(ast.ImportFrom) for alias in node.names]
    return own | {alias.asname or alias.name: f"{origin(source, node)}.{alias.name}" for node, alias in imported}


def callee(source: Source, call: ast.Call) -> str:
    """Return the dotted name of what is called, as far as it is a name, or an attribute of one."""
    at = call.func.value if isinstance(call.func, ast.Subscript) else call.func  # of a generic class
    if isinstance(at, ast.Name):
        return names_of(source.module).get(at.id, "")
    if isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name):
        return f"{names_of(source.module).get(at.value.id, '')}.{at.attr}"
    return ""


@cache
def fields(name: str) -> tuple[str, ...]:
    """Return what a class's constructor takes, in order: the arguments of `__init__`, or else its fields and its bases'."""
    if name not in classes():
        return ()
    source, node = classes()[name]
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return tuple(arg.arg for arg in (*member.args.posonlyargs, *member.args.args)[1:])
    above = [names_of(source.module).get(ast.unparse(base).partition("[")[0], "") for base in node.bases]
    inherited = [field for base in above for field in fields(base)]
    own = [e.target.id for e in node.body if isinstance(e, ast.AnnAssign) and isinstance(e.target, ast.Name) and is_field(e)]
    return tuple(dict.fromkeys((*inherited, *own)))


def is_field(node: ast.AnnAssign) -> bool:
    """Return True if a class's annotated name is an argument of the constructor that its decorator makes."""
    return "ClassVar" not in ast.unparse(node.annotation) and "init=False" not in ast.unparse(node)


def constructions() -> Iterator[tuple[Source, ast.Call]]:
    """Yield every call of a constructor that takes many fields."""
    for source in sources():
        for call in source.of(ast.Call):
            if len(fields(callee(source, call))) > MOST:
                yield source, call


def test_many_fields_are_named() -> None:
    """A class of more than four fields is made with at most four of them by position; `*row` comes in its order."""
    calls = list(constructions())
    assert len(calls) > 100
    by_position = [(s, call) for s, call in calls if not any(isinstance(arg, ast.Starred) for arg in call.args)]
    report(f"{place(s, call.lineno)} {ast.unparse(call.func)}" for s, call in by_position if len(call.args) > MOST)


def test_fields_are_those_of_the_constructor() -> None:
    """Of a dataclass, of one that has a base, and of a class with a constructor of its own."""
    assert fields("tideline.engine.model.orders.Failure") == ("kind", "what")
    assert fields("tideline.engine.audit.log.Entry") == ("kind", "at", "by", "client", "run", "details", "seq", "hash")
    assert fields("tideline.archive.writer.Memo") == ("known",)
    assert fields("tideline.archive.reader.Reader") == ("digest", "parts", "rules", "sure")
