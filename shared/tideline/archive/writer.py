"""Records to files. A record becomes one root file and a part for each tensor of PART_BYTES or more.

The root names its parts by digest, so the root's digest stands for the whole value. The structure in a root's metadata is walked
by the record's type, so it needs no tags but one:

    tensor in this file    null
    tensor as a part       ["part", digest, dtype, shape, bytes of the part's file]
    weights, dict, record  an object      tuple  an array      scalar  itself      optional  null or an array of the value
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, cast
from weakref import ref

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.checks import DTYPE_NAMES, RULES, Checks, Rules, expect, under
from tideline.archive.parts import Buffer, Parts
from tideline.core.handle import AnyHandle, Handle
from tideline.core.record import Kind, Spec, is_record, specs
from tideline.core.run import Digest

PART_BYTES = 1 << 20
WRITERS = 2  # parts written at once


@dataclass(frozen=True)
class Message:
    """An encoded record: its root's digest and every file it needs, (digest, bytes), the root first.

    handles: the sealed values that it names. Where they were made, each one's file is written beside the others.
    """

    digest: Digest
    files: tuple[tuple[Digest, int], ...]
    handles: tuple[AnyHandle, ...] = ()

    @property
    def size(self) -> int:
        return sum(size for _, size in self.files)


@dataclass
class Memo:
    """Parts written during one turn, by tensor: what is sent and stored at once is hashed and written once.

    Tensors are not held: a turn may make a model for each client, one after the other.
    """

    known: dict[int, tuple[ref[Tensor], int, Digest, int]] = field(default_factory=dict)

    def get(self, tensor: Tensor) -> tuple[Digest, int] | None:
        known = self.known.get(id(tensor))
        # An id is lent again once its tensor is gone.
        if known is None or known[0]() is not tensor or known[1] != tensor._version:
            return None
        return known[2], known[3]

    def put(self, tensor: Tensor, digest: Digest, size: int) -> None:
        """Remember a part. Without a version a change could not be seen."""
        if not tensor.is_inference():
            self.known[id(tensor)] = (ref(tensor), tensor._version, digest, size)


def encode(value: Any, parts: Parts, rules: Rules = RULES, memo: Memo | None = None) -> Message:
    """Write a record into `parts`. Raises Malformed errors for what its type does not declare."""
    writer = Writer(parts, rules, memo or Memo())
    root = writer.root(value, type(value))
    return Message(root[0], (root, *writer.written.items()), tuple(writer.handles.values()))


class Writer:
    """Walks a value by its type; fills `inline` (tensors of the root), `written` (parts) and `handles`.

    whole: no tensor is a part of its own, however large.
    """

    def __init__(self, parts: Parts, rules: Rules, memo: Memo, whole: bool = False) -> None:
        self.parts, self.rules, self.memo, self.whole = parts, rules, memo, whole
        self.checks = Checks(rules)
        self.inline: dict[str, Tensor] = {}
        self.written: dict[Digest, int] = {}
        self.handles: dict[AnyHandle, AnyHandle] = {}
        self.named = 0  # times that a part is named

    def root(self, value: Any, kind: type[Any]) -> tuple[Digest, int]:
        """Write a record's root, and first the parts that it names: its digest and bytes."""
        tree = self.record(value, kind, "")
        layout.few_parts(self.named + len(self.handles))
        return self.file(self.inline, {layout.RECORD: json.dumps(tree, separators=(",", ":"), allow_nan=False)})

    def record(self, value: Any, kind: type[Any], path: str) -> dict[str, Any]:
        if not is_record(kind) or type(value) is not kind:
            raise errors.WrongType(f"{path or 'The message'} is a {type(value).__name__}; it is declared as {kind.__name__}")
        return {s.name: self.value(getattr(value, s.name), s.kind, s, under(path, s.name)) for s in specs(kind)}

    def value(self, value: Any, kind: Kind, spec: Spec, path: str) -> Any:
        """One value's structure. JSON has no word for numbers that are not finite: they are written as texts."""
        match kind.what:
            case "tensor":
                return self.tensor(self.checks.tensor(value, spec.dims, path, spec.low), path)
            case "weights":
                weights = by_name(value, path)
                self.checks.weights(weights, spec.dims, path)
                self.ahead(list(weights.values()))
                return {n: self.tensor(t, under(path, n)) for n, t in weights.items()}
            case "record":
                return self.record(value, cast(type, kind.type), path)
            case "handle":
                return self.handle(expect(value, Handle, path), cast(type, kind.type), path)
            case "dict":
                return {k: self.value(v, kind.inner, spec, under(path, k)) for k, v in by_name(value, path).items()}
            case "tuple":
                return [self.value(v, kind.inner, spec, f"{path}/{i}") for i, v in enumerate(expect(value, tuple, path))]
            case "optional":
                return None if value is None else [self.value(value, kind.inner, spec, path)]
        scalar = self.checks.scalar(value, kind, spec.low, path)
        return str(scalar) if isinstance(scalar, float) and not math.isfinite(scalar) else scalar

    def handle(self, handle: AnyHandle, kind: type[Any], path: str) -> list[Any]:
        """A handle. The value of a new one is written as a file of its own, which holds all of its tensors."""
        maker = self.rules.maker
        if (handle.value is None) != (maker is None):
            what = f"{path} is a handle {'without a value' if maker else 'with its value'}"
            raise errors.WrongType(what, "A site gives values, by Handle.of; everybody else passes on handles as they came")
        if maker is not None:
            rules = replace(self.rules, sizes=self.checks.bound, maker=None)
            handle = handle.named(*Writer(self.parts, rules, self.memo, whole=True).root(handle.value, kind), maker)
        if (before := self.handles.get(handle)) is not None:  # named twice: it is for all readers of either
            to = None if handle.to is None or before.to is None else tuple(sorted({*handle.to, *before.to}))
            handle = replace(handle, to=to)
        self.handles[handle] = handle
        return layout.handle_node(handle)

    def tensor(self, tensor: Tensor, path: str) -> list[Any] | None:
        if self.whole or tensor.nbytes < PART_BYTES:
            self.inline[layout.check_name(path)] = tensor
            return None
        part = self.memo.get(tensor)
        if part is None:
            part = self.file({layout.PART_NAME: tensor}, {})
            self.memo.put(tensor, *part)
        self.written[part[0]] = part[1]
        self.named += 1
        return ["part", part[0], DTYPE_NAMES[tensor.dtype], list(tensor.shape), part[1]]

    def ahead(self, tensors: Sequence[Tensor]) -> None:
        """Write large tensors side by side: hashing, writing and fsync leave the interpreter to others."""
        large = [t for t in tensors if not self.whole and t.nbytes >= PART_BYTES and self.memo.get(t) is None]
        if len(large) > 1:
            with ThreadPoolExecutor(WRITERS) as threads:
                parts = threads.map(lambda tensor: self.file({layout.PART_NAME: tensor}, {}), large)
                for tensor, part in zip(large, parts, strict=True):
                    self.memo.put(tensor, *part)

    def file(self, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> tuple[Digest, int]:
        head, order = layout.build({n: (DTYPE_NAMES[t.dtype], tuple(t.shape)) for n, t in tensors.items()}, meta)
        buffers = [head, *(raw(tensors[name]) for name in order)]
        return self.parts.put(buffers), sum(len(b) for b in buffers)


def by_name(value: Any, path: str) -> dict[str, Any]:
    for name in expect(value, Mapping, path):
        if not isinstance(name, str):
            raise errors.WrongType(f"{path} has the key {name!r}, which is no text")
    return dict(sorted(value.items()))


def raw(tensor: Tensor) -> Buffer:
    """A tensor's bytes, little-endian, without a copy where it is contiguous and on the CPU."""
    if tensor.numel() == 0:
        return b""
    dense = tensor.detach().cpu().resolve_neg().contiguous()
    # A single element of a strided view counts as contiguous, and `view` would keep its stride.
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy().data
