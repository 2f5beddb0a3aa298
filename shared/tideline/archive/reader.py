"""Files to records, every declaration checked, and the tensors of safetensors files that other programs wrote.

Files are mapped; no tensor is copied. A mapping is private, so a write never reaches the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.checks import DTYPES, RULES, Checks, Rules, expect, under
from tideline.archive.digests import check_digest
from tideline.archive.layout import LIMITS, META, Entry, Limits
from tideline.archive.parts import Parts
from tideline.archive.watching import seen
from tideline.archive.wire.formats import FLOAT_BYTES, NAMES, VALUES, packs
from tideline.archive.wire.packing import unpacked
from tideline.core.asked.forms import Form
from tideline.core.record import Kind, Record, Spec, Value, Weights, inner_specs, specs
from tideline.core.run import Digest
from tideline.core.settings import Plain

T = TypeVar("T")
R = TypeVar("R", bound=Record)
NOT_FINITE = ("nan", "inf", "-inf")  # as the writer writes them
# Dtypes that other programs write, too, and the multiple of bytes at which their buffers begin.
FOREIGN_BYTES: Mapping[str, int] = {**layout.ITEM_BYTES, "I16": 2}
KNOWN: Mapping[str, torch.dtype] = {**DTYPES, "I16": torch.int16}
FOREIGN_ALIGN = 8
REPEATS = 8  # of equal tensors that nobody needs to explain


def decode(kind: type[T], digest: Digest, parts: Parts, rules: Rules = RULES, sure: bool = False) -> T:
    """Read a record of a type from `parts`. Raises Malformed errors; copies no tensor.

    sure: hold its files to their names now, whoever does so at the end.
    """
    return Reader(digest, parts, rules, sure).root(kind)


def decode_order(kind: type[R], digest: Digest, parts: Parts, rules: Rules) -> tuple[R, Rules]:
    """An order, and what the reply to it is held to: the order's names, shapes and dims, and numbers that can be folded.

    Its files are held to their names now: replies may be differences to its numbers, long after.
    """
    reader = Reader(digest, parts, rules, sure=True)
    order = reader.root(kind)
    return order, rules.of_reply(reader.checks.bound, order)


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
        self.came = {digest: len(self.view)}  # bytes of each file that was opened
        self.unpacked = 0  # bytes of tensors that do not lie over a file
        self.named: int | None = None  # bytes of the models that the order names, once somebody asks

    def root(self, kind: type[T]) -> T:
        value = self.record(kind, self.header.structure, specs(kind), "")
        if extra := set(self.header.entries) - self.used:
            raise errors.Undeclared(f"The file holds {min(extra)!r}, which {kind.__name__} does not declare")
        return value

    def record(self, kind: type[T], tree: Plain, known: Sequence[Spec], path: str) -> T:
        given = expect(tree, dict, path)
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
                return self.checks.tensor(self.formed(tree, self.form(spec, kind), None, path), spec.dims, path, spec.low)
            case "weights":
                given = expect(tree, dict, path)
                like = self.checks.template(given, spec.dims, path)  # before a part is opened: a root may name any number of them
                form = self.form(spec, kind)
                weights: Weights = {
                    n: self.formed(t, form, None if like is None else like[n], under(path, n)) for n, t in given.items()
                }
                self.checks.weights(weights, spec.dims, path)
                return weights
            case "record":
                record: Value = self.record(kind.type, tree, inner_specs(kind.type, spec), path)
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

    def form(self, spec: Spec, kind: Kind) -> Form | None:
        packing = self.checks.rules.packing
        return None if packing is None else packing.form(spec, kind)

    def formed(self, tree: Plain, form: Form | None, like: Tensor | None, path: str) -> Tensor:
        """A tensor as a form has it. Raises BadPacking for one in another form; a value has one encoding."""
        node = layout.packed_node(tree) if form else None
        if form is None or node is None:
            tensor = self.tensor(tree, path)
            if form is not None and packs(tensor.dtype, tensor.shape, form):
                raise errors.BadPacking(f"{path} came as float32; the run's wire is {form.format}")
            return tensor
        name, nodes = node
        if name != form.format or tuple(sorted(nodes)) != tuple(sorted(NAMES[form.format])):
            raise errors.BadPacking(f"{path} came as {name[:20]!r} of {len(nodes)} tensors; the run's wire is {form.format}")
        packed = {n: self.tensor(each, under(path, n)) for n, each in nodes.items()}
        self.unpacked += FLOAT_BYTES * (packed[VALUES] if like is None else like).numel()
        if self.unpacked > self.most_unpacked:
            what = f"{path} would make more of the message than {self.most_unpacked} bytes: it names what it has again and again"
            raise errors.BadPacking(what)
        return unpacked(packed, form, like, path)

    @property
    def most_unpacked(self) -> int:
        """Bytes that what came, and what the order names, may be unpacked to. A root may name one part any number of times, and
        tensors that are alike are one part.
        """
        if self.named is None:
            self.named = sum(t.nbytes for record in self.checks.rules.like for t in tensors_of(record))
        return REPEATS * (FLOAT_BYTES * sum(self.came.values()) + self.named)

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
        self.came[digest] = len(view)
        header = layout.parse(view)
        entry = header.entries.get(layout.PART_NAME)
        alone = len(header.entries) == 1 and layout.RECORD not in header.meta and layout.whole(size) and size == len(view)
        if entry is None or (entry.dtype, entry.shape) != (dtype, shape) or not alone:
            raise errors.PartMismatch(f"{path}: part {digest[:12]} is not the tensor that its root names")
        return tensor_at(view, header.data_start, entry)


def tensors_of(record: Record) -> Iterator[Tensor]:
    """Those of a record's models."""
    for spec in specs(type(record)):
        if spec.kind.what == "weights":
            yield from getattr(record, spec.name).values()


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
