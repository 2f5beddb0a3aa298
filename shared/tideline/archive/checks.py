"""What values are held to, on the way out of a site and again on the way in: types, dims, names, finite numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.wire.packing import Packing
from tideline.core.errors import kind_of
from tideline.core.handle import Maker
from tideline.core.record import Kind, Record, Value, Weights
from tideline.core.settings import EMPTY, Plain

T = TypeVar("T")
Scalar = bool | int | float | str

KINDS = (
    *(torch.float64, torch.int64, torch.float32, torch.int32, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.bool),
)
DTYPES: Mapping[str, torch.dtype] = dict(zip(layout.ITEM_BYTES, KINDS, strict=True))
DTYPE_NAMES: Mapping[torch.dtype, str] = {v: k for k, v in DTYPES.items()}
FINITE = sys.float_info.max
TOGETHER = 1 << 16  # numbers that are checked at once: a copy of them costs less than a pass over each tensor
MOST = 1e15  # of a number in a reply, either way: squared and summed in float32 it is finite yet


@dataclass(frozen=True)
class Rules:
    """What a record is held to: sizes of named dims, records that `like` refers to, whether numbers must be finite, how large one
    may be, either way, who makes values for peers (None: nobody may), and how its weights are packed (None: they are not).

    numbers: whether those of tensors are looked at; they need not be where the same bytes were held to the same rules before.
    """

    sizes: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    like: tuple[Record, ...] = ()
    finite: bool = True
    most: float = math.inf
    maker: Maker | None = None
    packing: Packing | None = None
    numbers: bool = True

    def of_reply(self, bound: Mapping[str, int], order: Record) -> Rules:
        """What the reply to an order is held to: the order's names, shapes and dims, and numbers that can be folded.

        These rules are the order's, and `bound` are the sizes of dims that were met in it.
        """
        return Rules(bound, (order,), most=MOST, packing=self.packing and self.packing.reply)


RULES = Rules()
LAX = Rules(finite=False)


@dataclass
class Checks:
    """The checks of one message by its rules. bound: the sizes of dims that were met so far."""

    rules: Rules
    bound: dict[str, int]

    def tensor(self, tensor: Value, dims: str, path: str, low: float | None = None, numbers: bool = True) -> Tensor:
        """A dense tensor of a dtype that archives hold, which fits its dims, its numbers finite and within the bounds.

        numbers: whether they are looked at; they need not be where `fine` has.
        """
        if not isinstance(tensor, Tensor):
            raise mistyped(tensor, Tensor, path)
        if tensor.dtype not in DTYPE_NAMES:
            known = ", ".join(str(d) for d in DTYPE_NAMES)
            raise errors.UnknownDtype(f"{path} has the dtype {tensor.dtype}", f"Convert it to one of {known}")
        if tensor.layout is not torch.strided or tensor.is_meta:
            raise errors.WrongType(f"{path} is a sparse tensor, or one without storage", "Make it dense")
        if dims:
            self.bind(tuple(tensor.shape), dims.split(), path)
        if not (numbers and self.rules.numbers and tensor.numel()):
            return tensor
        if tensor.dtype == torch.bool:
            # Any other byte is a truth value to some kernels and a number to others.
            if int(tensor.detach().contiguous().view(-1).view(torch.uint8).max()) > 1:
                raise errors.NotBoolean(f"{path} holds a byte that is neither 0 nor 1")
        elif low is not None or self.rules.most < math.inf or (self.rules.finite and tensor.is_floating_point()):
            # One pass, no mask: aminmax hands NaN through.
            ends = [end.item() for end in torch.aminmax(tensor.detach())]
            if self.rules.finite and not all(map(math.isfinite, ends)):
                raise errors.NotFinite(f"{path} holds a NaN or an infinity", "Lower the learning rate, or check the data for NaN")
            if low is not None or self.rules.most < math.inf:
                for end in ends:
                    self.number(end, low, path)
        return tensor

    def fine(self, tensors: Collection[Tensor]) -> bool:
        """Whether small tensors of one floating dtype are finite and within the bounds: one pass over all of them."""
        dtype = next((each.dtype for each in tensors), torch.bool)
        alike = dtype.is_floating_point and all(each.dtype is dtype and each.is_cpu for each in tensors)
        if not alike or not 0 < sum(each.numel() for each in tensors) <= TOGETHER:
            return False
        low, high = torch.aminmax(torch.cat([each.detach().reshape(-1) for each in tensors]))
        return max(-low.item(), high.item()) <= min(self.rules.most, FINITE)

    def bind(self, shape: tuple[int, ...], names: list[str], path: str) -> None:
        """Hold a shape to its dims; a name met first is bound for the rest of the message."""
        fixed = names[:-1] if names[-1] == "..." else names
        if len(shape) < len(fixed) or (len(shape) > len(fixed) and fixed is names):
            raise errors.WrongDims(f"{path} has the shape {list(shape)}; it is declared as ({' '.join(names)})")
        for name, size in zip(fixed, shape, strict=False):
            wanted = int(name) if name.isdigit() else self.bound.setdefault(name, size)
            if wanted != size:
                what = f"{path} has {name} = {size}; expected {wanted} (shape {list(shape)}, dims {' '.join(names)})"
                raise errors.WrongDims(what)

    def number(self, value: float, low: float | None, path: str) -> None:
        """Refuse a number below the field's bound, or beyond what any number of the message may be."""
        if low is not None and value < low:
            raise errors.OutOfRange(f"{path} is {value}; it is declared as {low:g} or more")
        if abs(value) > self.rules.most:
            raise errors.OutOfRange(
                f"{path} is {value:g}; no number may be beyond {self.rules.most:g}",
                "Lower the learning rate, or check the data's scale",
            )

    def scalar(self, value: Value | Plain, kind: Kind, low: float | None, path: str) -> Scalar:
        """A number, a text or a truth value of the declared type, within the bounds."""
        if type(value) is not kind.type and not (kind.type is float and type(value) is int):
            raise mistyped(value, kind.type, path)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise errors.TooLarge(f"{path} does not fit 64 bits")
        if self.rules.finite and isinstance(value, float) and not math.isfinite(value):
            raise errors.NotFinite(f"{path} is {value}")
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise errors.WrongType(f"{path} is a text with a lone surrogate, which is not Unicode")
        scalar: Scalar = kind.type(value)
        if not isinstance(scalar, str):
            self.number(scalar, low, path)
        return scalar

    def weights(
        self, weights: Weights, dims: str, path: str, looked_at: Callable[[Tensor], bool] = lambda tensor: False
    ) -> Weights | None:
        """Named tensors that are finite and, where declared, like the template in names, shapes and dtypes; the template.

        looked_at: whether a tensor's numbers were looked at before.
        """
        named = {under(path, name): tensor for name, tensor in weights.items()}
        for place, tensor in named.items():
            self.tensor(tensor, "", place, numbers=False)
        new = {place: tensor for place, tensor in named.items() if self.rules.numbers and not looked_at(tensor)}
        if not self.fine(new.values()):
            for place, tensor in new.items():
                self.tensor(tensor, "", place)
        if (template := self.template(weights, dims, path)) is None:
            return None
        for name, tensor in weights.items():
            like = template[name]
            if tensor.shape != like.shape or tensor.dtype != like.dtype:
                got, want = (f"{list(t.shape)} {t.dtype}" for t in (tensor, like))
                raise errors.WrongDims(f"{path}/{name} is {got}; expected {want}")
        return template

    def template(self, names: Mapping[str, Value | Plain], dims: str, path: str) -> Weights | None:
        """The weights that `like NAME` refers to, whose names are these; None where the dims refer to none."""
        if not dims:
            return None
        name = dims.removeprefix("like ")
        template = next((v for record in self.rules.like if isinstance(v := getattr(record, name, None), Mapping)), None)
        if template is None:
            what = f"Nothing named {name!r} was sent that a reply could be like"
            raise errors.WrongDims(what, "Name a Weights field of the order")
        if names.keys() != template.keys():
            odd = min(names.keys() ^ template.keys())
            raise errors.WrongDims(f"{path} {'lacks' if odd in template else 'has the unexpected tensor'} {odd[:80]!r}")
        return template


def mistyped(value: Value | Plain, kind: type, path: str) -> errors.WrongType:
    return errors.WrongType(f"{path or 'The message'} is {kind_of(value)}; it is declared as {kind.__name__}")


def expect(value: Value | Plain, kind: type[T], path: str) -> T:
    if not isinstance(value, kind):
        raise mistyped(value, kind, path)
    return value


def under(path: str, name: str) -> str:
    """A path one step deeper. A name may not hold the separator, or two paths could be one."""
    if "/" in name:
        raise errors.BadName(f"{name[:80]!r} cannot name a part of {path or 'a message'}", "Use names without slashes")
    return layout.check_name(f"{path}/{name}" if path else name)
