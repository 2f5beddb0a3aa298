"""Rows of figures, and limits that they are held to: KEY=NUMBER. A dot leads into a table, as in beat_ms.load.p99=50."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

Limits = list[tuple[str, float]]


def limit(text: str) -> tuple[str, float]:
    """A limit as it is given."""
    key, _, number = text.partition("=")
    try:
        return key, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=NUMBER") from None


def check_keys(kind: type[Any], limits: Limits) -> None:
    """Refuse a limit on what is not measured, before hours are lost."""
    known = {f.name for f in dataclasses.fields(kind)}
    for key, _ in limits:
        if key.split(".")[0] not in known:
            sys.exit(f"--limit {key}: there is no such key; there are {', '.join(sorted(known))}")


def found(row: Mapping[str, Any], key: str) -> float:
    """The figure of a key."""
    value: Any = row
    for word in key.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    if not isinstance(value, int | float):
        sys.exit(f"--limit {key}: no figure stands there")
    return float(value)


def exceeded(row: Mapping[str, Any], limits: Limits) -> list[str]:
    """A sentence for each limit that is exceeded. What could not be measured exceeds any."""
    figures = [(key, found(row, key), most) for key, most in limits]
    return [f"{key} is {value:g}; the limit is {most:g}" for key, value, most in figures if value > most or math.isnan(value)]


def emit(row: Any, lines: Iterable[str], limits: Limits, as_json: bool) -> int:
    """Print a row, for people or as JSON, and what exceeds its limits; the exit code."""
    plain = dataclasses.asdict(row)
    sys.stdout.write((json.dumps(plain) if as_json else "\n".join(lines)) + "\n")
    beyond = exceeded(plain, limits)
    sys.stderr.writelines(f"LIMIT EXCEEDED: {each}\n" for each in beyond)
    return 1 if beyond else 0


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    """Lines with columns; the first is a name."""
    cells = [head, *([f"{each:g}" if isinstance(each, float) else str(each) for each in row] for row in rows)]
    wide = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return ["  ".join([row[0].ljust(wide[0]), *(c.rjust(w) for c, w in zip(row[1:], wide[1:], strict=True))]) for row in cells]
