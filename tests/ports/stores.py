"""Every store of parts, empty, by its name; and what of it can be seen from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, Parts
from tideline_server.parts import open_parts

SHARED = ("folder", "bucket")  # those that several coordinators may share


def store(kind: str, request: pytest.FixtureRequest, home: Path) -> Parts:
    """A store of this kind."""
    if kind == "memory":
        return MemoryParts()
    return open_parts(place(kind, request, home.parent), home, cache=1.0)


def place(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """What `--parts` says of a store that others find as well."""
    return str(folder / "parts") if kind == "folder" else str(request.getfixturevalue("bucket"))


def laid(parts: Parts) -> int:
    """How much lies aside."""
    if isinstance(parts, MemoryParts):
        return sum(len(batch.taken) for batch in parts._aside)
    if isinstance(parts, FolderParts):
        return len(list(parts.folder.glob("aside/*")))
    return len([name for name, _ in parts.bucket.listed() if name.startswith("aside/")])  # type: ignore[attr-defined]
