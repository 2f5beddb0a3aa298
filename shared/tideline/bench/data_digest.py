"""A digest of a data folder: of every file that a site would read. Kept between calls, as data may be large."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideline.learning.formats import images
from tideline.learning.formats.classes import CLASSES
from tideline.learning.formats.folder import TRANSFORMS, find


@dataclass(frozen=True)
class Known:
    """What is known of a file: size and time of its last change, and the SHA-256 of its bytes."""

    size: int
    changed: int
    sha256: str


def digest_of(folder: Path, cache: Path, keep: bool = True) -> str:
    """SHA-256 over the names, sizes and digests of the folder's files. Raises DataRefused.

    A file whose size and time of change are those in the cache is not read again. `keep`: write the cache.
    """
    known, found = remembered(cache), {}
    for name, path in files_of(folder).items():
        stat = path.stat()
        last = known.get(f"{folder}/{name}")
        same = last is not None and (last.size, last.changed) == (stat.st_size, stat.st_mtime_ns)
        found[name] = last if same and last else Known(stat.st_size, stat.st_mtime_ns, sha256_of(path))
    if keep:
        remember(cache, {f"{folder}/{name}": each for name, each in found.items()})
    lines = [f"{json.dumps(name)} {each.size} {each.sha256}\n" for name, each in sorted(found.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def files_of(folder: Path) -> dict[str, Path]:
    """The files that are read of a folder, by name as seen from it."""
    found = {name: folder / name for name in (TRANSFORMS, CLASSES) if (folder / name).exists()}
    for path in find(folder).values():
        inside = [*images.listed(path).files, images.HELD_OUT] if path.is_dir() else [""]
        found |= {f"{path.name}/{name}".rstrip("/"): path / name for name in inside if (path / name).exists()}
    return found


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered(cache: Path) -> Mapping[str, Known]:
    """What was known of files before; nothing where that cannot be read, for it can all be found again."""
    try:
        told: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
        return {name: Known(**each) for name, each in told.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remember(cache: Path, known: Mapping[str, Known]) -> None:
    """Write down what is known of files."""
    made = cache.with_name(f".{cache.name}")
    made.write_text(json.dumps({name: vars(each) for name, each in known.items()}, indent=0) + "\n", encoding="utf-8")
    made.replace(cache)
