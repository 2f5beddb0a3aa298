"""What values are held to, on the way out of a site and again on the way in: types, dims, names, finite numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.core.handle import Maker
from tideline.core.record import Kind
from tideline.core.run import EMPTY

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES: Mapping[torch.dtype, str] = {v: k for k, v in DTYPES.items()}
MOST = 1e15  # of a number in a reply, either way: squared and summed in float32 it is finite yet
# JSON has no word for these numbers; where they are allowed, they are written as texts.
NOT_FINITE = ("nan", "inf", "-inf")


@dataclass(frozen=True)
class Rules:
    """What a record is held to: sizes of named dims, records that `like` refers to, whether numbers must be finite, how large one
    may be, either way, and who makes values for peers; None: nobody may.
    """

    sizes: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    like: tuple[Any, ...] = ()
    finite: bool = True
    most: float = math.inf
    maker: Maker | None = None


RULES = Rules()
LAX = Rules(finite=False)


class Walker:
    """What writing and reading share: the rules, and the dims bound so far in this message."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.bound = dict(rules.sizes)

    def admit(self, tensor: Tensor, dims: str, path: str, low: float | None = None) -> Tensor:
        """A tensor that can be kept, fits its dims and is finite, its numbers within the bounds."""
        check_kept(tensor, path)
        if dims:
            self.bind(tuple(tensor.shape), dims.split(), path)
        if tensor.dtype == torch.bool:
            if not is_boolean(tensor):
                raise errors.NotBoolean(f"{path} holds a byte that is neither 0 nor 1")
        elif tensor.numel() and (
            low is not None or self.rules.most < math.inf or (self.rules.finite and tensor.is_floating_point())
        ):
            self.bounded(tensor, low, path)
        return tensor

    def bounded(self, tensor: Tensor, low: float | None, path: str) -> None:
        """Hold each number of a tensor to the bounds: one pass, no mask (aminmax hands NaN through)."""
        least, largest = (end.item() for end in torch.aminmax(tensor.detach()))
        if self.rules.finite and not (math.isfinite(least) and math.isfinite(largest)):
            raise errors.NotFinite(f"{path} holds a NaN or an infinity", "Lower the learning rate, or check the data for NaN")
        self.within(least, low, path)
        self.within(largest, low, path)

    def within(self, value: Any, low: float | None, path: str) -> Any:
        """The number, if it is not below the field's bound, and not beyond what any number of the message may be."""
        if low is not None and value < low:
            raise errors.OutOfRange(f"{path} is {value}; it is declared as {low:g} or more")
        if not isinstance(value, str) and abs(value) > self.rules.most:
            raise errors.OutOfRange(f"{path} is {value:g}; no number may be beyond {self.rules.most:g}", "Check the data's scale")
        return value

    def bind(self, shape: tuple[int, ...], names: Sequence[str], path: str) -> None:
        """Hold a shape to its dims; a name met first is bound for the rest of the message."""
        fixed = names[:-1] if names[-1] == "..." else names
        if len(shape) < len(fixed) or (len(shape) > len(fixed) and fixed is names):
            raise errors.WrongDims(f"{path} has the shape {list(shape)}; it is declared as ({' '.join(names)})")
        for name, size in zip(fixed, shape, strict=False):
            wanted = int(name) if name.isdigit() else self.bound.setdefault(name, size)
            if wanted != size:
                raise errors.WrongDims(
                    f"{path} has {name} = {size}; expected {wanted} (shape {list(shape)}, dims {' '.join(names)})"
                )

    def admit_weights(self, weights: Mapping[str, Tensor], dims: str, path: str) -> None:
        """Named tensors that are finite and, where declared, like the template in names, shapes and dtypes."""
        for name, tensor in weights.items():
            self.admit(tensor, "", under(path, name))
        if (template := self.template(dims)) is not None:
            same(weights, template, path)

    def template(self, dims: str) -> Mapping[str, Tensor] | None:
        """The weights that `like name` refers to; None where the dims refer to none."""
        if not dims:
            return None
        name = dims.removeprefix("like ")
        for value in self.rules.like:
            found = getattr(value, name, None)
            if isinstance(found, Mapping):
                return found
        raise errors.WrongDims(f"Nothing named {name!r} was sent that a reply could be like", "Name a Weights field of the order")


def same(weights: Mapping[str, Tensor], template: Mapping[str, Tensor], path: str) -> None:
    """Names, shapes and dtypes agree."""
    same_names(weights, template, path)
    for name, tensor in weights.items():
        like = template[name]
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            got, want = (f"{list(t.shape)} {t.dtype}" for t in (tensor, like))
            raise errors.WrongDims(f"{path}/{name} is {got}; expected {want}")


def same_names(weights: Mapping[str, Any], template: Mapping[str, Tensor], path: str) -> None:
    """Names agree."""
    if weights.keys() != template.keys():
        odd = min(weights.keys() ^ template.keys())
        raise errors.WrongDims(f"{path} {'lacks' if odd in template else 'has the unexpected tensor'} {odd[:80]!r}")


def check_kept(tensor: Any, path: str) -> None:
    """A dense tensor with storage, of a dtype that archives hold."""
    expect(tensor, Tensor, path)
    if tensor.dtype not in DTYPE_NAMES:
        known = ", ".join(str(d) for d in DTYPE_NAMES)
        raise errors.UnknownDtype(f"{path} has the dtype {tensor.dtype}", f"Convert it to one of {known}")
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise errors.WrongType(f"{path} is a sparse tensor, or one without storage", "Make it dense")


def is_boolean(tensor: Tensor) -> bool:
    """Whether each byte of a bool tensor is 0 or 1: any other byte is a truth value to some kernels and a number to others."""
    return not tensor.numel() or int(tensor.detach().contiguous().view(-1).view(torch.uint8).max()) <= 1


def scalar(value: Any, kind: Kind, path: str, finite: bool) -> Any:
    """A number, a text or a truth value of the declared type."""
    wanted: Any = kind.type
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise errors.WrongType(f"{path} is a {type(value).__name__}; it is declared as {wanted.__name__}")
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise errors.TooLarge(f"{path} does not fit 64 bits")
    if finite and wanted is float and not math.isfinite(value):
        raise errors.NotFinite(f"{path} is {value}")
    if wanted is str and not is_unicode(value):
        raise errors.WrongType(f"{path} is a text with a lone surrogate, which is not Unicode")
    return wanted(value)


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_json(value: Any) -> Any:
    """A scalar as JSON has it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(tree: Any, kind: Kind) -> Any:
    """The inverse of `to_json`."""
    return float(tree) if kind.type is float and tree in NOT_FINITE else tree


def expect(value: Any, kind: Any, path: str) -> Any:
    """The value, if it is of the kind."""
    if not isinstance(value, kind):
        raise errors.WrongType(f"{path or 'The message'} is a {type(value).__name__}; it is declared as {kind.__name__}")
    return value


def named(value: Any, path: str) -> list[tuple[str, Any]]:
    """A mapping's pairs in the order of their names, which must be texts."""
    for name in expect(value, Mapping, path):
        if not isinstance(name, str):
            raise errors.WrongType(f"{path} has the key {name!r}, which is no text")
    return sorted(value.items())


def inner(kind: Kind) -> Kind:
    """What a container holds."""
    assert kind.of is not None
    return kind.of


def under(path: str, name: str) -> str:
    """A path one step deeper. A name may not hold the separator, or two paths could be one."""
    if "/" in name:
        raise errors.BadName(f"{name[:80]!r} cannot name a part of {path or 'a message'}", "Use names without slashes")
    return layout.check_name(f"{path}/{name}" if path else name)
