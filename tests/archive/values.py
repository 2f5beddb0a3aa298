"""Records for the tests of the archive, ways to make them and to write their files by hand, and equality bit for bit."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tideline.archive import layout
from tideline.archive.checks import DTYPES
from tideline.archive.digests import digest_of
from tideline.archive.parts import MemoryParts
from tideline.core.handle import Handle
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId, Digest


@record
class Point:
    """A tensor and a number."""

    x: Tensor
    n: int


@record
class Sealed:
    """What a handle of `Everything` would open."""

    x: Tensor = field("n", Exposure.WEIGHTS, audience=TO_PEERS)


@record
class Everything:
    """A field of every kind that a record can hold."""

    tensor: Tensor
    weights: Weights
    count: int
    rate: float
    name: str
    flag: bool
    maybe: Tensor | None
    point: Point
    points: tuple[Point, ...]
    table: dict[str, Point]
    deep: dict[str, tuple[Tensor | None, ...]]
    texts: tuple[str, ...]
    twice: tuple[tuple[int, ...] | None, ...]
    handle: Handle[Sealed] | None


@record
class Square:
    """Two tensors that share a dim, a number, and named tensors."""

    x: Tensor = field("n n")
    y: Tensor = field("n 2 ...")
    rate: float = 0.5
    count: int = field(low=-1, default=1)
    w: Weights = dataclasses.field(default_factory=dict)


@record
class Flags:
    """A tensor and a text."""

    on: Tensor
    name: str = ""


@record
class Chain:
    """A record that may hold one of its own kind."""

    rest: Chain | None


def tensor_from(dtype: torch.dtype, shape: Sequence[int], noise: bytes) -> Tensor:
    """A tensor of these bytes, repeated as needed; truth values are the bytes' last bits."""
    wanted = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    raw = bytearray((noise * (wanted // len(noise) + 1))[:wanted])
    if dtype is torch.bool:
        raw = bytearray(b & 1 for b in raw)
    return torch.frombuffer(raw, dtype=dtype).clone().view(tuple(shape)) if wanted else torch.empty(tuple(shape), dtype=dtype)


def contorted(tensor: Tensor, way: str) -> Tensor:
    """The tensor, or a view that is not contiguous."""
    if way == "turned" and tensor.ndim > 1:
        return tensor.transpose(0, -1)
    if way == "strided" and tensor.ndim:
        return tensor[::2]
    if way == "widened" and tensor.ndim:
        return tensor[:1].expand(min(1, tensor.shape[0]) * 3, *tensor.shape[1:])
    return tensor


tensors = st.builds(
    contorted,
    st.builds(
        tensor_from,
        st.sampled_from(list(DTYPES.values())),
        st.lists(st.integers(0, 4), max_size=3),
        st.binary(min_size=1, max_size=32),
    ),
    st.sampled_from(["straight", "turned", "strided", "widened"]),
)
letters = st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\")
names = st.text(letters, min_size=1, max_size=12).filter(lambda n: n not in (".", ".."))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["part", "[" * 90, '"\\"]}', "nan"])
integers = st.integers(-(2**63), 2**63 - 1)


def some(what: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A short tuple."""
    return st.lists(what, max_size=5).map(tuple)


def by_name(what: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A small dictionary."""
    return st.dictionaries(names, what, max_size=3)


counts = st.integers(0, 2**63 - 1)


def handle(made_of: bytes, size: int, holder: str, phase: str, number: int) -> Handle[Sealed]:
    """A handle, as everybody but its holder knows it."""
    return Handle(digest_of([made_of]), size, ClientId(holder), phase, number, kind=Sealed)


points = st.builds(Point, tensors, integers)
everything = st.builds(
    Everything,
    tensors,
    by_name(tensors),
    integers,
    st.floats(allow_subnormal=True),
    texts,
    st.booleans(),
    st.none() | tensors,
    points,
    some(points),
    by_name(points),
    by_name(some(st.none() | tensors)),
    some(texts),
    some(st.none() | some(integers)),
    st.none() | st.builds(handle, st.binary(), counts, names, names, counts),
)


def equal(a: Any, b: Any) -> bool:
    """Equality of types, structure and every bit."""
    if isinstance(a, type):
        return a is b
    if isinstance(a, Tensor):
        alike = isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype
        return alike and bytes_of(a) == bytes_of(b)
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and a == b and repr(a) == repr(b)


def bytes_of(tensor: Tensor) -> bytes:
    """A tensor's bytes."""
    # Not `contiguous`: a single element of a strided view would keep its stride.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()


def file(head: Any, data: bytes = b"", size: int | None = None) -> bytes:
    """A file with any header: an object, or its text. `size` is a lie about the header's length."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % layout.ALIGN)
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def head(meta: Any = None, **entries: Any) -> dict[str, Any]:
    """A header's object, with our layout's version."""
    return {layout.META: {layout.VERSION: layout.LAYOUT, **(meta or {})}, **entries}


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    """An entry of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def root(tree: Any, tensors: Mapping[str, Tensor] | None = None) -> bytes:
    """A file whose record has any structure, written without the codec. A structure may be given as text."""
    tensors = tensors or {}
    text = tree if isinstance(tree, str) else json.dumps(tree)
    words = {dtype: word for word, dtype in DTYPES.items()}
    made, order = layout.build({n: (words[t.dtype], tuple(t.shape)) for n, t in tensors.items()}, {layout.RECORD: text})
    return made + b"".join(bytes_of(tensors[n]) for n in order)


def stored(*files: bytes) -> tuple[MemoryParts, Digest]:
    """A store with these files, and the digest of the first."""
    parts = MemoryParts()
    digests = [parts.put([f]) for f in files]
    return parts, digests[0]
