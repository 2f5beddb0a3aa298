"""A database's trouble, as sites and users are told of it.

What a database or its driver says names its host, its port and its user: that is for the log. Others get the number of its line
there. The same words always have the same number, so that who asks again is told the same.
"""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache

import structlog

from tideline.core.errors import Unreachable

log = structlog.get_logger()
AGAIN_SECONDS = 60.0  # after which the same trouble gets another line in the log


def away(what: str, said: str) -> Unreachable:
    """The error for what a database said, which is logged."""
    incident = hashlib.sha256(said.encode()).hexdigest()[:8]
    log_once(incident, what, said, int(time.monotonic() / AGAIN_SECONDS))
    todo = f"It is tried again; the coordinator's operator finds the cause in its log, incident {incident}"
    return Unreachable(what, todo, incident=incident)


@lru_cache(maxsize=64)
def log_once(incident: str, what: str, said: str, minute: int) -> None:
    """Write a line, unless it stands there for this minute: everybody who needs the database meets its trouble."""
    log.warning("store_failed", incident=incident, reason=what, cause=said)
