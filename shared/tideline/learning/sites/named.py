"""`--data python:MODULE:NAME`: the form of an agent's data that a function gives. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tideline.core.algorithm import file_of_module
from tideline.core.errors import ConfigRefused

PREFIX = "python:"
WRITE = "Write it as python:MODULE:NAME, where NAME is a function without arguments that gives a tideline.Site"


def place_in(data: Path | str) -> str | None:
    """MODULE:NAME of data that a function gives; None for a folder. Raises ConfigRefused for half of it."""
    text = str(data)
    if not text.startswith(PREFIX):
        return None
    module, _, name = text.removeprefix(PREFIX).partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ConfigRefused(f"--data {text} does not name a function", WRITE, path="data")
    return f"{module}:{name}"


def files_of_module(place: str) -> Iterator[tuple[str, int, int]]:
    """The file of the function's module: its path, size and time. Nothing where it cannot be found."""
    file = file_of_module(place.partition(":")[0])
    if file is not None and file.is_file():
        seen = file.stat()
        yield str(file), seen.st_size, seen.st_mtime_ns
