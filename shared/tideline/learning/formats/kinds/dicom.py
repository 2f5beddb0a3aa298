"""DICOM: a slice is an image, and a folder of slices, a series, is a volume. Only what the picture needs is read of a file.

Values are rescaled as the file says and mapped to 0 to 1: from the owner's window, or from all that the file's bits can hold.
MONOCHROME1, whose least value is white, is inverted.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.formats.images import MAX_PIXELS, Listing, visible_folders
from tideline.learning.formats.kinds import scans
from tideline.learning.formats.kinds.listing import FileKind, Undecodable, files_in, refuse_world
from tideline.learning.formats.transforms import Transform

INSTALL = "Install the extra at the agent: pip install 'tideline[dicom]'"
DECOMPRESS = "Decompress the files first, such as with dcmdjpeg of DCMTK or gdcmconv --raw, and leave the copies in the folder"
GREY = ("MONOCHROME1", "MONOCHROME2")
# What the picture needs: nothing that names a patient is loaded.
TAGS = (
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "RescaleSlope", "RescaleIntercept"),
    *("PixelData", "FloatPixelData", "DoubleFloatPixelData"),
)
ORDER = ("ImagePositionPatient", "ImageOrientationPatient", "InstanceNumber")


def check(world: World, transform: Transform, listing: Listing) -> None:
    """Raises DataRefused for worlds that no DICOM file fits, and without the extra."""
    images = len(world.inputs) == 3 and world.inputs[0] in (1, 3)
    if world.tokens or not (images or (len(world.inputs) == 4 and world.inputs[0] == 1)):
        raise refuse_world(world, "DICOM files", "[1, height, width], or [1, depth, height, width] for folders of slices")
    scans.check_window(transform)
    pydicom()


def pydicom() -> Any:
    """The package, which reads values as they are and logs none of them. Raises DataRefused without it."""
    try:
        import pydicom as package
        from pydicom import config
    except ImportError:
        raise DataRefused("the domain is of DICOM files, and pydicom is not installed here", INSTALL) from None
    config.settings.reading_validation_mode = config.IGNORE
    return package


def read(path: Path, world: World, transform: Transform) -> NDArray[np.generic]:
    """An image (H, W) or (H, W, 3), or a series (1, d, h, w), float32. Raises ValueError and what pydicom raises; Undecodable."""
    if len(world.inputs) == 3:
        opened = header(path, TAGS)
        if int(opened.get("NumberOfFrames") or 1) != 1:
            raise ValueError(f"{opened.NumberOfFrames} frames; a sample has one")
        return pixels(opened, transform)
    return scans.of_size(series(path, transform)[None], world, transform)


def header(path: Path, tags: tuple[str, ...]) -> Any:
    """The dataset of a file, with these tags alone."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")
    return pydicom().dcmread(path, specific_tags=list(tags))


def pixels(opened: Any, transform: Transform) -> NDArray[np.float32]:
    """(H, W), (H, W, 3) or, of several frames, (d, H, W): from 0 to 1."""
    if int(opened.Rows) * int(opened.Columns) * int(opened.get("NumberOfFrames") or 1) > MAX_PIXELS:
        raise ValueError(f"{opened.Rows} x {opened.Columns} pixels; at most {MAX_PIXELS} are read")
    colour = str(opened.PhotometricInterpretation)
    if colour not in (*GREY, "RGB") and not colour.startswith("YBR"):
        raise Undecodable(f"its colours are {colour}, which are not read", "Save it as MONOCHROME2 or RGB")
    x = decoded(opened).astype(np.float32)
    slope, intercept = (float(opened.get(name, none)) for name, none in (("RescaleSlope", 1), ("RescaleIntercept", 0)))
    x = x * np.float32(slope) + np.float32(intercept)
    if transform.window:
        x = scans.windowed(x, transform.window)
    elif "PixelData" in opened:
        ends = [slope * each + intercept for each in reach(opened)]
        x = scans.windowed(x, (min(ends), max(ends)))
    return 1.0 - x if colour == "MONOCHROME1" else x


def decoded(opened: Any) -> NDArray[np.generic]:
    """The stored values. Raises Undecodable where the file is compressed in a way that no codec here reads."""
    syntax = opened.file_meta.TransferSyntaxUID
    if syntax.is_compressed:
        try:
            from pydicom.pixels import get_decoder  # type: ignore[attr-defined,unused-ignore]

            there = get_decoder(syntax).is_available
        except NotImplementedError:
            there = False
        if not there:
            raise Undecodable(f"it is compressed as {syntax.name}, for which there is no codec here", DECOMPRESS)
    values: NDArray[np.generic] = opened.pixel_array
    return values


def reach(opened: Any) -> tuple[int, int]:
    """The least and the largest value that the stored bits can hold."""
    bits, signed = int(opened.BitsStored), int(opened.PixelRepresentation)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def series(folder: Path, transform: Transform) -> NDArray[np.float32]:
    """The slices of a folder (d, h, w), in their order along the body. Raises ValueError for slices of several sizes."""
    files = sorted(each for each in folder.iterdir() if DICOM.is_file(each.name) and not each.is_dir())
    opened = [header(each, (*TAGS, *ORDER)) for each in files]
    check_slices(opened)
    slices = [pixels(each, transform) for each in sorted(opened, key=place_of)]
    slices = [each if each.ndim == 3 else each[None] for each in slices]
    return np.concatenate(slices)


def check_slices(opened: list[Any]) -> None:
    """Raises ValueError unless slices can be put on each other: of one size, grey, and not too many."""
    sizes = {(int(each.Rows), int(each.Columns), int(each.get("SamplesPerPixel", 1))) for each in opened}
    if len(sizes) != 1:
        raise ValueError(f"slices of {len(sizes)} sizes in one folder")
    [(rows, columns, samples)] = sizes
    if samples != 1:
        raise ValueError("slices in colour; a volume is grey")
    scans.check_voxels((sum(int(each.get("NumberOfFrames") or 1) for each in opened), rows, columns))


def place_of(opened: Any) -> float:
    """Where a slice is along the normal of its plane; its number in the series where it does not say that."""
    position, axes = opened.get("ImagePositionPatient"), opened.get("ImageOrientationPatient")
    if position is None or axes is None:
        return float(opened.get("InstanceNumber") or 0)
    normal = np.cross([float(each) for each in axes[:3]], [float(each) for each in axes[3:]])
    return float(normal @ np.array([float(each) for each in position]))


DICOM = FileKind(
    what="DICOM files",
    suffixes=(".dcm",),
    own=("invert", *scans.OWN),
    check=check,
    read=read,
    folders=lambda world: len(world.inputs) == 4,
    packages=("pydicom", "pillow", "numpy"),
)


def has_series(domain: Path) -> bool:
    """Whether there are folders of slices inside class folders."""
    return any(any(files_in(series, DICOM)) for each in visible_folders(domain) for series in visible_folders(each))
