"""Rows of the benchmarks as lines: written one by one, stored in a file, and read from it again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def emit(rows: Iterable[Row], args: Any, line: Callable[[Row], str]) -> None:
    """Each row as soon as it is there: into the file `args.out`, if named, and as JSON (`args.json`) or a line for people."""
    for row in rows:
        if getattr(args, "out", None):
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        sys.stdout.write((json.dumps(row) if args.json else line(row)) + "\n")
        sys.stdout.flush()


def show(args: Any, rows: Callable[[Any], Iterable[Row]], table: Callable[[list[dict[str, Any]]], str]) -> None:
    """The table of a file's rows, if `args.table` names one; else rows as they are made, as words for people."""
    if args.table:
        sys.stdout.write(table(read_rows(args.table)))
    else:
        emit(rows(args), args, lambda row: " ".join(f"{name}={value}" for name, value in row.items()))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file."""
    return [json.loads(each) for each in path.read_text().splitlines()]


def there(path: Path | None, key: Sequence[str]) -> set[tuple[Any, ...]]:
    """What of its rows tells them apart; nothing where there is no file yet."""
    return {tuple(row[k] for k in key) for row in read_rows(path)} if path and path.exists() else set()


def cell(found: Iterable[float]) -> str:
    """Mean and deviation over seeds, or a dash."""
    values = list(found)
    if not values:
        return "-"
    mean = sum(values) / len(values)
    return f"{mean:.1f} ± {(sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5:.1f}"
