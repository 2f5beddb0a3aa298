"""From the arrays of a site to the inputs of a world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.private import check_unit
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.settings import setting
from tideline.learning.rows.resizing import OVERSHOOT, sized

WHITEST = 255.0  # of bytes
PICTURES = (1, 3)  # channels of images of grey, and of colours


@dataclass(frozen=True)
class Transform:
    """How one domain is read. Raw values are divided by scale, inverted, less mean and divided by std, in this order."""

    scale: float | None = setting(
        None, low=1e-9, high=1e9, doc="raw value that means 1.0; unset: 255 for uint8 images, 1 for floats and features"
    )
    invert: bool = setting(False, doc="images only: black becomes white")
    layout: str = setting(
        "", choices=("first", "last"), doc="arrays of images: whether their channels are the first axis or the last"
    )
    mean: tuple[float, ...] = setting((0.0,), low=-1e9, high=1e9, doc="one number, or one per channel or feature")
    std: tuple[float, ...] = setting((1.0,), low=1e-9, high=1e9, doc="one number, or one per channel or feature")
    unreadable: str = setting("refuse", choices=("refuse", "skip"), doc="images: what becomes of files that cannot be read")
    label: str | None = setting(None, doc="tables: the column of the labels; unset: y or label, if there is one")
    held_out: str | None = setting(None, doc="tables: the column that says which rows are held out")
    test: float = setting(0.2, low=0.001, high=0.95, doc="share of the rows to hold out, where no file or column names them")
    validation: float = setting(0.1, low=0.0, high=0.5, doc="share of the rows to select by, of those that are not held out")
    columns: tuple[str, ...] = setting((), doc="tables: the features, in this order; unset: all other columns")
    drop: tuple[str, ...] = setting((), doc="tables: columns that are not features")
    window: tuple[float, ...] = setting((), low=-1e9, high=1e9, doc="scans: [low, high], the values that become 0 and 1")
    resize: bool = setting(False, doc="scans: volumes are resized to the world's size, trilinear")
    mel: int = setting(64, low=1, high=1024, doc="audio: bands of the spectrogram")
    rate: int = setting(16000, low=100, high=400_000, doc="audio: values a second; other rates are resampled")
    window_ms: float = setting(25.0, low=0.1, high=1000.0, doc="audio: milliseconds that a frame is made of")
    hop_ms: float = setting(10.0, low=0.1, high=1000.0, doc="audio: milliseconds from one frame to the next")
    seconds: float = setting(1.0, low=0.01, high=600.0, doc="audio: how much of each file is taken, from its beginning")
    separator: str = setting(",", choices=(",", ";", "\t", "|"), doc=".csv: what stands between two cells")
    unit: str = setting("", doc="what several rows may belong to, in a word such as patient; unset: each row is of its own")
    unit_column: str | None = setting(None, doc="tables: the column that says to which; unset: that of the unit's name")

    def __post_init__(self) -> None:
        """Raises ConfigRefused for a word that cannot be a unit's, and a column without such a word."""
        if self.unit:
            check_unit(self.unit, "unit")
        elif self.unit_column is not None:
            what = "unit_column names a column, and unit does not say what its rows belong to"
            raise ConfigRefused(what, 'Add unit, such as unit = "patient"', path="unit")

    @property
    def whose(self) -> str | None:
        """The column of a table that says to which unit a row belongs; None where nothing does."""
        return (self.unit_column or self.unit) if self.unit else None


PLAIN = Transform()


def prepare(x: NDArray[np.generic], inputs: tuple[int, ...], transform: Transform = PLAIN) -> Tensor:
    """x (n, d) or (n, H, W[, C]) as (n, *inputs) float32, images in [0, 1] before mean and std. Raises DataRefused."""
    check_kind(x.shape, x.dtype, inputs, transform)
    check_values(x, inputs, transform)
    return convert(x, inputs, transform)


def convert(x: NDArray[np.generic], inputs: tuple[int, ...], transform: Transform) -> Tensor:
    """`prepare` for checked arrays."""
    made = sized(x, inputs, scale_of(x.dtype, inputs, transform))
    return finished(torch.from_numpy(made.x), torch.empty(made.x.shape), made.white, transform)


def finished(x: Tensor, into: Tensor, white: float, transform: Transform) -> Tensor:
    """x (n, *inputs) as `sized` gives it, as floats: divided by white, inverted, less mean, divided by std. `into`: float32.

    Images of 1 or 3 channels come to lie in [0, 1] before mean and std. Token ids, int64, are copied.
    """
    if not into.is_floating_point():
        return into.copy_(x)
    into.copy_(x).div_(white)
    if into.ndim == 4:
        if into.shape[1] in PICTURES and (x.dtype != torch.uint8 or white < WHITEST):
            into.clamp_(0.0, 1.0)
        if transform.invert:
            torch.sub(torch.ones(()), into, out=into)
    if (transform.mean, transform.std) != (PLAIN.mean, PLAIN.std):
        shape = (-1, *(1 for _ in into.shape[2:]))
        into.sub_(torch.tensor(transform.mean).view(shape)).div_(torch.tensor(transform.std).view(shape))
    return into


def scale_of(dtype: np.dtype[np.generic], inputs: tuple[int, ...], transform: Transform) -> float:
    """The raw value that means 1.0. Raises DataRefused if the type of the pixels does not show it."""
    if transform.scale is not None:
        return transform.scale
    if len(inputs) == 1 or dtype.kind in "fb":
        return 1.0
    if dtype == np.uint8:
        return 255.0
    raise DataRefused(f"the pixels are {dtype}, whose white is unknown", "Set scale in transforms.toml")


def check_kind(shape: tuple[int, ...], dtype: np.dtype[np.generic], inputs: tuple[int, ...], transform: Transform) -> None:
    """Raises DataRefused (`expected`, `got`) unless arrays of this shape and type can become the world's inputs."""
    if dtype.kind not in "biuf":
        what = f"x holds {dtype.name}, not numbers"
        raise DataRefused(what, "Save x as uint8 or float32", expected="numbers", kind=str(dtype)[:400])
    if len(inputs) == 1:
        check_features(shape, inputs, transform)
    elif len(inputs) == 3 and inputs[0] in PICTURES:
        check_images(shape)
        scale_of(dtype, inputs, transform)
    else:
        what = f"the world's inputs are {times(inputs)}, neither features nor images of 1 or 3 channels"
        raise DataRefused(what, "Ask for a world with inputs [features] or [channels, height, width]")
    check_constants(inputs, transform)


def check_constants(inputs: tuple[int, ...], transform: Transform) -> None:
    """Raises DataRefused unless mean and std are one number, or one per channel or feature."""
    for name in ("mean", "std"):
        n = len(getattr(transform, name))
        if n not in (1, inputs[0]):
            raise DataRefused(f"{name} has {n} numbers", f"Give one number or {inputs[0]}", expected=inputs[0], got=n)


def check_features(shape: tuple[int, ...], inputs: tuple[int, ...], transform: Transform) -> None:
    """Raises DataRefused unless each sample is a vector as wide as the world's."""
    if shape[1:] != inputs:
        what = f"a sample of x is {times(shape[1:])}; the world expects {inputs[0]} features"
        raise DataRefused(what, f"Save x with shape (n, {inputs[0]})", expected=list(inputs), got=list(shape[1:]))
    if transform.invert:
        raise DataRefused("invert is set, but the samples are features", "Take invert out of transforms.toml")


def check_images(shape: tuple[int, ...]) -> None:
    """Raises DataRefused unless each sample is H x W, H x W x 1 or H x W x 3."""
    if not (len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))) or 0 in shape[1:]:
        what = f"a sample of x is {times(shape[1:])}; the world expects images, H x W or H x W x 3, channels last"
        raise DataRefused(what, "Save x with shape (n, H, W) or (n, H, W, 3)", expected="H x W [x 3]", got=list(shape[1:]))


def check_values(x: NDArray[np.generic], inputs: tuple[int, ...], transform: Transform, first: int = 0) -> None:
    """Raises DataRefused for NaN, infinity, and values that do not fit scale, mean and std. x begins at row `first`."""
    scale = scale_of(x.dtype, inputs, transform)
    if x.dtype == np.uint8 and len(inputs) == 3 and scale >= WHITEST:
        return  # any byte fits, with any mean and std that a setting may have
    low, high = ends_of(x, first)
    if len(inputs) == 3:
        check_pixels(low, high, scale)
    check_reach(low, high, scale, transform)


def ends_of(x: NDArray[np.generic], first: int = 0) -> tuple[float, float]:
    """The least and the largest value. Raises DataRefused for NaN and infinity. x begins at row `first`."""
    low, high = float(x.min()), float(x.max())
    # A NaN or an infinity shows in the bounds, so no mask as large as x is needed.
    if not (np.isfinite(low) and np.isfinite(high)):
        row = next(i for i, sample in enumerate(x, first) if not np.isfinite(sample).all())
        raise DataRefused(f"x holds NaN or infinity, first in row {row}", "Remove or fill these rows", row=row)
    return low, high


def check_pixels(low: float, high: float, scale: float) -> None:
    """Raises DataRefused for pixels clearly outside 0 to scale."""
    if low < -OVERSHOOT * scale or high > (1 + OVERSHOOT) * scale:
        what = f"there are pixels outside 0 to {scale:g}, the scale"
        todo = "Set scale in transforms.toml to the raw value that is white"
        raise DataRefused(what, todo, expected=scale, values=f"{low:g} to {high:g}")


def check_reach(low: float, high: float, scale: float, transform: Transform) -> None:
    """Raises DataRefused for values that float32 cannot hold with scale, mean and std."""
    reach = max(-low, high) / scale + max(abs(m) for m in transform.mean)
    if max(-low, high, reach / min(transform.std)) > float(np.finfo(np.float32).max):
        what = "values of x become too large for float32 with this scale, mean and std"
        raise DataRefused(what, "Scale x down, or correct scale, mean and std", values=f"{low:g} to {high:g}")


def times(shape: tuple[int, ...]) -> str:
    """A shape in words: 28 x 28."""
    return " x ".join(str(s) for s in shape) or "a single number"
