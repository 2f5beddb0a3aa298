"""Whether a coordinator can take work: every reason why not, and over HTTP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tideline.core.errors import Unreachable
from tideline.core.run import Digest
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server import readiness
from tideline_server.readiness import Readiness, free_bytes
from tideline_server.worker import ProcessCompute


class Away(MemoryJournal):
    """A database that does not answer."""

    def marker(self, ours: Digest | None = None) -> Digest | None:
        raise Unreachable("The store does not answer", "Wait")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every look is a new one."""
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.0)
    yield


def test_all_is_well(tmp_path: Path) -> None:
    """Then there is no reason."""
    assert Readiness(MemoryJournal(), lambda: True, lambda: False, [tmp_path]).reasons() == ()


def test_every_reason_is_told(tmp_path: Path) -> None:
    """Not only the first."""
    gone = tmp_path / "gone"
    ready = Readiness(Away(), lambda: False, lambda: True, [tmp_path, gone], least=2**62)
    with capture_logs() as logs:
        found = [ready.reasons() for _ in range(3)][-1]
    assert found[:3] == ("it is stopping", "the database does not answer", "the numeric worker is not running")
    assert found[3:] == ("a disk is short of room", "a disk cannot be looked at")
    assert free_bytes(tmp_path) and free_bytes(gone) is None
    (line,) = [each for each in logs if each["event"] == "not_ready"]  # the details are not for everybody, and told once
    assert all(words in line["reasons"] for words in ("The store does not answer", f"the disk of {tmp_path}", f"{gone} cannot"))


@pytest.mark.usefixtures("as_users_do")
def test_a_worker_that_died_comes_back(tmp_path: Path) -> None:
    """While no call comes that needs it: a coordinator that is not ready is sent none."""
    compute = ProcessCompute((str(tmp_path / "parts"), tmp_path, 1.0), "tideline.algorithms:METHODS")
    ready = Readiness(MemoryJournal(), compute.lives, lambda: False, [])
    try:
        compute.start()
        first = compute.pid
        assert first is not None and ready.reasons() == ()
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        assert ready.reasons() == ("the numeric worker is not running",)
        assert ready.reasons() == () and compute.pid not in (None, first)
    finally:
        compute.end()


def test_a_look_is_good_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask, as often as he likes, and the database is asked once."""
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 60.0)
    looks = []
    ready = Readiness(MemoryJournal(), lambda: bool(looks.append(1)) or True, lambda: False, [tmp_path])
    assert [ready.reasons() for _ in range(5)] == [()] * 5 and len(looks) == 1
