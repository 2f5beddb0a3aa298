"""How many bytes of a reply each of its declared fields takes, in which file: for the site's ledger. Loads no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tideline.archive.layout import Header, handle_in, is_handle, is_part
from tideline.core.settings import Plain
from tideline.engine.model.orders import Envelope

Path = tuple[str, ...]
ROOT = ""  # in the place of the digest of the reply's root, which stands for all that it names


@dataclass
class Size:
    """bytes, and the files in which they lie; ROOT: the root."""

    bytes: int = 0
    files: set[str] = field(default_factory=set)

    def add(self, size: int, file: str) -> None:
        self.bytes += size
        self.files.add(file)

    @property
    def digest(self) -> str:
        """Of the one file in which all of it lies; else of the root."""
        return next(iter(self.files)) if len(self.files) == 1 else ROOT


def field_sizes(header: Header, fields: Iterable[str], sealed: Iterable[Envelope]) -> list[list[Plain]]:
    """[field, bytes, digest] of a reply's root, by the fields of its contract; a digest is empty where it is the root's.

    Tensors count as they lie in their file, a part with its header, a number as it is written. What is sealed for peers counts as
    its sealed file, under the name of the field that holds it: nobody sees how that divides.
    """
    named = [tuple(each.split(".")) for each in fields]
    ciphers = {each.handle.digest: each for each in sealed}
    found: dict[str, Size] = {}
    for path, size, file in pieces(header, ciphers):
        found.setdefault(".".join(declared(path, named)), Size()).add(size, file)
    return [[name, size.bytes, size.digest] for name, size in sorted(found.items())]


def pieces(header: Header, ciphers: Mapping[str, Envelope]) -> Iterator[tuple[Path, int, str]]:
    """Whatever a root holds or names: its path, bytes and file."""
    for each in header.entries.values():
        yield tuple(each.name.split("/")), each.end - each.begin, ROOT
    yield from walked(header.structure, (), ciphers)


def walked(node: Plain, path: Path, ciphers: Mapping[str, Envelope]) -> Iterator[tuple[Path, int, str]]:
    """Parts, sealed values and numbers of a structure. A root is nested no deeper than its reader allows."""
    if isinstance(node, dict):
        for name, inner in node.items():
            yield from walked(inner, (*path, name), ciphers)
    elif is_part(node):
        yield path, node[4] if isinstance(node[4], int) else 0, str(node[1])
    elif is_handle(node):
        envelope = ciphers.get(handle_in(node).digest)
        if envelope is not None:
            yield path, envelope.bytes, envelope.cipher
    elif isinstance(node, list):
        for inner in node:
            yield from walked(inner, path, ciphers)
    elif node is not None:
        yield path, len(json.dumps(node)), ROOT


def declared(path: Path, fields: Iterable[Path]) -> Path:
    """The declared field that a path lies in: the longest whose steps occur in it in order; else the path's own first step."""
    fits = [each for each in fields if path[:1] == each[:1] and within(each, path)]
    return max(fits, key=len, default=path[:1])


def within(steps: Path, path: Path) -> bool:
    left = iter(path)
    return all(step in left for step in steps)
