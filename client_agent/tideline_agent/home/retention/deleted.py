"""What a home has heard of runs that were deleted at the coordinator: `deleted.json`, by run when it was heard."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tideline.core.run import RunId
from tideline.core.settings import plain
from tideline.engine.model.runs import MOST_STORED
from tideline_agent.home.identity import write
from tideline_agent.home.runs import RUNS

FILE = "deleted.json"
PAUSE_SECONDS = 600.0  # between two questions
ROUND_SECONDS = 3600.0  # between two rounds through all runs of a home


def heard_of(home: Path) -> dict[RunId, float]:
    """The runs that are still in the home, with when their deletion was heard. What cannot be read is heard again."""
    try:
        found = {RunId(run): float(at) for run, at in json.loads((home / FILE).read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {run: at for run, at in found.items() if run in stored(home)}


def stored(home: Path) -> list[RunId]:
    """The runs in the home, by their names."""
    folder = home / RUNS
    return sorted(RunId(each.name) for each in folder.iterdir()) if folder.is_dir() else []


class Inquiry:
    """Asks, with signs of life, which of a home's runs were deleted: some at a time, in rounds.

    follow: is called when some were, on a thread of its own that nothing waits for. now: seconds since 1970.
    """

    def __init__(self, home: Path, follow: Callable[[], object] = lambda: None, now: Callable[[], float] = time.time) -> None:
        self._home, self._follow, self._now = home, follow, now
        self._asked = -math.inf
        self._left: list[RunId] = []

    def due(self) -> Sequence[RunId]:
        """What is asked about now; mostly nothing."""
        now = self._now()
        pause = PAUSE_SECONDS if self._left else ROUND_SECONDS
        if 0.0 <= now - self._asked < pause:
            return ()
        if not self._left:
            known = heard_of(self._home)
            self._left = [run for run in stored(self._home) if run not in known]
        self._asked, some, self._left = now, self._left[:MOST_STORED], self._left[MOST_STORED:]
        return some

    def heard(self, deleted: Iterable[RunId]) -> None:
        """Remember what was deleted, as far as it is in the home."""
        known = heard_of(self._home)
        new = [run for run in deleted if run not in known and run in stored(self._home)]
        if not new:
            return
        write(self._home / FILE, json.dumps(plain(known | dict.fromkeys(new, self._now()))).encode())
        threading.Thread(target=self._follow, name="cleaning", daemon=True).start()


class NoInquiry(Inquiry):
    """Of an owner who lets nobody ask."""

    def due(self) -> Sequence[RunId]:
        return ()
