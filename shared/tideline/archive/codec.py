"""Records to files and back. Every declaration is checked on the way out of a site and again on the way in.

A record becomes one root file and a part for each tensor of PART_BYTES or more; the root names its parts by digest, so the
root's digest stands for the whole value. Decoding maps files and copies nothing.

Legend of the structure kept in a root's metadata (walked by the type, so it needs no tags but one):
    tensor in this file    null
    tensor as a part       ["part", digest, dtype, shape, bytes of the part's file]
    weights, dict, record  an object      tuple  an array      scalar  itself      optional  null or an array of the value
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast
from weakref import ref

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.parts import Buffer, Parts
from tideline.archive.rules import (
    DTYPE_NAMES,
    DTYPES,
    LAX,
    MOST,
    RULES,
    Rules,
    Walker,
    expect,
    from_json,
    inner,
    named,
    same_names,
    scalar,
    to_json,
    under,
)
from tideline.core.handle import Handle
from tideline.core.record import Kind, Spec, is_record, specs
from tideline.core.run import Digest

__all__ = ["LAX", "RULES", "Memo", "Message", "Rules", "decode", "decode_order", "encode", "files_of"]

T = TypeVar("T")
PART_BYTES = 1 << 20
PART_NAME = "tensor"
WRITERS = 2  # parts written at once


@dataclass(frozen=True)
class Message:
    """An encoded record: its root's digest and every file it needs, (digest, bytes), the root first.

    handles: the sealed values that it names. Where they were made, each one's file is written beside the others.
    """

    digest: Digest
    files: tuple[tuple[Digest, int], ...]
    handles: tuple[Handle[Any], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of root and parts."""
        return sum(size for _, size in self.files)


@dataclass
class Memo:
    """Parts written during one turn, by tensor: what is sent and kept at once is hashed and written once.

    Tensors are not held: a turn may make a model for each client, one after the other.
    """

    known: dict[int, tuple[ref[Tensor], int, Digest, int]] = field(default_factory=dict)

    def get(self, tensor: Tensor) -> tuple[Digest, int] | None:
        """The part of this very tensor, unless it was changed in place since."""
        kept = self.known.get(id(tensor))
        # An id is lent again once its tensor is gone.
        if kept is None or kept[0]() is not tensor or kept[1] != tensor._version:
            return None
        return kept[2], kept[3]

    def put(self, tensor: Tensor, digest: Digest, size: int) -> None:
        """Remember a part. Without a version a change could not be seen."""
        if not tensor.is_inference():
            self.known[id(tensor)] = (ref(tensor), tensor._version, digest, size)


def encode(value: Any, parts: Parts, rules: Rules = RULES, memo: Memo | None = None) -> Message:
    """Write a record into `parts`. Raises Malformed errors for what its type does not declare."""
    writer = Writer(parts, rules, memo or Memo())
    root = writer.root(value, type(value), "")
    return Message(root[0], (root, *writer.written.items()), tuple(writer.handles.values()))


def decode(kind: type[T], digest: Digest, parts: Parts, rules: Rules = RULES) -> T:
    """Read a record of a type from `parts`. Raises Malformed errors; copies no tensor."""
    return read(kind, digest, parts, rules)[0]


def decode_order(kind: type[T], digest: Digest, parts: Parts, rules: Rules) -> tuple[T, Rules]:
    """An order, and what the reply to it is held to: the order's names, shapes and dims, and numbers that can be folded."""
    order, reader = read(kind, digest, parts, rules)
    return order, Rules(reader.bound, (order,), most=MOST)


def read(kind: type[T], digest: Digest, parts: Parts, rules: Rules) -> tuple[T, Reader]:
    """A record, and who has read it."""
    view = parts.view(digest)
    header = layout.parse(view)
    reader = Reader(parts, rules, view, header)
    value = reader.record(kind, layout.structure(header), "")
    extra = set(header.entries) - reader.used
    if extra:
        raise errors.Undeclared(f"The file holds {min(extra)!r}, which {kind.__name__} does not declare")
    return cast(T, value), reader


def files_of(digest: Digest, parts: Parts) -> tuple[tuple[Digest, int], ...]:
    """The root and the parts that it names, (digest, bytes)."""
    view = parts.view(digest)
    named = layout.named_parts(layout.parse(view))
    return ((digest, len(view)), *((Digest(d), size) for d, size in named))


class Writer(Walker):
    """Walks a value by its type; fills `inline` (tensors of the root), `written` (parts) and `handles`.

    whole: no tensor is a part of its own, however large.
    """

    def __init__(self, parts: Parts, rules: Rules, memo: Memo, whole: bool = False) -> None:
        super().__init__(rules)
        self.parts, self.memo, self.whole = parts, memo, whole
        self.inline: dict[str, Tensor] = {}
        self.written: dict[Digest, int] = {}
        self.handles: dict[Handle[Any], Handle[Any]] = {}
        self.named = 0  # times that a part is named

    def root(self, value: Any, kind: type[Any], path: str) -> tuple[Digest, int]:
        """Write a record's root, and first the parts that it names: its digest and bytes."""
        tree = self.record(value, kind, path)
        layout.few_parts(self.named + len(self.handles), layout.LIMITS)
        meta = {layout.RECORD: json.dumps(tree, separators=(",", ":"), ensure_ascii=True, allow_nan=False)}
        head, order = layout.build({n: (DTYPE_NAMES[t.dtype], tuple(t.shape)) for n, t in self.inline.items()}, meta)
        buffers = [head, *(raw(self.inline[name]) for name in order)]
        return self.parts.put(buffers), sum(len(b) for b in buffers)

    def record(self, value: Any, kind: type[Any], path: str) -> dict[str, Any]:
        """A record's structure."""
        if not is_record(kind) or type(value) is not kind:
            raise errors.WrongType(f"{path or 'The message'} is a {type(value).__name__}; it is declared as {kind.__name__}")
        return {s.name: self.value(getattr(value, s.name), s.kind, s, under(path, s.name)) for s in specs(kind)}

    def value(self, value: Any, kind: Kind, spec: Spec, path: str) -> Any:
        """One value's structure."""
        match kind.what:
            case "tensor":
                return self.tensor(self.admit(value, spec.dims, path, spec.low), path)
            case "weights":
                pairs = named(value, path)
                self.admit_weights(dict(pairs), spec.dims, path)
                self.ahead([t for _, t in pairs])
                return {n: self.tensor(t, under(path, n)) for n, t in pairs}
            case "record":
                return self.record(value, cast(type, kind.type), path)
            case "handle":
                return self.handle(expect(value, Handle, path), cast(type, kind.type), path)
            case "dict":
                return {k: self.value(v, inner(kind), spec, under(path, k)) for k, v in named(value, path)}
            case "tuple":
                return [self.value(v, inner(kind), spec, f"{path}/{i}") for i, v in enumerate(expect(value, tuple, path))]
            case "optional":
                return None if value is None else [self.value(value, inner(kind), spec, path)]
        return to_json(self.within(scalar(value, kind, path, self.rules.finite), spec.low, path))

    def handle(self, handle: Handle[Any], kind: type[Any], path: str) -> list[Any]:
        """A handle. The value of a new one is written as a file of its own, which holds all of its tensors."""
        maker = self.rules.maker
        if (handle.value is None) != (maker is None):
            what = f"{path} is a handle {'without a value' if maker else 'with its value'}"
            raise errors.WrongType(what, "A site gives values, by Handle.of; everybody else passes on handles as they came")
        if maker is not None:
            rules = replace(self.rules, sizes=self.bound, maker=None)
            written = Writer(self.parts, rules, self.memo, whole=True).root(handle.value, kind, "")
            handle = handle.named(*written, maker)
        self.handles[handle] = widened(handle, self.handles.get(handle))
        return layout.handle_node(handle)

    def tensor(self, tensor: Tensor, path: str) -> Any:
        """A tensor: kept for the root, or written as a part."""
        if self.whole or tensor.nbytes < PART_BYTES:
            self.inline[layout.check_name(path)] = tensor
            return None
        kept = self.memo.get(tensor)
        if kept is None:
            kept = self.part(tensor)
            self.memo.put(tensor, *kept)
        self.written[kept[0]] = kept[1]
        self.named += 1
        return ["part", kept[0], DTYPE_NAMES[tensor.dtype], list(tensor.shape), kept[1]]

    def ahead(self, tensors: Sequence[Tensor]) -> None:
        """Write large tensors side by side: hashing, writing and fsync leave the interpreter to others."""
        large = [t for t in tensors if not self.whole and t.nbytes >= PART_BYTES and self.memo.get(t) is None]
        if len(large) > 1:
            with ThreadPoolExecutor(WRITERS) as threads:
                for tensor, kept in zip(large, threads.map(self.part, large), strict=True):
                    self.memo.put(tensor, *kept)

    def part(self, tensor: Tensor) -> tuple[Digest, int]:
        """Write a tensor as a file of its own."""
        head, _ = layout.build({PART_NAME: (DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))}, {})
        buffers = [head, raw(tensor)]
        return self.parts.put(buffers), sum(len(b) for b in buffers)


class Reader(Walker):
    """Walks a type along a file's structure; refuses whatever the type does not declare."""

    def __init__(self, parts: Parts, rules: Rules, view: memoryview, header: layout.Header) -> None:
        super().__init__(rules)
        self.parts, self.view, self.header = parts, view, header
        self.used: set[str] = set()

    def record(self, kind: type[Any], tree: Any, path: str) -> Any:
        """A record of a type."""
        given = expect(tree, dict, path)
        known = {s.name: s for s in specs(kind)}
        for name in given:
            if name not in known:
                raise errors.Undeclared(f"{under(path, name)} is not declared by {kind.__name__}")
        for name in known:
            if name not in given:
                raise errors.Missing(f"{under(path, name)} is declared by {kind.__name__} and missing")
        return kind(**{s.name: self.value(given[s.name], s.kind, s, under(path, s.name)) for s in known.values()})

    def value(self, tree: Any, kind: Kind, spec: Spec, path: str) -> Any:
        """One value."""
        match kind.what:
            case "tensor":
                return self.admit(self.tensor(tree, path), spec.dims, path, spec.low)
            case "weights":
                given = expect(tree, dict, path)
                if (template := self.template(spec.dims)) is not None:
                    same_names(given, template, path)  # before a part is opened: a root may name any number of them
                weights = {n: self.tensor(t, under(path, n)) for n, t in given.items()}
                self.admit_weights(weights, spec.dims, path)
                return weights
            case "record":
                return self.record(cast(type, kind.type), tree, path)
            case "handle":
                return replace(layout.handle_in(tree), kind=kind.type)
            case "dict":
                return {k: self.value(v, inner(kind), spec, under(path, k)) for k, v in expect(tree, dict, path).items()}
            case "tuple":
                return tuple(self.value(v, inner(kind), spec, f"{path}/{i}") for i, v in enumerate(expect(tree, list, path)))
            case "optional":
                return None if tree is None else self.value(only(tree, path), inner(kind), spec, path)
        return self.within(scalar(from_json(tree, kind), kind, path, self.rules.finite), spec.low, path)

    def tensor(self, tree: Any, path: str) -> Tensor:
        """A tensor of the root, or of a part."""
        if tree is not None:
            return self.part(tree, path)
        if path not in self.header.entries:
            raise errors.Missing(f"{path} is declared and missing")
        self.used.add(path)
        return tensor_of(self.view, self.header, path)

    def part(self, tree: Any, path: str) -> Tensor:
        """A tensor of a part, which must be what the root says."""
        if not layout.is_part(tree):
            raise errors.BadMetadata(f"{path} is neither a tensor of this file nor a part")
        _, name, dtype, given, size = tree
        shape = layout.check_shape(path, dtype, given)
        view = self.parts.view(Digest(layout.check_digest(name)))
        header = layout.parse(view)
        entry = header.entries.get(PART_NAME)
        same = entry is not None and (entry.dtype, entry.shape) == (dtype, shape) and layout.whole(size) and size == len(view)
        if not same or len(header.entries) != 1 or layout.RECORD in header.meta:
            raise errors.PartMismatch(f"{path}: part {name[:12]} is not the tensor that its root names")
        return tensor_of(view, header, PART_NAME)


def tensor_of(view: memoryview, header: layout.Header, name: str) -> Tensor:
    """A tensor over the mapped bytes. Nothing is copied; the mapping is private, so a write never reaches the file."""
    entry = header.entries[name]
    if entry.begin == entry.end:
        return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
    count = (entry.end - entry.begin) // layout.ITEM_BYTES[entry.dtype]
    flat = torch.frombuffer(view, dtype=DTYPES[entry.dtype], count=count, offset=header.data_start + entry.begin)
    return flat.view(entry.shape)


def raw(tensor: Tensor) -> Buffer:
    """A tensor's bytes, little-endian, without a copy where it is contiguous and on the CPU."""
    if tensor.numel() == 0:
        return b""
    dense = tensor.detach().cpu().resolve_neg().contiguous()
    # A single element of a strided view counts as contiguous, and `view` would keep its stride.
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy().data


def widened(handle: Handle[Any], before: Handle[Any] | None) -> Handle[Any]:
    """A handle that a message names twice, for all whom it is for either time."""
    if before is None or handle.to is None or before.to is None:
        return handle if before is None else replace(handle, to=None)
    return replace(handle, to=tuple(sorted({*handle.to, *before.to})))


def only(tree: Any, path: str) -> Any:
    """What an optional value's list of one holds."""
    if not isinstance(tree, list) or len(tree) != 1:
        raise errors.BadMetadata(f"{path} is neither null nor a list of one value")
    return tree[0]
