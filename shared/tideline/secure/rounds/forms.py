"""Messages, and a site's states, as files in the project's one layout: fields as JSON in the header, arrays as buffers.

A file holds what its type declares, and nothing else; what came over a line is held to limits before memory is taken for it.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from tideline.archive import layout
from tideline.archive.digests import HEXADECIMAL, Buffer
from tideline.archive.errors import BadMetadata, HeaderTooLarge, Missing, OutOfRange, Undeclared, WrongDims, WrongType
from tideline.archive.layout import Entry, Limits
from tideline.core.errors import ConfigRefused, kind_of
from tideline.core.settings import Plain
from tideline.secure.fixed_point import WORDS, Words

FORM = "tideline secure 1"
MOST_TEXT, MOST_BYTES, MOST_ITEMS = 1024, 4096, 4096  # of a text, of bytes in hexadecimal, of a list
MOST_PLAIN = 16 << 20  # bytes of a file without an array: the parcels of 3500 sites take half of that
LIMITS = Limits(header_bytes=MOST_PLAIN, texts=200_000, brackets=100_000, commas=400_000, tensors=1, depth=16)
DTYPES: Mapping[str, type[np.unsignedinteger]] = {"I32": np.uint32, "I64": np.uint64}  # the layout's integers have signs
T = TypeVar("T")


def to_buffers(message: Any) -> list[Buffer]:
    """A message's file. An array is not copied."""
    arrays = {f.name: getattr(message, f.name) for f in fields(message) if hints_of(type(message))[f.name] == Words}
    tree = {"form": FORM, "is": type(message).__name__, **written(message)}
    shapes = {name: (dtype_of(values), values.shape) for name, values in arrays.items()}
    head, order = layout.build(shapes, {layout.RECORD: json.dumps(tree, separators=(",", ":"), allow_nan=False)}, LIMITS)
    layout.at_most(8 + layout.ALIGN + len(head), MOST_PLAIN, HeaderTooLarge, "The message has {} bytes beside its values")
    return [head, *(np.ascontiguousarray(arrays[name]).data.cast("B") for name in order)]


def to_bytes(message: Any) -> bytes:
    return b"".join(to_buffers(message))


def from_bytes(kind: type[T], buffer: Buffer, most_values: int = 0) -> T:
    """A message of a type; arrays lie over the buffer, and cannot be written to. Raises Malformed errors.

    most_values: how many values it may bring.
    """
    view = memoryview(buffer).cast("B")
    layout.at_most(len(view), MOST_PLAIN + 8 * most_values, HeaderTooLarge, "The message has {} bytes")
    header = layout.parse(view, LIMITS)
    tree = dict(header.structure)
    if (tree.pop("form", None), tree.pop("is", None)) != (FORM, kind.__name__):
        raise BadMetadata(f"The file is no {kind.__name__} of {FORM}", "Use equal versions on both ends")
    arrays = {name: array_of(view, header.data_start, entry, most_values) for name, entry in header.entries.items()}
    made: T = record(kind, tree, kind.__name__, arrays)
    if arrays:
        raise Undeclared(f"The file holds {min(arrays)!r}, which {kind.__name__} does not declare")
    return made


def dtype_of(values: Words) -> str:
    for name, dtype in DTYPES.items():
        if values.dtype == dtype and values.ndim == 1:
            return name
    bits = " or ".join(map(str, WORDS))
    raise WrongType(f"Values have the type {values.dtype} and {values.ndim} axes; they are {bits} bits, in one axis")


def array_of(view: memoryview, start: int, entry: Entry, most: int) -> Words:
    if entry.dtype not in DTYPES or len(entry.shape) != 1:
        raise WrongType(f"{entry.name!r} has the type {entry.dtype} and {len(entry.shape)} axes; it is one axis of whole numbers")
    if entry.shape[0] > most:
        raise WrongDims(f"{entry.name!r} has {entry.shape[0]} values; {most} are awaited at most")
    return np.frombuffer(view[start + entry.begin : start + entry.end], DTYPES[entry.dtype]).view()


def hints_of(kind: type[Any]) -> dict[str, Any]:
    return hints(typing.cast(Hashable, kind))


@cache
def hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def written(value: Any) -> Any:
    """A value as plain data: bytes as hexadecimal, an array as null."""
    if is_dataclass(value):
        return {f.name: written(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [written(each) for each in value]
    return None if isinstance(value, np.ndarray) else value


def record(kind: type[Any], tree: Plain, path: str, arrays: dict[str, Words] | None = None) -> Any:
    """A value of a dataclass. Raises WrongType, Missing, Undeclared, and OutOfRange for what its own checks refuse."""
    if not isinstance(tree, dict):
        raise mistyped(path, "an object", tree)
    names = [f.name for f in fields(kind)]
    if more := sorted(tree.keys() - set(names)):
        raise Undeclared(f"{path}.{more[0][:64]} is not declared")
    if lacking := [name for name in names if name not in tree]:
        raise Missing(f"{path}.{lacking[0]} is declared and missing")
    try:
        return kind(**{name: read(hints_of(kind)[name], tree[name], f"{path}.{name}", arrays) for name in names})
    except ConfigRefused as cause:  # of terms that came over a line
        raise OutOfRange(f"{path} is refused: {cause.what}", cause.todo) from None


def read(hint: Any, tree: Plain, path: str, arrays: dict[str, Words] | None) -> Any:
    if hint == Words:
        name = path.rpartition(".")[2]
        if tree is not None or arrays is None or name not in arrays:
            raise Missing(f"{path} is declared and missing")
        return arrays.pop(name)
    if typing.get_origin(hint) is tuple:
        if not isinstance(tree, list) or len(tree) > MOST_ITEMS:
            raise mistyped(path, f"a list of up to {MOST_ITEMS}", tree)
        return tuple(read(typing.get_args(hint)[0], each, f"{path}[{at}]", None) for at, each in enumerate(tree))
    return READERS[hint](tree, path) if hint in READERS else record(hint, tree, path)


def text(tree: Plain, path: str) -> str:
    if not isinstance(tree, str) or len(tree) > MOST_TEXT or not tree.isprintable():
        raise mistyped(path, f"a printable text of up to {MOST_TEXT}", tree)
    return tree


def whole(tree: Plain, path: str) -> int:
    if type(tree) is not int or abs(tree) >= 1 << 62:
        raise mistyped(path, "a whole number below 2^62", tree)
    return tree


def number(tree: Plain, path: str) -> float:
    if isinstance(tree, bool) or not isinstance(tree, int | float) or not isfinite(tree):
        raise mistyped(path, "a finite number", tree)
    return float(tree)


def raw(tree: Plain, path: str) -> bytes:
    if not isinstance(tree, str) or len(tree) > 2 * MOST_BYTES or len(tree) % 2 or set(tree) - HEXADECIMAL:
        raise mistyped(path, f"up to {MOST_BYTES} bytes in hexadecimal", tree)
    return bytes.fromhex(tree)


def mistyped(path: str, wanted: str, tree: Plain) -> WrongType:
    return WrongType(f"{path} is {kind_of(tree)} where {wanted} is due")


READERS: Mapping[Any, Callable[[Plain, str], Any]] = {str: text, int: whole, float: number, bytes: raw}
