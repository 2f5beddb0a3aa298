"""A process that follows a run into a tracker and dies before its n-th call of it.

python -m tests.tracking.dies TRACKER HOME RUN PLACE N      PLACE: Trackio's project, or a folder for wandb
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from tests.tracking.following import follower, one
from tideline.client.http import Client, Endpoint
from tideline.tracking.pages import Tracker

DEAD = 9


def main(name: str, home: str, run: str, place: str, n: str) -> None:
    """Ends with 9 if it died, with 0 if all is written."""
    tracker = trackio(place, int(n)) if name == "trackio" else wandb(place, int(n))
    with Client.of(Endpoint(home=Path(home))) as client:
        follower(client, tracker).poll(one(run))


def trackio(project: str, n: int) -> Tracker:
    """Dies before a call of the package."""
    from tideline.tracking import to_trackio

    tracker = to_trackio.opened(None, project)
    deadly(tracker._package, ("init", "finish", "Artifact", "Api"), count(1), n)
    return tracker


def wandb(folder: str, n: int) -> Tracker:
    """Dies before a call of the package, or of a run that it opened; wandb's own process dies with this one."""
    from wandb import Run

    from tideline.tracking import to_wandb

    tracker, calls = to_wandb.opened(folder, None, ""), count(1)
    deadly(tracker._package, ("init",), calls, n)
    deadly(to_wandb.Wandb, ("artifact",), calls, n)
    deadly(Run, ("log", "log_artifact", "finish"), calls, n)
    return tracker


def deadly(of: Any, names: Sequence[str], calls: Iterator[int], n: int) -> None:
    """Have the n-th call of some functions kill this process before they do anything."""

    def replaced(function: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            if next(calls) >= n:
                os._exit(DEAD)
            return function(*given, **more)

        return call

    for name in names:
        setattr(of, name, replaced(getattr(of, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
