"""Records to files. A record becomes one root file and a part for each tensor of PART_BYTES or more.

The root names its parts by digest, so the root's digest stands for the whole value. The structure in a root's metadata is walked
by the record's type, so it needs no tags but one:

    tensor in this file    null
    tensor as a part       ["part", digest, dtype, shape, bytes of the part's file]
    packed tensor          [format, an object of tensors], where the run's wire asks for it (`tideline.archive.wire`)
    weights, dict, record  an object      tuple  an array      scalar  itself      optional  null or an array of the value
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import cast
from weakref import ref

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.checks import DTYPE_NAMES, RULES, Checks, Rules, expect, mistyped, under
from tideline.archive.digests import Buffer
from tideline.archive.layout import LIMITS, PART_BYTES
from tideline.archive.parts import Parts
from tideline.archive.wire.formats import Packed
from tideline.core.asked.forms import Form
from tideline.core.handle import AnyHandle, Handle
from tideline.core.record import Kind, Record, Spec, Value, Weights, inner_specs, is_record
from tideline.core.run import Digest
from tideline.core.settings import Plain

WRITERS = 4  # parts written at once: some wait for the disk


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


def encode(
    value: Record, parts: Parts, rules: Rules = RULES, memo: Memo | None = None, kind: type | None = None, whole: bool = False
) -> Message:
    """Write a record into `parts`. Raises Malformed errors for what its type does not declare.

    kind: the type that it is declared as, if that is not its own. whole: no tensor is a part of its own, however large.
    """
    writer = Writer(parts, Checks(rules, dict(rules.sizes)), memo or Memo(), whole)
    root = Spec("", Kind("record", type=kind or type(value)))
    tree = writer.value(value, root.kind, root, "")
    layout.at_most(writer.named + len(writer.handles), LIMITS.parts, errors.TooManyTensors, layout.NAMED)
    buffers = file_of(writer.inline, {layout.RECORD: json.dumps(tree, separators=(",", ":"), allow_nan=False)})
    files = {parts.put(buffers): sum(map(len, buffers)), **writer.written}
    return Message(next(iter(files)), tuple(files.items()), tuple(writer.handles.values()))


@dataclass
class Writer:
    """Walks a value by its type; fills `inline` (tensors of the root), `written` (parts) and `handles`."""

    parts: Parts
    checks: Checks
    memo: Memo
    whole: bool
    inline: dict[str, Tensor] = field(default_factory=dict)
    written: dict[Digest, int] = field(default_factory=dict)
    handles: dict[AnyHandle, AnyHandle] = field(default_factory=dict)
    named: int = 0  # times that a part is named

    def value(self, value: Value, kind: Kind, spec: Spec, path: str) -> Plain:
        """One value's structure. JSON has no word for numbers that are not finite: they are written as texts."""
        match kind.what:
            case "tensor":
                tensor = self.checks.tensor(value, spec.dims, path, spec.low)
                return self.formed({path: tensor}, self.form(spec, kind), None, spec)[path]
            case "weights":
                weights = cast(Weights, by_name(value, path))
                like = self.checks.weights(weights, spec.dims, path, lambda tensor: self.memo.get(tensor) is not None)
                places = {under(path, name): name for name in weights}
                form, named = self.form(spec, kind), {place: weights[name] for place, name in places.items()}
                nodes = self.formed(named, form, None if like is None else {p: like[name] for p, name in places.items()}, spec)
                return {name: nodes[place] for place, name in places.items()}
            case "record":
                if not is_record(kind.type) or type(value) is not kind.type:
                    raise mistyped(value, kind.type, path)
                # The name of a field has no slash: it is checked with the path alone.
                return {
                    s.name: self.value(getattr(value, s.name), s.kind, s, layout.check_name(f"{path}/{s.name}".lstrip("/")))
                    for s in inner_specs(kind.type, spec)
                }
            case "handle":
                return self.handle(expect(value, Handle, path), kind.type, path)
            case "dict":
                return {k: self.value(v, kind.inner, spec, under(path, k)) for k, v in by_name(value, path).items()}
            case "tuple":
                return [self.value(v, kind.inner, spec, f"{path}/{i}") for i, v in enumerate(expect(value, tuple, path))]
            case "optional":
                return None if value is None else [self.value(value, kind.inner, spec, path)]
        scalar = self.checks.scalar(value, kind, spec.low, path)
        return str(scalar) if isinstance(scalar, float) and not math.isfinite(scalar) else scalar

    def handle(self, handle: AnyHandle, kind: type, path: str) -> list[Plain]:
        """A handle. The value of a new one is written as a file of its own, which holds all of its tensors."""
        maker = self.checks.rules.maker
        if (handle.value is None) != (maker is None):
            what = f"{path} is a handle {'without a value' if maker else 'with its value'}"
            raise errors.WrongType(what, "A site gives values, by Handle.of; everybody else passes on handles as they came")
        if maker is not None and handle.value is not None:
            packing = self.checks.rules.packing
            rules = replace(self.checks.rules, sizes=self.checks.bound, maker=None, packing=packing and packing.within(path))
            handle = handle.named(*encode(handle.value, self.parts, rules, self.memo, kind, whole=True).files[0], maker)
        if (before := self.handles.get(handle)) is not None:  # named twice: it is for all readers of either
            to = None if handle.to is None or before.to is None else tuple(sorted({*handle.to, *before.to}))
            handle = replace(handle, to=to)
        self.handles[handle] = handle
        return layout.handle_node(handle)

    def form(self, spec: Spec, kind: Kind) -> Form | None:
        packing = self.checks.rules.packing
        return None if packing is None else packing.form(spec, kind)

    def formed(self, tensors: Weights, form: Form | None, like: Weights | None, spec: Spec) -> dict[str, Plain]:
        """The structures of tensors by path, each as the form has it. What will be read is held to what was declared, too."""
        packing, made = self.checks.rules.packing, dict[str, Packed]()
        if packing is not None and form is not None:
            for path, tensor in tensors.items():
                if packed := packing.packed(tensor, form, None if like is None else like[path], path):
                    made[path] = packed[0]
                    self.checks.tensor(packed[1], "", path, spec.low)
        self.ahead([each for path in tensors for each in (made[path].values() if path in made else (tensors[path],))])
        return {
            path: self.packed(made[path], form, path) if path in made else self.tensor(t, path) for path, t in tensors.items()
        }

    def packed(self, packed: Packed, form: Form | None, path: str) -> list[Plain]:
        assert form is not None
        return [form.format.value, {name: self.tensor(each, under(path, name)) for name, each in sorted(packed.items())}]

    def tensor(self, tensor: Tensor, path: str) -> list[Plain] | None:
        if self.whole or tensor.nbytes < PART_BYTES:
            self.inline[layout.check_name(path)] = tensor
            return None
        digest, size = self.memo.get(tensor) or self.part(tensor)
        self.written[digest] = size
        self.named += 1
        return ["part", digest, DTYPE_NAMES[tensor.dtype], list(tensor.shape), size]

    def part(self, tensor: Tensor) -> tuple[Digest, int]:
        """Write a tensor's own file: its digest and bytes."""
        buffers = file_of({layout.PART_NAME: tensor}, {})
        part = self.parts.put(buffers), sum(map(len, buffers))
        self.memo.put(tensor, *part)
        return part

    def ahead(self, tensors: Sequence[Tensor]) -> None:
        """Write large tensors side by side: hashing, writing and fsync leave the interpreter to others."""
        large = [t for t in tensors if not self.whole and t.nbytes >= PART_BYTES and self.memo.get(t) is None]
        if len(large) > 1:
            with ThreadPoolExecutor(WRITERS) as threads:
                list(threads.map(self.part, large))


def by_name(value: Value, path: str) -> dict[str, Value]:
    if not isinstance(value, Mapping):
        raise mistyped(value, Mapping, path)
    for name in value:
        if not isinstance(name, str):
            raise errors.WrongType(f"{path} has the key {name!r}, which is no text")
    return dict(sorted(value.items()))


def file_of(tensors: Weights, meta: Mapping[str, str]) -> list[Buffer]:
    """A file's buffers: its header, and the bytes of each tensor, not copied where it is contiguous and on the CPU."""
    head, order = layout.build({n: (DTYPE_NAMES[t.dtype], tuple(t.shape)) for n, t in tensors.items()}, meta)
    buffers: list[Buffer] = [head]
    buffers += (bytes_of(tensors[name].detach()) for name in order if tensors[name].numel())
    return buffers


def bytes_of(tensor: Tensor) -> Buffer:
    if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg() and tensor.dtype is not torch.bfloat16 and tensor.ndim:
        return tensor.numpy().data.cast("B")
    dense = tensor.cpu().resolve_neg().contiguous()
    # A single element of a strided view counts as contiguous, and `view` would keep its stride.
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy().data
