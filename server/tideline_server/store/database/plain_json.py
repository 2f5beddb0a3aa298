"""Plain data as the text that a database keeps."""

from __future__ import annotations

import json
from typing import Any


def to_json(value: Any) -> str:
    """JSON as compact as it can be; any mapping is an object."""
    return json.dumps(value, separators=(",", ":"), default=dict)


def from_json(text: str) -> Any:
    """What a text of `to_json` says. Raises ValueError for any other: another program may read that otherwise."""
    found = json.loads(text, parse_constant=refuse)
    if to_json(found) != text:
        raise ValueError("not as it was written")
    if "\\ud" in text:
        json.dumps(found, ensure_ascii=False).encode()  # half a pair of surrogates could be told to nobody
    return found


def refuse(name: str) -> None:
    """Raises ValueError: NaN and infinity are no JSON."""
    raise ValueError(name)
