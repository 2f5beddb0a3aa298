"""How many files a process may have open at once. A mapped part counts as one."""

from __future__ import annotations

import contextlib
import resource


def open_many_files() -> int:
    """Allow this process as many as the system lets it; gives how many. A fold may map every part of every reply at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems name no limit and refuse it all the same; then the old one stays.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft
