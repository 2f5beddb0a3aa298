"""NIfTI: a file is a volume (c, d, h, w), in the closest orientation to right, anterior, superior; or a slice is an image.

Axes are in the order z, y, x of that orientation, as arrays of images are rows before columns. A fourth axis becomes channels.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.formats.images import Listing
from tideline.learning.formats.kinds import scans
from tideline.learning.formats.kinds.listing import FileKind, refuse_world
from tideline.learning.formats.transforms import Transform

INSTALL = "Install the extra at the agent: pip install 'tideline[nifti]'"


def check(world: World, transform: Transform, listing: Listing) -> None:
    """Raises DataRefused for worlds that no NIfTI file fits, and without the extra."""
    images = len(world.inputs) == 3 and world.inputs[0] == 1
    if world.tokens or not (images or len(world.inputs) == 4):
        raise refuse_world(world, "NIfTI files", "[channels, depth, height, width], or [1, height, width] for single slices")
    scans.check_window(transform)
    nibabel()


def nibabel() -> Any:
    """The package. Raises DataRefused without it."""
    try:
        import nibabel as package
    except ImportError:
        raise DataRefused("the domain is of NIfTI files, and nibabel is not installed here", INSTALL) from None
    return package


def read(path: Path, world: World, transform: Transform) -> NDArray[np.generic]:
    """A volume (c, d, h, w), or of a single slice an image (H, W), float32. Raises ValueError and what nibabel raises."""
    x = volume(path)
    x = scans.windowed(x, transform.window) if transform.window else x
    if len(world.inputs) == 4:
        return scans.of_size(x, world, transform)
    if x.shape[:2] != (1, 1):
        raise ValueError(f"{x.shape[1]} slices of {x.shape[0]} channels; an image is one slice")
    made: NDArray[np.generic] = x[0, 0]
    return made


def opened(path: Path) -> Any:
    """A file's header, its values unread. Raises ValueError for more values than are read."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")
    image = nibabel().load(path)
    if not 2 <= len(image.shape) <= 4:
        raise ValueError(f"{len(image.shape)} axes; 2 to 4 are read")
    scans.check_voxels(image.shape)
    return image


def volume(path: Path) -> NDArray[np.float32]:
    """(c, z, y, x), scaled as the file says."""
    image = opened(path)
    x = np.asarray(image.dataobj, dtype=np.float32)
    x = x.reshape(*x.shape, *(1 for _ in range(4 - x.ndim)))
    package = nibabel()
    x = package.apply_orientation(x, package.io_orientation(image.affine))
    return np.ascontiguousarray(x.transpose(3, 2, 1, 0))


def shape_of(path: Path) -> tuple[int, ...]:
    """(c, z, y, x) by the header alone."""
    image = opened(path)
    sizes = (*image.shape, 1, 1)[:4]
    places = nibabel().io_orientation(image.affine)[:, 0]  # of each axis, which one it becomes
    turned = [sizes[list(places).index(axis)] for axis in range(3)]
    return (sizes[3], *reversed(turned))


NIFTI = FileKind(
    what="NIfTI files",
    suffixes=(".nii", ".nii.gz"),
    own=("invert", *scans.OWN),
    check=check,
    read=read,
    packages=("nibabel", "numpy"),
)
