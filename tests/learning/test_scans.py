"""Folders of DICOM, NIfTI and sounds: values, order, sizes, and what is refused. Skipped without the extras."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.scans_on_disk import dicom, nifti, sound
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import inspect
from tideline.learning.formats.kinds import dicom as dicom_files
from tideline.learning.formats.kinds import nifti as nifti_files
from tideline.learning.formats.kinds.audio import spectrogram
from tideline.learning.formats.scan import scan
from tideline.learning.formats.transforms import Transform

pytestmark = pytest.mark.nightly(job="formats")  # one test of each kind is quick: test_kinds_of_files.py
IMAGES = World(inputs=(1, 6, 5), classes=2, class_names=("a", "b"))
VOLUMES = World(inputs=(1, 4, 6, 5), classes=2, class_names=("a", "b"))
RNG = np.random.default_rng(0)


@pytest.fixture
def pydicom() -> Any:
    return pytest.importorskip("pydicom")


@pytest.fixture
def nibabel() -> Any:
    return pytest.importorskip("nibabel")


def raw(shape: tuple[int, ...] = (6, 5)) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 4096, shape)


def slices(folder: Path, **tags: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Five slices in each of two class folders."""
    made = {f"{c}/{i}.dcm": raw() for c in "ab" for i in range(5)}
    for name, x in made.items():
        dicom(folder / "ct" / name, x, **tags)
    return made


def read(folder: Path, world: World, role: Role = Role.SOURCE, held: int = 1 << 20) -> torch.Tensor:
    return read_folder(folder, world, role, held=held).train.x.all()


def by_name(folder: Path, world: World) -> dict[str, np.ndarray[Any, Any]]:
    return {name: x for part in scan(folder, world) for name, x in zip(part.names, part.x.numpy(), strict=True)}


@pytest.mark.parametrize("mono", ["MONOCHROME1", "MONOCHROME2"])
def test_slices_without_a_window(tmp_path: Path, pydicom: Any, mono: str) -> None:
    """From all that 12 bits can hold; the first kind is white where it is least."""
    made = slices(tmp_path, PhotometricInterpretation=mono, RescaleSlope=2, RescaleIntercept=-1024)
    found = by_name(tmp_path, IMAGES)
    for name, x in made.items():
        share = x / 4095
        assert np.allclose(found[name][0], 1 - share if mono == "MONOCHROME1" else share, atol=1e-5)
    assert torch.equal(read(tmp_path, IMAGES), read(tmp_path, IMAGES, held=10)), "in memory and on demand"


def test_slices_are_resized_like_images(tmp_path: Path, pydicom: Any) -> None:
    slices(tmp_path)
    assert read(tmp_path, World(inputs=(3, 8, 8), classes=2, class_names=("a", "b"))).shape == (8, 3, 8, 8)


def test_a_colour_slice(tmp_path: Path, pydicom: Any) -> None:
    made = {f"{i}.dcm": RNG.integers(0, 256, (6, 5, 3)) for i in range(4)}
    for name, x in made.items():
        dicom(tmp_path / "skin" / name, x)
    found = by_name(tmp_path, World(inputs=(3, 6, 5), classes=2))
    assert all(np.allclose(found[name], np.moveaxis(x, 2, 0) / 255, atol=1e-5) for name, x in made.items())


def test_a_series_is_sorted_along_the_body(tmp_path: Path, pydicom: Any) -> None:
    stacks = {f"{c}/s{s}": raw((4, 6, 5)) for c in "ab" for s in range(4)}
    for name, stack in stacks.items():
        for i, x in enumerate(stack):
            more = {"ImagePositionPatient": None, "ImageOrientationPatient": None} if name.startswith("b") else {}
            dicom(tmp_path / "ct" / name / f"{9 - i}.dcm", x, place=float(i), number=i + 1, **more)
    found = by_name(tmp_path, VOLUMES)
    assert found.keys() == stacks.keys()
    assert all(np.allclose(found[name][0], stack / 4095, atol=1e-5) for name, stack in stacks.items())
    report = inspect(tmp_path, None, None)
    assert report.world is not None and (report.world["inputs"], report.world["model"]) == ([1, 4, 6, 5], "conv3d")


def test_a_world_for_slices(tmp_path: Path, pydicom: Any) -> None:
    slices(tmp_path)
    (tmp_path / "ct" / "notes.txt").write_text("x")
    report = inspect(tmp_path, None, None)
    assert report.world is not None and report.world["inputs"] == [1, 6, 5] and report.world["class_names"] == ["a", "b"]
    assert report.usable and report.domains[0].ignored == ("notes.txt",)


def test_damaged_slices(tmp_path: Path, pydicom: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Counted, and named to the owner alone; they may be left out. No patient is told of anywhere."""
    slices(tmp_path)
    whole = (tmp_path / "ct" / "a" / "0.dcm").read_bytes()
    (tmp_path / "ct" / "a" / "cut.dcm").write_bytes(whole[:-20])
    (tmp_path / "ct" / "a" / "head.dcm").write_bytes(whole[:300])
    (tmp_path / "ct" / "a" / "none.dcm").write_bytes(b"no DICOM at all")
    with caplog.at_level(logging.DEBUG), pytest.raises(DataRefused, match="3 of 13 DICOM files cannot be read") as refusal:
        read(tmp_path, IMAGES)
    assert "cut.dcm" not in str(refusal.value) and any("cut.dcm" in each for each in refusal.value.context["files"])
    assert "SECRET" not in f"{refusal.value} {refusal.value.context} {caplog.text}"
    (tmp_path / "transforms.toml").write_text('[ct]\nunreadable = "skip"\n')
    assert len(read(tmp_path, IMAGES)) + 2 <= 11


def test_a_compression_without_a_codec_is_named(tmp_path: Path, pydicom: Any) -> None:
    slices(tmp_path)
    dicom(tmp_path / "ct" / "a" / "0.dcm", raw())
    opened = pydicom.dcmread(tmp_path / "ct" / "a" / "0.dcm")
    opened.file_meta.TransferSyntaxUID = pydicom.uid.JPEGLosslessSV1
    opened.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8\xff\xd9"])
    opened["PixelData"].VR = "OB"
    opened.save_as(tmp_path / "ct" / "a" / "0.dcm")
    with pytest.raises(DataRefused, match="compressed as JPEG Lossless") as refusal:
        read(tmp_path, IMAGES)
    assert "gdcmconv" in refusal.value.todo and "0.dcm" not in str(refusal.value)


@pytest.mark.parametrize("world", [World(inputs=(5,)), World(inputs=(4, 6, 5)), World(inputs=(2, 4, 6, 5)), World(inputs=(6, 5))])
def test_worlds_that_no_slice_fits(tmp_path: Path, pydicom: Any, world: World) -> None:
    slices(tmp_path)
    with pytest.raises(DataRefused, match="a folder of DICOM files; the world expects"):
        read(tmp_path, world, Role.TARGET)


def test_slices_in_folders_are_no_images(tmp_path: Path, pydicom: Any) -> None:
    for i in range(3):
        dicom(tmp_path / "ct" / "a" / f"s{i}" / "0.dcm", raw())
    with pytest.raises(DataRefused, match="folders inside the class folder"):
        read(tmp_path, IMAGES)


def test_a_series_of_several_sizes(tmp_path: Path, pydicom: Any) -> None:
    for name in ("s0", "s1", "s2"):
        dicom(tmp_path / "ct" / name / "0.dcm", raw())
        dicom(tmp_path / "ct" / name / "1.dcm", raw((6, 5) if name != "s1" else (7, 5)), place=1.0)
    with pytest.raises(DataRefused, match="1 of 3 DICOM files cannot be read"):
        read(tmp_path, World(inputs=(1, 2, 6, 5), classes=2), Role.TARGET)


def volumes(folder: Path, shape: tuple[int, ...] = (5, 6, 4), **more: Any) -> dict[str, np.ndarray[Any, Any]]:
    made = {f"{c}/{i}.nii.gz": RNG.normal(size=shape).astype(np.float32) for c in "ab" for i in range(5)}
    for name, x in made.items():
        nifti(folder / "mr" / name, x, **more)
    return made


def test_a_fourth_axis_is_of_channels(tmp_path: Path, nibabel: Any) -> None:
    made = volumes(tmp_path, (5, 6, 4, 3))
    found = by_name(tmp_path, World(inputs=(3, 4, 6, 5), classes=2, class_names=("a", "b")))
    assert all(np.allclose(found[name], x.transpose(3, 2, 1, 0)) for name, x in made.items())


def test_a_single_slice_is_an_image(tmp_path: Path, nibabel: Any) -> None:
    made = volumes(tmp_path, (5, 6, 1))
    (tmp_path / "transforms.toml").write_text("[mr]\nwindow = [-2, 2]\n")
    found = by_name(tmp_path, IMAGES)
    assert all(np.allclose(found[name][0], np.clip((x[:, :, 0].T + 2) / 4, 0, 1), atol=1e-6) for name, x in made.items())


def test_volumes_of_other_sizes(tmp_path: Path, nibabel: Any) -> None:
    """Refused by row, and by name to the owner alone; resized where the owner says so."""
    volumes(tmp_path)
    nifti(tmp_path / "mr" / "b" / "2.nii.gz", RNG.normal(size=(10, 12, 8)).astype(np.float32))
    for held in (1 << 20, 10):
        with pytest.raises(DataRefused, match="row 7 of the NIfTI files: it is 1 x 8 x 12 x 10") as refusal:
            read(tmp_path, VOLUMES, held=held)
        assert "resize = true" in refusal.value.todo and "2.nii.gz" not in str(refusal.value)
    (tmp_path / "transforms.toml").write_text("[mr]\nresize = true\n")
    assert read(tmp_path, VOLUMES).shape == (8, 1, 4, 6, 5)


def test_damaged_volumes(tmp_path: Path, nibabel: Any) -> None:
    volumes(tmp_path)
    whole = (tmp_path / "mr" / "a" / "0.nii.gz").read_bytes()
    (tmp_path / "mr" / "a" / "0.nii.gz").write_bytes(whole[:-60])
    (tmp_path / "mr" / "a" / "1.nii.gz").write_bytes(whole[:40])
    (tmp_path / "mr" / "a" / "2.nii.gz").write_bytes(b"nothing")
    with pytest.raises(DataRefused, match="3 of 10 NIfTI files cannot be read"):
        read(tmp_path, VOLUMES)


def test_a_header_that_promises_too_much(tmp_path: Path, nibabel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline.learning.formats.kinds.scans.MOST_VOXELS", 100)
    volumes(tmp_path)
    with pytest.raises(DataRefused, match="10 of 10"):
        read(tmp_path, VOLUMES)


@pytest.mark.parametrize("text", ["window = [1]", "window = [2, 1]"])
def test_windows_that_are_none(tmp_path: Path, nibabel: Any, text: str) -> None:
    volumes(tmp_path)
    (tmp_path / "transforms.toml").write_text(f"[mr]\n{text}\n")
    with pytest.raises(DataRefused, match="window is"):
        read(tmp_path, VOLUMES)


@pytest.mark.parametrize(("name", "files", "extra"), [("pydicom", dicom_files, "dicom"), ("nibabel", nifti_files, "nifti")])
def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: Any, extra: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    suffix = ".dcm" if name == "pydicom" else ".nii"
    (tmp_path / "d").mkdir()
    for i in range(3):
        (tmp_path / "d" / f"{i}{suffix}").write_bytes(b"")
    with pytest.raises(DataRefused, match=f"{name} is not installed here") as refusal:
        read(tmp_path, IMAGES, Role.TARGET)
    assert f"tideline[{extra}]" in refusal.value.todo


WORLD = World(inputs=(1, 64, 98), classes=2, class_names=("a", "b"))
PLAIN = Transform()


def tone(hertz: float, n: int = 16000, rate: int = 16000, loud: float = 0.999) -> np.ndarray[Any, Any]:
    return loud * np.sin(2 * np.pi * hertz * np.arange(n) / rate)


def samples_of(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return by_name(folder, WORLD)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("rate", [8000, 16000, 22050])
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
