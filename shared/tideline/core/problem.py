"""An error as a problem document (RFC 9457): the one shape in which doors and commands tell what is wrong."""

from __future__ import annotations

import re
from typing import Any

from tideline.core.errors import FederationError

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:tideline:error:"
INCIDENT = "urn:tideline:incident:"


def problem(error: FederationError, kind: str | None = None) -> dict[str, Any]:
    """The members of an error's document. `path` is the dotted place of what is wrong; `context` may hold any values."""
    context = dict(error.context)
    path = context.pop("path", None)
    kind = kind or error.kind
    return {
        "type": TYPE + kind,
        "title": words(kind),
        "detail": error.what,
        "kind": kind,
        "todo": error.todo,
        "path": str(path) if path else None,
        "context": context,
    }


def words(kind: str) -> str:
    """A kind in words: `ConfigRefused` is "Config refused"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", kind).capitalize()
