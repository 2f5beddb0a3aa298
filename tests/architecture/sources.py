"""The four source roots, as syntax trees that all tests of a process share."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent
ROOTS = ("shared", "server", "client_agent", "protos")


@dataclass(frozen=True)
class Source:
    """One module: its dotted name, its file, its tree."""

    module: str
    path: Path
    tree: ast.Module
    text: str

    @functools.cached_property
    def nodes(self) -> Mapping[type[ast.AST], list[Any]]:
        """The nodes of the tree by their type: to walk all trees takes a second."""
        kinds = defaultdict(list)
        for node in ast.walk(self.tree):
            kinds[type(node)].append(node)
        return kinds

    def of(self, *kinds: type[ast.AST]) -> list[Any]:
        """Return the nodes of these types, type by type."""
        return [node for kind in kinds for node in self.nodes.get(kind, ())]

    @property
    def package(self) -> str:
        """The package that the module's relative imports start from."""
        return self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]


@dataclass(frozen=True)
class Import:
    """One imported name, and where it stands."""

    name: str
    line: int


def is_handwritten(path: Path) -> bool:
    """Return True unless the file is a generated stub."""
    return not path.stem.endswith(("_pb2", "_pb2_grpc"))


@functools.cache
def sources() -> tuple[Source, ...]:
    """Return every handwritten module, sorted by name."""
    return tuple(sorted(read(), key=lambda s: s.module))


def read() -> Iterator[Source]:
    """Parse every handwritten module of the roots."""
    for root in ROOTS:
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if is_handwritten(path):
                text = path.read_text()
                yield Source(name, path, ast.parse(text, str(path)), text)


def place(source: Source, line: int) -> str:
    """Return the file, from the root, and the line."""
    return f"{source.path.relative_to(REPOSITORY)}:{line}"


def report(offences: Iterable[str], headline: str = "") -> None:
    """Fail with every offence, one a line."""
    lines = list(offences)
    assert not lines, "\n".join([headline, *lines])


def imports(source: Source) -> Iterator[Import]:
    """Yield every import of a module, also those inside functions. `from a import b` gives a.b, a module or a name."""
    for node in source.of(ast.Import, ast.ImportFrom):
        base = f"{origin(source, node)}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            yield Import(f"{base}{alias.name}", node.lineno)


def origin(source: Source, node: ast.ImportFrom) -> str:
    """Return the module that names are taken from, relative imports resolved."""
    if not node.level:
        return node.module or ""
    above = source.package.split(".")
    base = ".".join(above[: len(above) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base
