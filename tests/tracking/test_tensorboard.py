"""A real TensorBoard's reader: files that end anywhere, and starts within one second."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracking.kinds import read_events
from tideline.tracking.pages import Card, Point

to_tensorboard = pytest.importorskip("tideline.tracking.to_tensorboard")
pytest.importorskip("tensorboard")
CARD = Card(run="5f0c1a9be2d4", name="digits", created=1000.0, parameters={"config.rounds": "4"})
POINTS = [Point(key, step, step / 8, 1000.0 + step) for step in range(1, 5) for key in ("accuracy/a", "accuracy")]


def written(folder: Path, points: list[Point]) -> Path:
    """A follower's whole life; its run's folder."""
    page = to_tensorboard.TensorBoard(folder).page(CARD)
    page.write(points, 0)
    return folder / "digits-5f0c1a9be2d4"


def test_a_file_that_ends_anywhere(tmp_path: Path) -> None:
    """A kill, or a full disk, leaves half of a record: the next start writes the rest behind it, and no number twice."""
    folder = written(tmp_path / "whole", POINTS)
    (file,) = folder.glob(to_tensorboard.PATTERN)
    content, whole = file.read_bytes(), read_events(folder)
    assert whole[0] == {key: [(step, step / 8) for step in range(1, 5)] for key in ("accuracy", "accuracy/a")}
    for end in range(0, len(content), 5):
        cut = tmp_path / str(end)
        (cut / folder.name).mkdir(parents=True)
        (cut / folder.name / file.name).write_bytes(content[:end])
        assert read_events(written(cut, POINTS)) == whole, end


def test_starts_within_one_second(tmp_path: Path) -> None:
    for n in range(1, len(POINTS) + 1):
        folder = written(tmp_path, POINTS[:n])
    names = sorted(path.name for path in folder.glob(to_tensorboard.PATTERN))
    assert len(names) == len(POINTS) and read_events(folder)[0]["accuracy"] == [(step, step / 8) for step in range(1, 5)]
    ahead = folder / f"{to_tensorboard.PATTERN[:-1]}9999999998.tideline"
    ahead.touch()
    assert to_tensorboard.next_file(folder).name > ahead.name
