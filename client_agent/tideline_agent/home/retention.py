"""Runs that have been over for long are forgotten by themselves, where a site's owner says after how many days."""

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


def command(home: Path, days: int, methods: str) -> Sequence[str]:
    """What the owner would type. A process of its own, as it loads the methods, which an agent does not."""
    forget = ("site", "forget", "--home", str(home), "--older", f"{days}d", "--yes", "--methods", methods, "--json")
    return (sys.executable, "-m", "tideline", *forget)


def retain(home: Path, days: int, methods: str, stop: threading.Event) -> None:
    """Forget old runs now and once a day, until `stop`."""
    while not stop.is_set():
        forget_old(home, days, methods)
        stop.wait(DAY_SECONDS)


def forget_old(home: Path, days: int, methods: str) -> bool:
    """Whether it was done. What fails is in the log, and tried again the next day."""
    asked = command(home, days, methods)
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("runs_not_forgotten", reason=type(error).__name__)
        return False
    if done.returncode:
        log.warning("runs_not_forgotten", reason=done.stderr.strip()[-500:])
    else:
        log.info("runs_forgotten", older_than_days=days, done=done.stdout.strip()[-500:])
    return done.returncode == 0
