"""A real Trackio: followers that are killed between its calls, and settings that send it elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.world import Coordinator, tide
from tests.tracking.dies import DEAD
from tests.tracking.kinds import TrackioKind
from tests.tracking.test_trackers import assert_stands
from tideline.client.http import Client

pytest.importorskip("trackio")


def test_killed_between_its_calls(there: Coordinator, client: Client, tmp_path: Path) -> None:
    """Its thread has written all of a call, or nothing; the next follower writes what is missing."""
    run, n, died = there.complete(config={"rounds": 3}), 0, True
    while died:
        n += 1
        kind = TrackioKind(tmp_path, f"{tmp_path.name}-{n}")
        command = [sys.executable, "-m", "tests.tracking.dies", str(there.home), run, kind.project]
        codes = [subprocess.run([*command, str(dies)], check=False, env=os.environ).returncode for dies in (n, 999)]
        died = codes[0] == DEAD
        assert codes in ([DEAD, 0], [0, 0])
        assert_stands(client, run, kind.read(), kind.done)
    assert n > 4


@pytest.mark.parametrize("name", ["TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"])
def test_elsewhere(there: Coordinator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "someone/somewhere")
    refused = tide("run", "track", there.complete(), "--to", "trackio", "--home", there.home)
    assert refused.exit_code == 2 and f"{name} is set" in refused.stderr
