"""The newest tip of its coordinators' witness that an agent was given: `witness.json` in its home.

It shows it to them. A coordinator whose database and parts were restored learns from it that revocations are missing.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path

import structlog

from tideline.engine.audit.witness import Seen
from tideline_agent.home.identity import write

log = structlog.get_logger()
WITNESS = "witness.json"
MOST_TEXT = 200  # characters of a hash and of a proof


class SeenFile:
    """A tip that only grows, safe from a power cut. Any number of threads."""

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / WITNESS, threading.Lock()
        self._seen, self._unwritten = read(self._path), False

    @property
    def seen(self) -> Seen:
        return self._seen

    def note(self, given: Seen) -> None:
        """Remember a tip, if it is a newer one. Where the disk takes none, until the agent ends: others remember it, too."""
        if given.seq <= self._seen.seq or max(len(given.hash), len(given.proof)) > MOST_TEXT:
            return
        with self._lock:
            if given.seq > self._seen.seq:
                self._seen = given
                self._write()

    def _write(self) -> None:
        try:
            write(self._path, json.dumps(asdict(self._seen)).encode())
            self._unwritten = False
        except OSError as error:
            if not self._unwritten:  # said once, and not at every beat
                log.warning("witness_not_written", path=str(self._path), reason=error.strerror or type(error).__name__)
            self._unwritten = True


def read(path: Path) -> Seen:
    """What a file says; nothing for one that is not there, or damaged: it is a memory that others have, too."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Seen(int(raw["seq"]), str(raw["hash"]), str(raw["proof"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Seen()
