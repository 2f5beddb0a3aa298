"""Folders of sounds: spectrograms of what is known, other rates and forms, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.learning.scans_on_disk import sound
from tests.learning.test_scans import by_name
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import inspect
from tideline.learning.formats.kinds.audio import spectrogram
from tideline.learning.formats.transforms import Transform

pytestmark = pytest.mark.nightly(job="formats")  # one test is quick: test_kinds_of_files.py
WORLD = World(inputs=(1, 64, 98), classes=2, class_names=("a", "b"))
PLAIN = Transform()


def tone(hertz: float, n: int = 16000, rate: int = 16000, loud: float = 0.999) -> np.ndarray[Any, Any]:
    return loud * np.sin(2 * np.pi * hertz * np.arange(n) / rate)


def samples_of(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return by_name(folder, WORLD)


def test_rates_and_widths(tmp_path: Path, width: int, rate: int) -> None:
    """Of whichever rate and width, one or two channels, the same tone looks alike where it is loud."""
    x = tone(1000, rate, rate)
    sound(tmp_path / "mic" / "a" / "0.wav", x, rate, width)
    sound(tmp_path / "mic" / "b" / "1.wav", np.stack([x, x], 1), rate, width)
    found, ours = samples_of(tmp_path), spectrogram(tone(1000), PLAIN)
    for each in found.values():
        assert each.shape == (1, 64, 98) and np.abs(each[0] - ours)[ours > 0.7].mean() < 0.02


def test_a_world_and_settings(tmp_path: Path) -> None:
    for c in "ab":
        for i in range(3):
            sound(tmp_path / "mic" / c / f"{i}.wav", tone(500 + 100 * i))
    (tmp_path / "transforms.toml").write_text("[mic]\nmel = 32\nseconds = 0.5\nhop_ms = 20\n")
    report = inspect(tmp_path, None, None)
    assert report.world is not None and report.world["inputs"] == [1, 32, 24] and report.usable
    with pytest.raises(DataRefused, match="a folder of audio files; the world expects images of 1 x 64 x 98") as refusal:
        read_folder(tmp_path, WORLD, Role.SOURCE)
    assert "[1, 32, 24]" in refusal.value.todo


def test_damaged_sounds(tmp_path: Path) -> None:
    for i in range(5):
        sound(tmp_path / "mic" / f"{i}.wav", tone(500))
    whole = (tmp_path / "mic" / "0.wav").read_bytes()
    for i, data in enumerate((whole[:-100], whole[:20], b"no sound")):
        (tmp_path / "mic" / f"{i}.wav").write_bytes(data)
    with pytest.raises(DataRefused, match="3 of 5 audio files cannot be read") as refusal:
        read_folder(tmp_path, WORLD, Role.TARGET)
    assert "0.wav" not in str(refusal.value) and any("cut off" in each for each in refusal.value.context["files"])
    (tmp_path / "transforms.toml").write_text('[mic]\nunreadable = "skip"\n')
    assert len(samples_of(tmp_path)) == 2


def test_flac_and_floats(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "mic").mkdir()
    soundfile.write(tmp_path / "mic" / "0.flac", tone(1000), 16000)
    soundfile.write(tmp_path / "mic" / "1.wav", tone(1000), 16000, subtype="FLOAT")
    ours = spectrogram(tone(1000), PLAIN)
    assert all(np.abs(each[0] - ours).mean() < 0.02 for each in samples_of(tmp_path).values())


@pytest.mark.parametrize("suffix", ["flac", "wav"])
def test_without_soundfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    sound(tmp_path / "mic" / "0.wav", tone(500))
    sound(tmp_path / "mic" / "1.wav", tone(500))
    if suffix == "flac":
        (tmp_path / "mic" / "2.flac").write_bytes(b"")
    else:
        data = bytearray((tmp_path / "mic" / "1.wav").read_bytes())
        data[20:22] = (3).to_bytes(2, "little")  # floats
        (tmp_path / "mic" / "1.wav").write_bytes(bytes(data))
    with pytest.raises(DataRefused, match="soundfile") as refusal:
        read_folder(tmp_path, WORLD, Role.TARGET)
    assert "tideline[audio]" in refusal.value.todo
