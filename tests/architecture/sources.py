"""The four source roots, as syntax trees."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
ROOTS = ("shared", "server", "client_agent", "protos")


@dataclass(frozen=True)
class Source:
    """One module: its dotted name, its file, its tree."""

    module: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that the module's relative imports start from."""
        return self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]


@dataclass(frozen=True)
class Import:
    """One imported name, and where it stands."""

    name: str
    line: int


def written(path: Path) -> bool:
    """Whether a person wrote the file; stubs are generated."""
    return not path.stem.endswith(("_pb2", "_pb2_grpc"))


@functools.cache
def sources() -> tuple[Source, ...]:
    """Every module that a person wrote, sorted by name."""
    return tuple(sorted(read(), key=lambda s: s.module))


def read() -> Iterator[Source]:
    """Every module of the roots."""
    for root in ROOTS:
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if written(path):
                yield Source(name, path, ast.parse(path.read_text(), str(path)))


def imports(source: Source) -> Iterator[Import]:
    """Every import of a module, also those inside functions. `from a import b` gives a.b, which may be a module or a name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{origin(source, node)}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(name, node.lineno)


def origin(source: Source, node: ast.ImportFrom) -> str:
    """The module that names are taken from, relative imports resolved."""
    if not node.level:
        return node.module or ""
    above = source.package.split(".")
    base = ".".join(above[: len(above) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base
