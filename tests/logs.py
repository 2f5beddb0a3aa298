"""The log of tests: as structlog has it from the start, but for tracebacks, whose pictures with every local take seconds each."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog import dev


def plain_log() -> None:
    """Write tracebacks as Python does."""
    structlog.reset_defaults()
    *others, _ = structlog.get_config()["processors"]
    structlog.configure([*others, dev.ConsoleRenderer(colors=False, exception_formatter=dev.plain_traceback)])


@contextmanager
def own_log() -> Iterator[None]:
    """A command that sets up its log, its umask and what it does at signals leaves those of the tests alone."""
    handlers, level = logging.root.handlers[:], logging.root.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = os.umask(0o022)
    os.umask(mask)
    try:
        yield
    finally:
        os.umask(mask)
        logging.root.handlers, logging.root.level = handlers, level
        plain_log()
        if threading.current_thread() is threading.main_thread():
            for number, handler in signals.items():
                signal.signal(number, handler)
