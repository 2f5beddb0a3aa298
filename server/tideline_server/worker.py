"""The numeric worker: all of the coordinator's arithmetic, in a process of its own, one call at a time.

Torch's global generator is not safe across threads, and the doors must answer while numbers are crunched.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tideline.core.errors import Cancelled, Unreachable
from tideline.engine.pipe import Child, ChildDied, Tick, serve
from tideline.engine.thrift import give_back

TRIES = 3
TURNS = frozenset({"begin", "close"})  # calls that hold a model


class ShuttingDown(BaseException):
    """The coordinator is ending: whatever waits for numbers lets go. No Exception, so that no run is ended for it."""


class ProcessMill:
    """The port Mill, answered by a child process. A call whose process died is made again: calls have no effect but parts.

    `place` is what the store of parts is opened with. Every user of the machine may read it; secrets are in the environment.
    """

    def __init__(self, place: tuple[str, Path, float], methods: str) -> None:
        self._closed = False
        self._child = Child([sys.executable, "-m", "tideline_server.worker", *map(str, place), methods])

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._child.pid

    def start(self) -> None:
        """Start ahead of the first call: loading torch takes seconds."""
        self._child.start()

    def call(self, name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if name in TURNS:  # what the streams used is not needed while the worker holds a model
            give_back()
        for left in reversed(range(TRIES)):
            try:
                return self._child.call(name, payload)
            except OSError as cause:  # no memory or no process to be had: the machine's trouble, not the run's
                raise Unreachable(f"The numeric worker cannot be started: {cause.strerror}", "It is tried again") from cause
            except (ChildDied, Cancelled):
                if self._closed:
                    raise ShuttingDown from None
                if not left:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the worker."""
        self._closed = True
        self._child.close()


def main() -> None:
    """The worker's process: PARTS HOME CACHE METHODS."""
    import torch

    from tideline.core.registry import load_methods
    from tideline.engine.mill import NumericMill
    from tideline_server.parts import open_parts

    torch.set_num_threads(1)  # outside a turn there are only checks; a second thread would spin for longer than it helps
    where, home, cache, methods = sys.argv[1:]
    mill = NumericMill(open_parts(where, Path(home), float(cache)), load_methods(methods))

    def handle(name: str, payload: Mapping[str, Any], tick: Tick) -> Mapping[str, Any]:
        try:
            return mill.call(name, payload)
        finally:
            if name in TURNS:  # and the other way round while the replies come in
                give_back()

    serve(handle)


if __name__ == "__main__":
    main()
