"""Plain data and moments as a dossier writes them: the same values in the same bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def json_bytes(value: Any) -> bytes:
    """Plain data as JSON that a person can read: sorted names, ASCII alone, what is no number as null."""
    return (json.dumps(plain(value), sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def json_line(value: Any) -> bytes:
    """The same as one line."""
    return (json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value


def number(value: float | None) -> str:
    """An epsilon, or another number that may have no bound."""
    return "without a bound" if value is None else f"{value:.4g}"


def moment(at: float | None) -> str | None:
    """A time in UTC, to the second; None where there is none, or no calendar has it."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(math.floor(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None
