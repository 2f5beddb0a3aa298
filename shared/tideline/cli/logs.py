"""The log of the commands that live long: to stderr, for people or as JSON lines."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(as_json: bool, level: str = "info") -> None:
    """Send our log from a level on, and warnings of libraries, to stderr. Colours only on a terminal. Raises ConfigRefused."""
    least = read_level(level)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    tail = renderers(as_json)
    structlog.configure(
        processors=[*shared, *tail],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(least),
    )
    handler = logging.StreamHandler(sys.stderr)
    drop = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[drop, *tail], foreign_pre_chain=shared))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def read_level(word: str) -> int:
    """A level by its name. Raises ConfigRefused."""
    if word.lower() not in LEVELS:
        guess = nearest(word.lower(), list(LEVELS))
        raise ConfigRefused(f"--log-level is {word!r}", f"Use one of: {', '.join(LEVELS)}{guess}", path="--log-level")
    return LEVELS[word.lower()]


def renderers(as_json: bool) -> list[Any]:
    """The last steps of a log line."""
    if as_json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # Tracebacks without the values of variables: those may hold data.
    formatter = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=formatter)]
