"""From the arrays of a site to the rows of a world, whatever its shape and its type.

Vectors and images of 1 or 3 channels are as `transforms` has them. Images of other channels are scaled and resized likewise, and
keep all channels. Sequences and volumes have the world's shape, and token ids its vocabulary: neither is changed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.rows import AXES
from tideline.learning.formats import transforms
from tideline.learning.formats.transforms import PLAIN, Transform, times
from tideline.learning.rows import resizing
from tideline.learning.rows.resizing import Sized

WHITE = {"uint8": 255.0, "uint16": 65535.0}  # of images of channels
IDS = "Save x as int64, token ids from 0; or ask for a world with dtype: float32"
NO_IDS = ("scale", "invert", "layout", "mean", "std")


def expected(world: World) -> str:
    """The world's samples in words: 7 features, 16 token ids, images of 1 x 28 x 28."""
    if world.tokens:
        return f"{times(world.inputs)} token ids"
    if len(world.inputs) == 1:
        return f"{world.inputs[0]} features"
    return f"{AXES[len(world.inputs)].partition(' (')[0]} of {times(world.inputs)}"


def is_plain(world: World) -> bool:
    """Whether samples are vectors, or images of 1 or 3 channels."""
    return not world.tokens and (len(world.inputs) == 1 or (len(world.inputs) == 3 and world.inputs[0] in (1, 3)))


def check_kind(shape: tuple[int, ...], dtype: np.dtype[np.generic], world: World, transform: Transform) -> None:
    """Raises DataRefused (`expected`, `got`) unless arrays of this shape and type can become the world's rows."""
    if world.tokens:
        check_ids(shape, dtype, world, transform)
        return
    if dtype.kind not in "biuf":
        what = f"x holds {dtype.name}, not numbers"
        raise DataRefused(what, "Save x as uint8 or float32", expected="numbers", kind=str(dtype)[:400])
    if transform.layout and len(world.inputs) != 3:
        raise DataRefused("layout is set, but the samples are no images", "Take layout out of transforms.toml")
    if is_plain(world):
        transforms.check_kind(last(shape, transform), dtype, world.inputs, transform)
        return
    if len(world.inputs) == 3:
        is_last(shape, world, transform)
        scale_of(dtype, world, transform)
    else:
        check_same(shape, world, transform)
    transforms.check_constants(world.inputs, transform)


def check_same(shape: tuple[int, ...], world: World, transform: Transform) -> None:
    """Raises DataRefused unless samples have the world's shape; one channel need not have an axis."""
    one = world.inputs[0] == 1 and len(world.inputs) > 1
    if shape[1:] != world.inputs and not (one and shape[1:] == world.inputs[1:]):
        what = f"a sample of x is {times(shape[1:])}; the world expects {expected(world)}"
        todo = f"Save x with shape (n, {', '.join(map(str, world.inputs))}), resized or cut beforehand; or ask for another world"
        raise DataRefused(what, todo, expected=list(world.inputs), got=list(shape[1:]))
    if transform.invert:
        raise DataRefused("invert is set, but the samples are no images", "Take invert out of transforms.toml")


def check_ids(shape: tuple[int, ...], dtype: np.dtype[np.generic], world: World, transform: Transform) -> None:
    """Raises DataRefused unless arrays can hold the world's token ids."""
    if dtype.kind not in "iu":
        raise DataRefused(
            f"x holds {dtype.name}; the world expects token ids, whole numbers", IDS, expected="int64", got=dtype.name
        )
    if named := [name for name in NO_IDS if getattr(transform, name) != getattr(PLAIN, name)]:
        raise DataRefused(f"{named[0]} is set, but the samples are token ids", f"Take {named[0]} out of transforms.toml")
    if shape[1:] != world.inputs:
        what = f"a sample of x is {times(shape[1:])}; the world expects {expected(world)}"
        todo = f"Save x with shape (n, {', '.join(map(str, world.inputs))}), cut or filled up beforehand"
        raise DataRefused(what, todo, expected=list(world.inputs), got=list(shape[1:]))


def is_last(shape: tuple[int, ...], world: World, transform: Transform) -> bool:
    """Whether the channels of images (n, ...) are their last axis, not their first. Raises DataRefused where nothing says it."""
    channels = world.inputs[0]
    fits = {"first": len(shape) == 4 and shape[1] == channels, "last": len(shape) == 4 and shape[3] == channels}
    chosen = [name for name, each in fits.items() if each and transform.layout in ("", name)]
    if len(chosen) == 1 and 0 not in shape[1:]:
        return chosen[0] == "last"
    said = f"a sample of x is {times(shape[1:])}; the world expects {expected(world)}"
    if len(chosen) > 1:
        todo = 'Say it in transforms.toml: layout = "first" or layout = "last"'
        raise DataRefused(f"{said}, and its channels may be the first axis or the last", todo, got=list(shape[1:]))
    todo = f"Save x with shape (n, {channels}, H, W) or (n, H, W, {channels})"
    raise DataRefused(said, todo, expected=list(world.inputs), got=list(shape[1:]))


def last(shape: tuple[int, ...], transform: Transform) -> tuple[int, ...]:
    """The shape of images (n, H, W, C) that are stored so, or as (n, C, H, W)."""
    return (shape[0], *shape[2:], shape[1]) if transform.layout == "first" and len(shape) == 4 else shape


def scale_of(dtype: np.dtype[np.generic], world: World, transform: Transform) -> float:
    """The raw value that means 1.0. Raises DataRefused if the type of pixels does not show it."""
    if is_plain(world):
        return transforms.scale_of(dtype, world.inputs, transform)
    if transform.scale is not None or len(world.inputs) != 3 or dtype.kind in "fb":
        return transform.scale or 1.0
    if dtype.name not in WHITE:
        raise DataRefused(f"the pixels are {dtype}, whose white is unknown", "Set scale in transforms.toml")
    return WHITE[dtype.name]


def check_values(x: NDArray[np.generic], world: World, transform: Transform, first: int = 0) -> None:
    """Raises DataRefused for values that the world's rows cannot have, with the row. x begins at row `first`."""
    if world.tokens:
        check_vocabulary(x, world, first)
        return
    if is_plain(world):
        transforms.check_values(x, world.inputs, transform, first)
        return
    low, high = transforms.ends_of(x, first)
    scale = scale_of(x.dtype, world, transform)
    if len(world.inputs) == 3 and x.dtype.kind in "iu":
        transforms.check_pixels(low, high, scale)
    transforms.check_reach(low, high, scale, transform)


def check_vocabulary(x: NDArray[np.generic], world: World, first: int) -> None:
    """Raises DataRefused, with the row and not the value, for token ids that are none."""
    if int(x.min()) >= 0 and int(x.max()) < world.vocabulary:
        return
    bad = (x < 0) | (x >= world.vocabulary)  # type: ignore[operator]
    row = int(np.flatnonzero(bad.reshape(len(x), -1).any(1))[0])
    raise DataRefused(f"row {first + row}: {beyond(x[row], world.vocabulary)}", MORE, row=first + row)


MORE = "Correct the row, or ask for a world with a larger vocabulary, the same at every site"


def beyond(ids: NDArray[np.generic] | Tensor, vocabulary: int) -> str:
    """What is wrong with a row's token ids; empty if nothing is."""
    if int(ids.min()) < 0:
        return "a token id is below 0"
    return f"a token id is beyond the vocabulary, 0 to {vocabulary - 1}" if int(ids.max()) >= vocabulary else ""


def convert(x: NDArray[np.generic], world: World, transform: Transform) -> Tensor:
    """Checked arrays as rows (n, *inputs): float32, or int64 of token ids."""
    made = sized(x, world, transform)
    values = torch.from_numpy(made.x)
    return values if world.tokens else transforms.finished(values, torch.empty(made.x.shape), made.white, transform)


def sized(x: NDArray[np.generic], world: World, transform: Transform) -> Sized:
    """Checked arrays as (n, *inputs) of their own type, which `transforms.finished` makes rows of: what may be written down."""
    if world.tokens:
        return Sized(np.array(x, dtype=np.int64, order="C"), 1.0)
    scale = scale_of(x.dtype, world, transform)
    if is_plain(world):
        moved = np.moveaxis(x, 1, -1) if transform.layout == "first" and x.ndim == 4 else x
        return resizing.sized(moved, world.inputs, scale)
    if len(world.inputs) == 3:
        return planes_of(np.moveaxis(x, -1, 1) if is_last(x.shape, world, transform) else x, world.inputs[1:], scale)
    made = resizing.sized(x, world.inputs, scale)
    return replace(made, x=made.x.reshape(-1, *world.inputs))


def planes_of(planes: NDArray[np.generic], size: tuple[int, ...], scale: float) -> Sized:
    """Images (n, C, H, W) of any channels in a size: as they are, or as shares of white where they are resized."""
    if planes.shape[2:] == size:
        return Sized(np.require(resizing.kept(planes), requirements=["C", "W"]), scale)
    shares = torch.from_numpy(np.array(planes, dtype=np.float32, order="C")) / scale
    return Sized(resizing.bilinear(shares, list(size)).contiguous().numpy(), 1.0)
