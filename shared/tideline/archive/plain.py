"""Single tensors of records, read and written as bytes: for agents, which never load torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tideline.archive import errors, layout
from tideline.archive.digests import Buffer
from tideline.archive.parts import Parts
from tideline.core.run import Digest
from tideline.core.settings import Plain

Files = tuple[tuple[Digest, int], ...]


@dataclass(frozen=True)
class Plainly:
    """A tensor of one axis: its type in the layout's words, and its bytes."""

    dtype: str
    data: Buffer

    @property
    def count(self) -> int:
        return memoryview(self.data).nbytes // layout.ITEM_BYTES[self.dtype]


def tensor_at(parts: Parts, root: Digest, *steps: str) -> Plainly | None:
    """The tensor of a record's field, or of a field of a field; None where the record has none there. Raises Malformed errors."""
    view = parts.view(root)
    header = layout.parse(view)
    node: Plain = header.structure
    for step in steps:
        node = within(node, step)
        if node is MISSING:
            return None
    node = node[0] if isinstance(node, list) and len(node) == 1 else node  # of an optional field
    if layout.is_part(node):
        inner = parts.view(Digest(str(node[1])))
        found, start, of = layout.parse(inner).entries.get(layout.PART_NAME), layout.parse(inner).data_start, inner
    else:
        found, start, of = header.entries.get("/".join(steps)), header.data_start, view
    return None if found is None else Plainly(found.dtype, of[start + found.begin : start + found.end])


MISSING = object()


def within(node: Plain, step: str) -> Plain:
    """What a record holds by that name; MISSING where it has none, or is not there."""
    inner = node[0] if isinstance(node, list) and len(node) == 1 else node
    return inner.get(step, MISSING) if isinstance(inner, dict) else MISSING  # type: ignore[return-value]


def structure_of(parts: Parts, root: Digest) -> Mapping[str, Plain]:
    """A record's structure, with null in place of a tensor that lies in its own file."""
    return layout.parse(parts.view(root)).structure


def write_record(parts: Parts, values: Mapping[str, Plainly | Plain]) -> Files:
    """A record of such fields, tensors and scalars, as its writer in torch would write it."""
    tree, inline, more = dict[str, Plain](), dict[str, Plainly](), dict[Digest, int]()
    for name, value in values.items():
        if not isinstance(value, Plainly):
            tree[name] = value
            continue
        tree[name] = None
        if memoryview(value.data).nbytes < layout.PART_BYTES:
            inline[name] = value
            continue
        digest, size = put(parts, {layout.PART_NAME: value}, {})
        tree[name], more[digest] = ["part", digest, value.dtype, [value.count], size], size
    root, size = put(parts, inline, {layout.RECORD: json.dumps(tree, separators=(",", ":"), allow_nan=False)})
    return ((root, size), *more.items())


def put(parts: Parts, tensors: Mapping[str, Plainly], meta: Mapping[str, str]) -> tuple[Digest, int]:
    head, order = layout.build({name: (each.dtype, (each.count,)) for name, each in tensors.items()}, meta)
    buffers: list[Buffer] = [head, *(memoryview(tensors[name].data).cast("B") for name in order if tensors[name].count)]
    return parts.put(buffers), sum(memoryview(each).nbytes for each in buffers)


def held_to(found: Plainly | None, dtype: str, what: str) -> Plainly:
    """Raises Malformed errors for a tensor that is not there, or of another type."""
    if found is None:
        raise errors.Missing(f"{what} is not there")
    if found.dtype != dtype:
        raise errors.WrongType(f"{what} is of the type {found.dtype}, where {dtype} is due")
    return found
