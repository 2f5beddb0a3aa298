"""One seed of the chaos; `python -m tests.acceptance.chaos` runs many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.chaos import chaos

pytestmark = pytest.mark.processes


def test_whatever_dies_the_bytes_are_the_same(tmp_path: Path) -> None:
    """A coordinator, agents, trainers and the numeric worker die at random moments; the run ends as if nothing had been."""
    assert "killed: nobody" not in chaos(3, tmp_path)
