"""Plain data as the text that a database keeps."""

from __future__ import annotations

import json
from typing import Any


def to_json(value: Any) -> str:
    """JSON as compact as it can be; any mapping is an object."""
    return json.dumps(value, separators=(",", ":"), default=dict)
