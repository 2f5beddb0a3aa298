"""A run's final state as one file that the `safetensors` package opens.

The state is a root, which contains small tensors and names the large ones, and a part for each of those. They are fetched one
after another and copied to their place; every byte was checked against its digest before.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict, cast

from tideline.archive import errors, layout
from tideline.archive.digests import check_digest
from tideline.archive.folder import FolderParts
from tideline.client.http import Client
from tideline.client.output import check_out
from tideline.core.run import Digest
from tideline.core.settings import Plain

PART_NAME = "tensor"  # as archive.layout names a part's only tensor
SUFFIX = ".safetensors"
OpenPart = Callable[[Digest, int], contextlib.AbstractContextManager[memoryview]]


@dataclass(frozen=True)
class Large:
    """A tensor in a part of its own."""

    digest: Digest
    dtype: str
    shape: tuple[int, ...]
    size: int


class Exported(TypedDict):
    """What was written. values: what the state has beside tensors."""

    file: str
    tensors: int
    bytes: int
    state_digest: str
    values: dict[str, Plain]


def export_remote(client: Client, run: str, out: Path) -> Exported:
    """Fetch and write the final state of a coordinator's run."""
    check_out(out, SUFFIX)
    listed = client.get(f"/runs/{run}/files")
    sizes = {Digest(digest): int(size) for digest, size in listed["files"]}
    root = Digest(check_digest(listed["root"]))
    with tempfile.TemporaryDirectory(prefix=".tideline-", dir=out.parent) as folder:
        parts = FolderParts(Path(folder), durable=False)

        @contextlib.contextmanager
        def fetched(digest: Digest, size: int) -> Iterator[memoryview]:
            with contextlib.closing(parts.upload(digest, sizes.get(digest, size))) as upload:
                for chunk in client.download(f"/parts/{digest}?run={run}"):
                    upload.write(chunk)
                upload.commit()
            yield parts.view(digest)
            parts.drop(digest)

        return export(fetched, root, sizes.get(root, 0), out)


def export(open_part: OpenPart, root: Digest, size: int, out: Path) -> Exported:
    """Write the state that a root stands for; a summary. `open_part` gives checked bytes. Raises Malformed errors."""
    check_out(out, SUFFIX)
    temporary = out.with_name(f".{out.name}.tmp")
    with open_part(root, size) as view:
        header = layout.parse(view)
        tensors, values = flatten(header.structure, header)
        notes = {"tideline.state": root, "tideline.values": json.dumps(values, sort_keys=True)}
        head, order = layout.build({name: (each.dtype, each.shape) for name, each in tensors.items()}, notes)
        try:
            with temporary.open("wb") as file:
                file.write(head)
                for name in order:
                    copy(tensors[name], view, header, open_part, file)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    return {"file": str(out), "tensors": len(order), "bytes": out.stat().st_size, "state_digest": root, "values": values}


def flatten(tree: Plain, header: layout.Header) -> tuple[dict[str, layout.Entry | Large], dict[str, Plain]]:
    """The tensors of a root's structure by their path, such as `model/conv.weight`; and its other values."""
    tensors: dict[str, layout.Entry | Large] = dict(header.entries)
    values: dict[str, Plain] = {}
    stack = [("", tree)]
    while stack:
        path, node = stack.pop()
        if layout.is_part(node):
            _, digest, dtype, shape, size = cast("tuple[str, str, str, Sequence[int], int]", node)
            tensors[path] = Large(Digest(check_digest(digest)), dtype, layout.check_shape(path, dtype, shape), int(size))
        elif isinstance(node, dict):
            stack += [(f"{path}/{name}" if path else name, each) for name, each in node.items()]
        elif isinstance(node, list):
            stack += [(f"{path}/{i}", each) for i, each in enumerate(node)]
        elif path not in header.entries:
            values[path] = node
    return tensors, values


def copy(tensor: layout.Entry | Large, root: memoryview, header: layout.Header, open_part: OpenPart, file: IO[bytes]) -> None:
    if isinstance(tensor, layout.Entry):
        file.write(root[header.data_start + tensor.begin : header.data_start + tensor.end])
        return
    with open_part(tensor.digest, tensor.size) as view:
        part = layout.parse(view)
        entry = part.entries.get(PART_NAME)
        if entry is None or (entry.dtype, entry.shape) != (tensor.dtype, tensor.shape):
            what = f"Part {tensor.digest[:12]} is not the tensor that its root names"
            raise errors.PartMismatch(what, "Export again; if it stays, the store is damaged")
        file.write(view[part.data_start :])
