"""Plain data as text in a database."""

from __future__ import annotations

import json

from tideline.core.settings import Plain


def to_json(value: Plain) -> str:
    """Compact JSON; any mapping is an object."""
    return json.dumps(value, separators=(",", ":"), default=dict)


def from_json(text: str) -> Plain:
    """The inverse of `to_json`. Raises ValueError for any other text: programs may read it in different ways."""
    found: Plain = json.loads(text, parse_constant=refuse)
    if to_json(found) != text:
        raise ValueError("not as it was written")
    if "\\ud" in text:
        json.dumps(found, ensure_ascii=False).encode()  # half a pair of surrogates could be told to nobody
    return found


def refuse(name: str) -> None:
    """Raises ValueError: NaN and infinity are no JSON."""
    raise ValueError(name)
