"""Steps of .ci/run are timed, and one that cannot keep its budget is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.timed import Timed, main, table


def test_a_step_ends_as_its_command_and_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit code is the command's, and the table has a line for it and one for all."""
    file = str(tmp_path / "times")
    assert main([file, "some", "2", sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert main([file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["some", "all"] and "of  2.0 minutes" in lines[0]


def test_what_no_machine_can_keep_is_named() -> None:
    """A step that waited for a slow machine is told apart from one that works too long."""
    lines = table([Timed("slow", 1, 90, 100), Timed("heavy", 1, 90, 121)])
    assert lines[0].endswith("slow here") and lines[1].endswith("OVER ITS BUDGET")
