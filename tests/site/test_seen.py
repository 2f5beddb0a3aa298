"""What an agent remembers of its coordinators' witness."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tideline.engine.audit.witness import Seen
from tideline_agent.home import seen
from tideline_agent.home.seen import SeenFile


def test_a_newer_tip_outlives_the_agent(tmp_path: Path) -> None:
    """And an older one replaces nothing."""
    file = SeenFile(tmp_path)
    file.note(Seen(7, "seven", "proof"))
    file.note(Seen(5, "five", "proof"))
    assert SeenFile(tmp_path).seen == file.seen == Seen(7, "seven", "proof")


def test_a_full_disk_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tip is shown meanwhile; it is said once, and written once there is room."""

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    file, real = SeenFile(tmp_path), seen.write
    monkeypatch.setattr(seen, "write", full)
    with capture_logs() as lines:
        for number in (1, 2, 3):
            file.note(Seen(number, "hash", "proof"))
    assert file.seen.seq == 3 and SeenFile(tmp_path).seen == Seen()
    assert [(line["event"], line["reason"]) for line in lines] == [("witness_not_written", "No space left on device")]
    monkeypatch.setattr(seen, "write", real)
    file.note(Seen(4, "hash", "proof"))
    assert SeenFile(tmp_path).seen.seq == 4
