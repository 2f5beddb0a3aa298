"""The log of tests: as structlog has it from the start, but for tracebacks, whose pictures with every local take seconds each."""

from __future__ import annotations

import structlog
from structlog import dev


def plain_log() -> None:
    """Write tracebacks as Python does."""
    structlog.reset_defaults()
    *others, _ = structlog.get_config()["processors"]
    structlog.configure([*others, dev.ConsoleRenderer(colors=False, exception_formatter=dev.plain_traceback)])
