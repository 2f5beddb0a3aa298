"""Whoever makes a value of many fields names them: five arguments by position say nothing, and swap unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.architecture.sources import REPOSITORY, Source, origin, sources

MOST = 4  # fields that may be given by position


@dataclass(frozen=True)
class Made:
    """A call of a constructor: the names of its class's fields, in order."""

    source: Source
    call: ast.Call
    fields: tuple[str, ...]


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the four roots that stands at the top of its module, by its dotted name."""
    return {f"{s.module}.{node.name}": node for s in sources() for node in s.tree.body if isinstance(node, ast.ClassDef)}


@cache
def known(source: Source) -> dict[str, str]:
    """What a module's own names stand for: dotted names of classes and modules, defined there or imported."""
    found = {node.name: f"{source.module}.{node.name}" for node in source.tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: f"{origin(source, node)}.{each.name}" for each in node.names}
    return found


def called(source: Source, call: ast.Call) -> str:
    """The dotted name of what is called, as far as it is a name, or an attribute of one."""
    at = call.func.value if isinstance(call.func, ast.Subscript) else call.func  # of a generic class
    if isinstance(at, ast.Name):
        return known(source).get(at.id, "")
    if isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name):
        return f"{known(source).get(at.value.id, '')}.{at.attr}"
    return ""


@cache
def fields(name: str) -> tuple[str, ...]:
    """What a class's constructor takes, in order: the arguments of `__init__`, or else its fields and those of its bases."""
    node = classes().get(name)
    if node is None:
        return ()
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return tuple(arg.arg for arg in (*each.args.posonlyargs, *each.args.args)[1:])
    source = next(s for s in sources() if s.module == name.rpartition(".")[0])
    above = [known(source).get(ast.unparse(base).partition("[")[0], "") for base in node.bases]
    inherited = [each for base in above for each in fields(base)]
    own = [e.target.id for e in node.body if isinstance(e, ast.AnnAssign) and isinstance(e.target, ast.Name) and is_field(e)]
    return tuple(dict.fromkeys((*inherited, *own)))


def is_field(node: ast.AnnAssign) -> bool:
    """Whether a class's annotated name is an argument of the constructor that its decorator makes."""
    return "ClassVar" not in ast.unparse(node.annotation) and "init=False" not in ast.unparse(node)


def made() -> Iterator[Made]:
    """Every call of a constructor that takes many fields."""
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and len(names := fields(called(source, node))) > MOST:
                yield Made(source, node, names)


def offenders(calls: Iterable[Made]) -> list[Made]:
    """Calls that give more fields by position than a reader can tell apart. What is read as a row, `*row`, comes in its order."""
    written = [each for each in calls if not any(isinstance(arg, ast.Starred) for arg in each.call.args)]
    return [each for each in written if len(each.call.args) > MOST]


def test_many_fields_are_named() -> None:
    """A class of more than four fields is made with at most four of them by position."""
    calls = list(made())
    assert len(calls) > 100
    found = [f"{e.source.path.relative_to(REPOSITORY)}:{e.call.lineno} {ast.unparse(e.call.func)}" for e in offenders(calls)]
    assert not found, "\n".join(["", *found])


def test_fields_are_found() -> None:
    """Of a dataclass, of one that has a base, and of a class with a constructor of its own."""
    assert fields("tideline.engine.model.orders.Failure") == ("kind", "what")
    assert fields("tideline.engine.audit.log.Entry") == ("kind", "at", "by", "client", "run", "details", "seq", "hash")
    assert fields("tideline.archive.writer.Memo") == ("known",)
    assert fields("tideline.archive.reader.Reader") == ("digest", "parts", "rules", "sure")
