"""JSON that means one thing to everybody: no NaN, no repeated names, no numbers or texts that a database could not hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from tideline.archive.errors import DuplicateKey
from tideline.core.errors import Malformed

MAX_DEPTH = 32
INT64 = 1 << 63
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def check_json(body: bytes) -> None:
    """Raises Malformed unless the body is strict JSON."""
    try:
        value = json.loads(body, object_pairs_hook=once, parse_constant=no_number, parse_int=whole, parse_float=finite)
    except (ValueError, RecursionError) as cause:
        reason = cause.msg if isinstance(cause, json.JSONDecodeError) else "it cannot be read as UTF-8 text of moderate depth"
        raise Malformed(f"The body is not JSON: {reason}", "Send one JSON object") from None
    check_value(value, MAX_DEPTH)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DuplicateKey(f"The body names {twice[:80]!r} twice", "Say everything once")
    return found


def no_number(word: str) -> Any:
    """NaN and the infinities are no JSON."""
    raise Malformed(f"The body holds {word}, which is not JSON", "Give a number")


def whole(digits: str) -> int:
    """A whole number that fits 64 bits."""
    if len(digits) > 20 or not -INT64 <= int(digits) < INT64:
        raise Malformed(f"The number {digits[:24]} does not fit 64 bits", "Give a smaller number")
    return int(digits)


def finite(digits: str) -> float:
    """A number that fits a double."""
    number = float(digits)
    if not math.isfinite(number):
        raise Malformed(f"The number {digits[:24]} does not fit 64 bits", "Give a smaller number")
    return number


def check_value(value: Any, depth: int) -> None:
    """Texts can be stored, and nesting is what people write by hand."""
    if depth == 0:
        raise Malformed(f"The body is nested more than {MAX_DEPTH} deep", "No experiment needs that")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(key)
            check_value(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            check_value(item, depth - 1)


def check_text(text: str) -> None:
    """No NUL, which databases refuse, and no half of a surrogate pair, which UTF-8 cannot carry."""
    if UNSTORABLE.search(text):
        raise Malformed("A text in the body holds a NUL or half a surrogate pair", "Send plain Unicode text")
