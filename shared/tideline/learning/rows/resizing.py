"""Raw samples at the size of a world's inputs, in two halves: pixels of their own type, then floats.

Between the two lies what a site may write down: rows of whole numbers, smaller than floats. Whoever reads them again gets the
same floats as who has never written them: whole numbers of up to 16 bits stay so when they become grey or are resized, and are
rounded there.
Bytes are resized with whole numbers throughout, so that all processors give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

VERSION = 1  # of what `sized` gives: rows that were written down by another are made again
# How far beyond [0, scale] a pixel may be, as a share of the scale: sharpening resizers overshoot by about as much.
OVERSHOOT = 0.05
REC_601 = (0.299, 0.587, 0.114)
REC_601_WHOLE, SHIFT = (19595, 38470, 7471), 16  # the same in parts of 2 ** SHIFT, which they sum to
SHORT = frozenset(map(np.dtype, (np.uint8, np.int8, np.uint16, np.int16)))
EXACT = 1 << 24  # whole numbers up to here are exact in float32


@dataclass(frozen=True)
class Sized:
    """Samples x (n, *inputs): whole numbers of up to 16 bits, float32, or int64 of token ids; and which value means 1.0."""

    x: NDArray[np.generic]
    white: float


def sized(x: NDArray[np.generic], inputs: tuple[int, ...], scale: float) -> Sized:
    """x, checked, as (n, *inputs): images (n, H, W[, C]) of 1 or 3 channels, resized; others, (n, d) say, as they are.

    Grey is repeated, colours are weighed by Rec. 601; bilinear.
    """
    own = kept(x)
    if len(inputs) != 3:
        return Sized(np.require(own, requirements=["C", "W"]), scale)
    if own.dtype not in SHORT:
        # A share of white from here on, as nothing is rounded.
        return Sized(floats_resized(torch.from_numpy(np.ascontiguousarray(own / np.float32(scale))), inputs).numpy(), 1.0)
    finer = steps(own.dtype, scale)
    if finer > 1:
        own = own * own.dtype.type(finer)
    return Sized(wholes_resized(own, inputs), scale * finer)


def kept(x: NDArray[np.generic]) -> NDArray[Any]:
    """Numbers of the same type if it is short, or else float32."""
    dtype = x.dtype.newbyteorder("=")
    return np.asarray(x, dtype if dtype in SHORT else np.float32)


def steps(dtype: np.dtype[np.generic], scale: float) -> int:
    """What whole numbers are multiplied by before they are rounded: of 16 shades 240 are made. Then x / scale stays as it is."""
    most = limits(dtype)[1] // max(int(scale * (1 + OVERSHOOT)), 1)
    return max(most, 1) if scale >= 1 and float(scale).is_integer() and scale * most < EXACT else 1


def wholes_resized(pixels: NDArray[np.generic], inputs: tuple[int, ...]) -> NDArray[np.generic]:
    """(n, H, W[, C]) as (n, *inputs) of the same type."""
    channels, *size = inputs
    planes = pixels[:, None] if pixels.ndim == 3 else np.moveaxis(pixels, 3, 1)
    if channels == 1 and planes.shape[1] > 1:
        planes = grey(planes)
    if list(planes.shape[2:]) != size:
        planes = interpolated(planes, size)
    # Torch moves axes faster than NumPy, but knows few operations on numbers of 16 bits.
    if planes.dtype == np.uint8 and planes.flags.writeable:
        return torch.from_numpy(planes).expand(-1, channels, -1, -1).contiguous().numpy()
    return np.require(np.broadcast_to(planes, (len(planes), channels, *size)), requirements=["C", "W"])


def limits(dtype: np.dtype[np.generic]) -> tuple[int, int]:
    """The least and the largest number of a type of whole numbers."""
    bits = 8 * dtype.itemsize
    return (0, (1 << bits) - 1) if dtype.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def grey(planes: NDArray[np.generic]) -> NDArray[np.generic]:
    """(n, 3, H, W) as (n, 1, H, W), in whole numbers, rounded."""
    total = np.full((len(planes), *planes.shape[2:]), 1 << (SHIFT - 1), np.int64)
    for i, weight in enumerate(REC_601_WHOLE):
        total += planes[:, i].astype(np.int64) * weight
    return (total >> SHIFT).astype(planes.dtype)[:, None]


def interpolated(planes: NDArray[np.generic], size: list[int]) -> NDArray[np.generic]:
    """(n, C, H, W) of another size, of the same type: of bytes torch keeps the type, others are rounded here."""
    if planes.dtype == np.uint8:
        made = bilinear(torch.from_numpy(np.require(planes, requirements="W")), size)
        return made.numpy()
    wide = bilinear(torch.from_numpy(np.array(planes, np.float32, order="C")), size)
    return wide.round_().clamp_(*limits(planes.dtype)).numpy().astype(planes.dtype)


def floats_resized(pixels: Tensor, inputs: tuple[int, ...]) -> Tensor:
    """(n, H, W[, C]) float32 as (n, *inputs)."""
    channels, *size = inputs
    planes = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)
    if channels == 1 and planes.shape[1] > 1:
        planes = torch.einsum("nchw,c->nhw", planes, torch.tensor(REC_601)).unsqueeze(1)
    planes = planes.expand(-1, channels, -1, -1)
    return (bilinear(planes, size) if list(planes.shape[2:]) != size else planes).contiguous()


def bilinear(planes: Tensor, size: list[int]) -> Tensor:
    return F.interpolate(planes, size=size, mode="bilinear", align_corners=False, antialias=True)
