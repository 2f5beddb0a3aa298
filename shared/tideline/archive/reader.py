"""Files to records, every declaration checked, and the tensors of safetensors files that other programs wrote.

Files are mapped; no tensor is copied. A mapping is private, so a write never reaches the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.checks import DTYPES, MOST, RULES, Checks, Rules, expect, under
from tideline.archive.digests import check_digest
from tideline.archive.layout import LIMITS, META, Entry, Limits
from tideline.archive.parts import Parts
from tideline.archive.watching import seen
from tideline.core.record import Kind, Record, Spec, Value, Weights, specs
from tideline.core.run import Digest
from tideline.core.settings import Plain

T = TypeVar("T")
R = TypeVar("R", bound=Record)
NOT_FINITE = ("nan", "inf", "-inf")  # as the writer writes them
# Dtypes that other programs write, too, and the multiple of bytes at which their buffers begin.
FOREIGN_BYTES: Mapping[str, int] = {**layout.ITEM_BYTES, "I32": 4, "I16": 2, "I8": 1}
KNOWN: Mapping[str, torch.dtype] = {**DTYPES, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8}
FOREIGN_ALIGN = 8


def decode(kind: type[T], digest: Digest, parts: Parts, rules: Rules = RULES, sure: bool = False) -> T:
    """Read a record of a type from `parts`. Raises Malformed errors; copies no tensor.

    sure: hold its files to their names now, whoever does so at the end.
    """
    return Reader(digest, parts, rules, sure).root(kind)


def decode_order(kind: type[R], digest: Digest, parts: Parts, rules: Rules) -> tuple[R, Rules]:
    """An order, and what the reply to it is held to: the order's names, shapes and dims, and numbers that can be folded."""
    reader = Reader(digest, parts, rules)
    order = reader.root(kind)
    return order, Rules(reader.checks.bound, (order,), most=MOST)


def files_of(digest: Digest, parts: Parts) -> tuple[tuple[Digest, int], ...]:
    """The root and the parts that it names, (digest, bytes)."""
    view = parts.view(digest)
    return ((digest, len(view)), *((Digest(d), size) for d, size in layout.parse(view).parts))


class Reader:
    """Walks a type along a file's structure; refuses whatever the type does not declare."""

    def __init__(self, digest: Digest, parts: Parts, rules: Rules, sure: bool = False) -> None:
        self.checks = Checks(rules, dict(rules.sizes))
        self.look: Callable[[Digest], memoryview] = parts.view if sure else partial(seen, parts)
        self.view = self.look(digest)
        self.header = layout.parse(self.view)
        self.used: set[str] = set()

    def root(self, kind: type[T]) -> T:
        value = self.record(kind, self.header.structure, "")
        if extra := set(self.header.entries) - self.used:
            raise errors.Undeclared(f"The file holds {min(extra)!r}, which {kind.__name__} does not declare")
        return value

    def record(self, kind: type[T], tree: Plain, path: str) -> T:
        given, known = expect(tree, dict, path), specs(kind)
        names = {s.name for s in known}
        for name in given:
            if name not in names:
                raise errors.Undeclared(f"{under(path, name)} is not declared by {kind.__name__}")
        for s in known:
            if s.name not in given:
                raise errors.Missing(f"{under(path, s.name)} is declared by {kind.__name__} and missing")
        return kind(**{s.name: self.value(given[s.name], s.kind, s, under(path, s.name)) for s in known})

    def value(self, tree: Plain, kind: Kind, spec: Spec, path: str) -> Value:
        match kind.what:
            case "tensor":
                return self.checks.tensor(self.tensor(tree, path), spec.dims, path, spec.low)
            case "weights":
                given = expect(tree, dict, path)
                self.checks.template(given, spec.dims, path)  # before a part is opened: a root may name any number of them
                weights: Weights = {n: self.tensor(t, under(path, n)) for n, t in given.items()}
                self.checks.weights(weights, spec.dims, path)
                return weights
            case "record":
                record: Value = self.record(kind.type, tree, path)
                return record
            case "handle":
                return replace(layout.handle_in(tree), kind=kind.type)
            case "dict":
                return {k: self.value(v, kind.inner, spec, under(path, k)) for k, v in expect(tree, dict, path).items()}
            case "tuple":
                return tuple(self.value(v, kind.inner, spec, f"{path}/{i}") for i, v in enumerate(expect(tree, list, path)))
            case "optional":
                if tree is not None and (not isinstance(tree, list) or len(tree) != 1):
                    raise errors.BadMetadata(f"{path} is neither null nor a list of one value")
                return None if tree is None else self.value(tree[0], kind.inner, spec, path)
        scalar = float(tree) if kind.type is float and tree in NOT_FINITE else tree
        return self.checks.scalar(scalar, kind, spec.low, path)

    def tensor(self, tree: Plain, path: str) -> Tensor:
        if tree is None:
            if path not in self.header.entries:
                raise errors.Missing(f"{path} is declared and missing")
            self.used.add(path)
            return tensor_at(self.view, self.header.data_start, self.header.entries[path])
        if not layout.is_part(tree):
            raise errors.BadMetadata(f"{path} is neither a tensor of this file nor a part")
        _, name, dtype, given, size = tree
        shape = layout.check_shape(path, dtype, given)
        digest = Digest(check_digest(name))
        view = self.look(digest)
        header = layout.parse(view)
        entry = header.entries.get(layout.PART_NAME)
        alone = len(header.entries) == 1 and layout.RECORD not in header.meta and layout.whole(size) and size == len(view)
        if entry is None or (entry.dtype, entry.shape) != (dtype, shape) or not alone:
            raise errors.PartMismatch(f"{path}: part {digest[:12]} is not the tensor that its root names")
        return tensor_at(view, header.data_start, entry)


def tensors_in(view: memoryview, limits: Limits = LIMITS) -> dict[str, Tensor]:
    """The named tensors of a whole safetensors file that another program wrote. Raises the named errors of archive.errors.

    The header is read by our own rules, with our limits, but for three that are no safety: its metadata may be any, buffers begin
    at a multiple of 8 bytes, and whole numbers of every width are known.
    """
    head = layout.header_of(view, limits)
    raw, start = layout.load_json(head, limits), 8 + len(head)
    raw.pop(META, None)
    entries = layout.entries_in(raw, start, len(view), limits, FOREIGN_BYTES, FOREIGN_ALIGN)
    return {name: tensor_at(view, start, each) for name, each in entries.items()}


def tensor_at(view: memoryview, start: int, entry: Entry) -> Tensor:
    """A tensor over the mapped bytes. start: where the file's buffers begin."""
    dtype = KNOWN[entry.dtype]
    if entry.begin == entry.end:
        return torch.empty(entry.shape, dtype=dtype)
    count = (entry.end - entry.begin) // FOREIGN_BYTES[entry.dtype]
    return torch.frombuffer(view, dtype=dtype, count=count, offset=start + entry.begin).view(entry.shape)
