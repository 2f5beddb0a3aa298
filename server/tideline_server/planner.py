"""Plans of links, each in a process of its own that is gone with its answer.

The numeric worker is for runs: a search of seconds in one of its lanes would hold up checks of replies, and share its interpreter
with their turns. Such a process stands behind all of them, has one thread, and is ended when its time is up.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tideline.core.errors import Cancelled, ConfigRefused, Unreachable
from tideline.engine.process.environment import BUCKET, DATABASE, without_secrets
from tideline.engine.process.pipe import Child, ChildDied, Tick, TookTooLong, serve
from tideline.planning.request import LinksRequest

ABREAST = 2  # plans that are made at once
AGAIN_SECONDS = 2  # after which who was one too many is best back
USUAL_SECONDS = LinksRequest.seconds
MOST_SECONDS = 20.0  # that a plan may ask to be searched for
GRACE_SECONDS = 30.0  # on top of these: a process starts, and looks at the time between two steps only
NICENESS = 10  # runs go first
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


class ProcessPlanner:
    """Makes plans. Any number of threads may ask.

    grace: seconds after which a process is ended, beside those that it may search for.
    """

    def __init__(self, abreast: int = ABREAST, grace: float = GRACE_SECONDS) -> None:
        self._room, self._grace = threading.BoundedSemaphore(abreast), grace
        self._lock, self._working, self._closed = threading.Lock(), set[Child](), False

    def plan(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The plan for what is asked, as tideline.planning.links has it.

        Raises ConfigRefused for what cannot be planned, or not in time; Unreachable where no place is free or the process died.
        """
        seconds = max(seconds_of(asked), 0.0)
        with self._place() as child:
            try:
                return child.call("links", asked, limit=seconds + self._grace)
            except TookTooLong:
                todo = "Give fewer devices, or a shorter sweep; `tideline links plan` on a machine of your own has no such limit"
                raise ConfigRefused(f"There was no plan after {seconds + self._grace:g} s", todo, path="seconds") from None
            except (ChildDied, Cancelled, OSError) as cause:
                raise Unreachable(f"The plan's process is gone: {cause}", "Ask again, or for less") from None

    @contextlib.contextmanager
    def _place(self) -> Iterator[Child]:
        """A process, if there is room for one more. Raises Unreachable."""
        if not self._room.acquire(blocking=False):
            what = "As many plans are being made as there is room for"
            raise Unreachable(what, f"Ask again in {AGAIN_SECONDS} s", retry_after=AGAIN_SECONDS)
        environment = without_secrets(os.environ, *DATABASE, *BUCKET) | ONE_THREAD
        child = Child([sys.executable, "-m", "tideline_server.planner"], environment)
        try:
            with self._lock:
                if self._closed:
                    raise Unreachable("The coordinator is ending", "Ask again when it is back")
                self._working.add(child)
            yield child
        finally:
            child.close()
            with self._lock:
                self._working.discard(child)
            self._room.release()

    def close(self) -> None:
        with self._lock:
            self._closed, working = True, list(self._working)
        for child in working:
            child.close()


def seconds_of(asked: Mapping[str, Any]) -> float:
    """For how long is searched; the usual time where that is said by no number, which the plan's own process refuses."""
    given = asked.get("seconds")
    return float(given) if isinstance(given, (int, float)) and not isinstance(given, bool) else USUAL_SECONDS


def check_seconds(asked: Mapping[str, Any]) -> None:
    """Raises ConfigRefused for a search that is longer than a coordinator's guests may have."""
    seconds = seconds_of(asked)
    if seconds > MOST_SECONDS:
        what = f"seconds is {seconds:g}; a coordinator searches for {MOST_SECONDS:g} at most"
        raise ConfigRefused(what, "Ask for less, or plan with `tideline links plan` on a machine of your own", path="seconds")


def main() -> None:
    os.nice(NICENESS)

    def handle(name: str, payload: Mapping[str, Any], tick: Tick) -> Mapping[str, Any]:
        # Imported here, so that the coordinator's own process, which imports this module, loads no NumPy.
        from tideline.planning.links import plan_links

        return plan_links(payload)

    serve(handle)


if __name__ == "__main__":
    main()
