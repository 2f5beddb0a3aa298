"""A process that is killed in a collection: `python collector.py WHERE PARTS HOME POINT`, at `move` or at `commit`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tideline.archive.parts import Aside
from tideline.core.run import Digest
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.parts import open_parts
from tideline_server.store import SqlJournal


class Dying:
    """A store in which the process dies once parts lie aside, or once their rows are gone for good."""

    def __init__(self, parts: Any, point: str) -> None:
        self._parts, self._point = parts, point

    def aside(self) -> Aside:
        batch: Aside = self._parts.aside()
        return DyingAside(batch, self._point)


class DyingAside:
    """What it puts aside."""

    def __init__(self, batch: Aside, point: str) -> None:
        self._batch, self._point = batch, point

    def take(self, digests: Collection[Digest]) -> None:
        self._batch.take(digests)
        if self._point == "move":
            os.kill(os.getpid(), signal.SIGKILL)

    def back(self) -> None:
        self._batch.back()

    def destroy(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main(where: str, parts: str, home: str, point: str) -> None:
    """Collect."""
    journal = SqlJournal(where if "://" in where else Path(where))
    PartStore(Dying(open_parts(parts, Path(home), 1.0), point), journal, ManualClock(1e6)).collect()  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
