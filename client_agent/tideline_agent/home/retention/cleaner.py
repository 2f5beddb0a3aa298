"""Runs whose time is over, by the rules of a site's owner, are deleted by themselves: once a day, and when one is heard of."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

log = structlog.get_logger()
DAY_SECONDS = 86400.0
LONGEST_SECONDS = 3600.0  # of one look at the home


class Cleaner:
    """Does what the owner would type. A process of its own, as it loads the methods, which an agent does not."""

    def __init__(self, home: Path, methods: str) -> None:
        self._home, self._methods = home, methods
        self._lock = threading.Lock()

    @property
    def command(self) -> Sequence[str]:
        clean = ("site", "clean", "--home", str(self._home), "--by-itself", "--methods", self._methods, "--json")
        return (sys.executable, "-m", "tideline", *clean)

    def daily(self, stop: threading.Event) -> None:
        """Clean now and once a day, until `stop`."""
        while not stop.is_set():
            self.clean()
            stop.wait(DAY_SECONDS)

    def clean(self) -> bool:
        """Whether it was done. What fails is in the log, and tried again the next day."""
        with self._lock:
            try:
                done = subprocess.run(self.command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                log.warning("runs_not_forgotten", reason=type(error).__name__)
                return False
        if done.returncode:
            log.warning("runs_not_forgotten", reason=done.stderr.strip()[-500:])
        else:
            log.info("runs_forgotten", done=done.stdout.strip()[-500:])
        return done.returncode == 0
