"""Float32 tensors in fewer bytes, and back: pure functions.

A packed tensor is one or two tensors by name: `values`; of int8 a `scale`, () or one for each row; of topk the flat `indices` of
its values, which rise. Shapes: t (...), n numbers in all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from tideline.archive.errors import BadPacking
from tideline.core.asked.forms import Form
from tideline.core.asked.wire import LEAST_NUMBERS, LONGEST_VECTOR, Format, Scale

Packed = Mapping[str, Tensor]
VALUES, SCALE, INDICES = "values", "scale", "indices"
NAMES: Mapping[Format, tuple[str, ...]] = {
    Format.BFLOAT16: (VALUES,),
    Format.INT8: (VALUES, SCALE),
    Format.TOPK: (VALUES, INDICES),
}
FLOAT_BYTES = 4
STEPS = 127  # of int8, either way from 0
SMALL = 1 << 31  # numbers of a tensor whose places fit 32 bits


def packs(dtype: torch.dtype, shape: torch.Size, form: Form) -> bool:
    """Whether a tensor is packed; others travel as they are."""
    if dtype is not torch.float32 or shape.numel() < LEAST_NUMBERS:
        return False
    return form.format is Format.BFLOAT16 or len(shape) > 1 or shape.numel() > LONGEST_VECTOR


def pack(t: Tensor, form: Form, rng: Generator) -> Packed:
    """A tensor of finite numbers, packed. rng: by which int8 rounds."""
    match form.format:
        case Format.BFLOAT16:
            return {VALUES: t.to(torch.bfloat16)}
        case Format.INT8:
            return int8(t, form.scale, rng)
        case Format.TOPK:
            return topk(t, count_of(t.numel(), form.share))
    raise AssertionError(form.format)


def unpack(packed: Packed, form: Form, shape: torch.Size) -> Tensor:
    """The tensor of that shape, in memory of its own. packed: as `check` passes it."""
    values = packed[VALUES]
    if form.format is Format.TOPK:
        flat = torch.zeros(shape.numel())
        flat[packed[INDICES].long()] = values
        return flat.view(shape)
    made = values.to(torch.float32)
    return made if form.format is Format.BFLOAT16 else made.mul_(spread(packed[SCALE], made.ndim))


def int8(t: Tensor, scale: Scale, rng: Generator) -> Packed:
    """Whole numbers from -127 to 127 times a scale s, the largest number's size over 127: floor(t / s + u), u in [0, 1) uniform.

    So the mean is t, and no number is off by more than s. A tensor, or a row, of zeros has the scale 0.
    """
    size = t.abs()
    s = (size.view(len(t), -1).amax(1) if by_row(t.shape, scale) else size.max()) / STEPS
    made = t / spread(torch.where(s > 0, s, torch.ones_like(s)), t.ndim)
    made = made.add_(torch.rand(t.shape, generator=rng)).floor_().clamp_(-STEPS, STEPS)
    return {VALUES: made.to(torch.int8), SCALE: s}


def topk(t: Tensor, k: int) -> Packed:
    """The k numbers of the largest size, of equal ones those that come first."""
    flat = t.reshape(-1)
    size = flat.abs()
    least = size.kthvalue(len(flat) - k + 1).values
    above = (size > least).nonzero().view(-1)
    equal = (size == least).nonzero().view(-1)[: k - len(above)]
    places = torch.cat([above, equal]).sort().values
    return {VALUES: flat[places], INDICES: places.to(place_dtype(len(flat)))}


def check(packed: Packed, form: Form, shape: torch.Size, path: str) -> None:
    """Raises BadPacking for dtypes and sizes that no packed tensor of this shape has, scales that are none, and places that do
    not rise within the tensor. Nothing of the tensor's size is made before.
    """
    if why := trouble(packed, form, shape):
        raise BadPacking(f"{path} is no tensor of {list(shape)} in the form {form.format}: {why}")


def trouble(packed: Packed, form: Form, shape: torch.Size) -> str:
    """What of a packed tensor is wrong; nothing of most."""
    values = packed[VALUES]
    if not packs(torch.float32, shape, form):
        return "so small a tensor travels as it is"
    match form.format:
        case Format.BFLOAT16:
            return "" if fits(values, torch.bfloat16, shape) else "its values are of another type or shape"
        case Format.INT8:
            return trouble_int8(values, packed[SCALE], form.scale, shape)
    return trouble_topk(values, packed[INDICES], count_of(shape.numel(), form.share), shape.numel())


def trouble_int8(values: Tensor, scale: Tensor, by: Scale, shape: torch.Size) -> str:
    if not fits(values, torch.int8, shape):
        return "its values are of another type or shape"
    if not fits(scale, torch.float32, shape[:1] if by_row(shape, by) else torch.Size(())):
        return "its scales are of another type or number"
    if not bool((torch.isfinite(scale) & (scale >= 0)).all()):
        return "a scale is no finite number of 0 or more"
    return "" if int(values.min()) >= -STEPS else f"a value is below {-STEPS}"


def trouble_topk(values: Tensor, places: Tensor, k: int, n: int) -> str:
    size = torch.Size((k,))
    if not fits(values, torch.float32, size) or not fits(places, place_dtype(n), size):
        return f"it has not {k} values and their places"
    if int(places[0]) < 0 or int(places[-1]) >= n:
        return f"a place is not among its {n} numbers"
    return "" if bool((places[1:] > places[:-1]).all()) else "its places do not rise"


def fits(t: Tensor, dtype: torch.dtype, shape: torch.Size) -> bool:
    return t.dtype is dtype and t.shape == shape


def by_row(shape: torch.Size, scale: Scale) -> bool:
    """Whether each row has a scale of its own: of a vector none has."""
    return scale is Scale.ROW and len(shape) > 1


def spread(scale: Tensor, axes: int) -> Tensor:
    """A scale for each row, or one for all, in the shape that a tensor of so many axes is multiplied by."""
    return scale.view(-1, *(1,) * (axes - 1)) if scale.ndim else scale


def count_of(numbers: int, share: float) -> int:
    """How many numbers topk sends."""
    return min(max(math.ceil(share * numbers), 1), numbers)


def place_dtype(numbers: int) -> torch.dtype:
    return torch.int32 if numbers < SMALL else torch.int64
