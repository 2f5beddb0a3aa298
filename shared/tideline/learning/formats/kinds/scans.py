"""What scans of a body have in common: a window of values that is shown, and volumes of the world's size."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.formats.transforms import Transform, times

MOST_VOXELS = 1 << 26  # a header of a few bytes can promise any number
OWN = ("window", "resize", "unreadable")
RESIZE = "Resample the volumes beforehand; or have them resized, whatever their voxels' sizes: resize = true in transforms.toml"


def check_window(transform: Transform) -> None:
    """Raises DataRefused unless a window is [low, high]."""
    if transform.window and (len(transform.window) != 2 or not transform.window[0] < transform.window[1]):
        raise DataRefused(f"window is {list(transform.window)}", "Write window = [low, high], such as [-160, 240]")


def windowed(x: NDArray[np.float32], window: tuple[float, ...]) -> NDArray[np.float32]:
    """Values from low to high as 0 to 1; what is beyond, as its end."""
    low, high = window
    made: NDArray[np.float32] = np.clip((x - np.float32(low)) / np.float32(high - low), 0.0, 1.0)
    return made


def check_voxels(shape: tuple[int, ...]) -> None:
    """Raises ValueError for more than are read."""
    if int(np.prod(shape, dtype=np.float64)) > MOST_VOXELS or 0 in shape:
        raise ValueError(f"{times(shape)} voxels; from 1 to {MOST_VOXELS} are read")


def of_size(x: NDArray[np.float32], world: World, transform: Transform) -> NDArray[np.float32]:
    """A volume (c, d, h, w) in the world's size: trilinear, if its owner allows that. Raises DataRefused."""
    if x.shape == world.inputs:
        return x
    if not transform.resize or x.shape[0] != world.inputs[0]:
        what = f"it is {times(x.shape)}; the world expects {times(world.inputs)}"
        todo = RESIZE if x.shape[0] == world.inputs[0] else "Ask for a world with as many channels, and leave out what has others"
        raise DataRefused(what, todo, expected=list(world.inputs), got=list(x.shape))
    values = torch.from_numpy(np.ascontiguousarray(x))[None]
    made: NDArray[np.float32] = F.interpolate(values, size=world.inputs[1:], mode="trilinear", align_corners=False)[0].numpy()
    return made
