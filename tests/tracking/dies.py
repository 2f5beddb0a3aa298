"""A process that follows a run into a Trackio and dies before its n-th call of Trackio.

python -m tests.tracking.dies HOME RUN PROJECT N
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.tracking.following import Dying, follower, one
from tideline.client.http import Client, Endpoint
from tideline.tracking import to_trackio

CALLS = ("init", "finish", "Artifact", "Api")
DEAD = 9


def main(home: str, run: str, project: str, n: str) -> None:
    """Ends with 9 if it died, with 0 if all is written."""
    tracker = to_trackio.opened(None, project)
    tracker._package = Dying(tracker._package, CALLS, int(n), lambda: os._exit(DEAD))
    with Client.of(Endpoint(home=Path(home))) as client:
        follower(client, tracker).poll(one(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
