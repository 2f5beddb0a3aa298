"""A folder of DICOM, of NIfTI and of audio, quickly; the rest is in test_scans.py, at night."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.learning.scans_on_disk import sound
from tests.learning.test_scans import IMAGES, PLAIN, VOLUMES, by_name, slices, tone, volumes
from tests.learning.test_scans import WORLD as SOUNDS
from tideline.learning.formats.inspection import inspect
from tideline.learning.formats.kinds.audio import filters, inputs_of, spectrogram


def test_a_window_is_of_rescaled_values(tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    stored = slices(tmp_path, RescaleSlope=1, RescaleIntercept=-1024)
    (tmp_path / "transforms.toml").write_text("[ct]\nwindow = [-160, 240]\n")
    samples = by_name(tmp_path, IMAGES)
    for name, x in stored.items():
        assert np.allclose(samples[name][0], np.clip((x - 1024.0 + 160) / 400, 0, 1), atol=1e-5)


def test_volumes_are_turned_to_one_orientation(tmp_path: Path) -> None:
    """Depth, height, width, as arrays have them; an axis that goes the other way is turned round."""
    pytest.importorskip("nibabel")
    stored = volumes(tmp_path, axes=(-1.0, 1.0, 2.0))
    samples = by_name(tmp_path, VOLUMES)
    assert all(np.allclose(samples[name][0], x[::-1].transpose(2, 1, 0)) for name, x in stored.items())
    report = inspect(tmp_path, None, None)
    assert report.world is not None and (report.world["inputs"], report.world["model"]) == ([1, 4, 6, 5], "conv3d")


def test_short_sounds_are_filled_and_long_ones_cut(tmp_path: Path) -> None:
    for i, n in enumerate((4000, 16000, 48000)):
        sound(tmp_path / "mic" / f"{i}.wav", tone(1000, n))
    samples = by_name(tmp_path, SOUNDS)
    assert np.array_equal(samples["1.wav"], samples["2.wav"]) and samples["0.wav"][0, :, 40:].max() == 0


def test_a_sine_is_where_it_sounds() -> None:
    """The loudest band has its frequency; as loud as can be is 1, a tenth of that 20 dB lower, silence 0."""
    loud, soft = spectrogram(tone(1000), PLAIN), spectrogram(tone(1000, loud=0.1), PLAIN)
    assert loud.shape == (64, 98) == inputs_of(PLAIN)[1:]
    band = int(loud.mean(1).argmax())
    f = np.fft.rfftfreq(400, 1 / 16000)
    assert abs(float(f[filters(64, 400, 16000)[band].argmax()]) - 1000) <= 40
    assert loud.max() > 0.97 and abs(float(loud[band].mean() - soft[band].mean()) - 20 / 80) < 0.01
    assert spectrogram(np.zeros(16000), PLAIN).max() == 0
