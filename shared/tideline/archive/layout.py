"""One file: eight bytes of header length, a JSON header, raw little-endian buffers without holes (the safetensors layout).

The header is padded with spaces so that buffers begin at a multiple of 64 bytes. Entries are written by falling item size, then
by name, so that every buffer is naturally aligned. The same value gives the same bytes. Standard library only: the agent, which
never loads torch, reads roots with it to learn which parts they name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tideline.archive import errors

ITEM_BYTES: Mapping[str, int] = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2, "U8": 1, "BOOL": 1}
ALIGN = 64
LAYOUT = "1"
META = "__metadata__"
RECORD = "tideline.record"
VERSION = "tideline.layout"


@dataclass(frozen=True)
class Limits:
    """Ceilings checked before anything is allocated."""

    header_bytes: int = 64 << 20
    tensors: int = 200_000
    axes: int = 16
    name_bytes: int = 512
    depth: int = 64
    total_bytes: int = 1 << 44


LIMITS = Limits()


@dataclass(frozen=True)
class Entry:
    """One tensor of a file. `begin` and `end` count from the first byte after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """A file's entries by name, its metadata, and where its buffers begin."""

    entries: Mapping[str, Entry]
    meta: Mapping[str, str]
    data_start: int


def nbytes(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor."""
    return ITEM_BYTES[dtype] * math.prod(shape)


def build(tensors: Mapping[str, tuple[str, tuple[int, ...]]], meta: Mapping[str, str]) -> tuple[bytes, tuple[str, ...]]:
    """The length and header of a file, and the order in which the buffers of {name: (dtype, shape)} follow."""
    order = tuple(sorted(tensors, key=lambda n: (-ITEM_BYTES[tensors[n][0]], n)))
    head: dict[str, Any] = {META: dict(sorted({**meta, VERSION: LAYOUT}.items()))}
    at = 0
    for name in order:
        dtype, shape = tensors[name]
        end = at + nbytes(dtype, shape)
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    return len(text).to_bytes(8, "little") + text, order


def parse(buffer: memoryview, limits: Limits = LIMITS) -> Header:
    """The header of a whole file, every rule checked. Raises the named errors of archive.errors."""
    if len(buffer) < 8:
        raise errors.TooShort(f"An archive of {len(buffer)} bytes has no header")
    size = int.from_bytes(buffer[:8], "little")
    if size > limits.header_bytes:
        raise errors.HeaderTooLarge(f"The header claims {size} bytes; the limit is {limits.header_bytes}")
    if 8 + size > len(buffer):
        raise errors.HeaderTruncated(f"The header claims {size} bytes; the file has {len(buffer) - 8} after its length")
    raw = load_json(bytes(buffer[8 : 8 + size]), limits)
    meta = metadata(raw.pop(META, {}))
    if len(raw) > limits.tensors:
        raise errors.TooManyTensors(f"The header names {len(raw)} tensors; the limit is {limits.tensors}")
    entries = {name: entry(name, each, limits) for name, each in raw.items()}
    cover(entries.values(), len(buffer) - 8 - size)
    return Header(entries, meta, 8 + size)


def load_json(text: bytes, limits: Limits) -> dict[str, Any]:
    """A JSON object without duplicate keys and not too deep."""
    if shallow(text) > limits.depth:
        raise errors.HeaderTooDeep(f"The header is nested deeper than {limits.depth} levels")
    try:
        loaded = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as cause:
        raise errors.HeaderNotJson(f"The header is not JSON: {cause}") from None
    if not isinstance(loaded, dict):
        raise errors.HeaderNotJson("The header is not a JSON object")
    return loaded


def shallow(text: bytes) -> int:
    """An upper bound of the nesting depth (brackets inside texts count too), found before any parser recurses."""
    deepest = depth = 0
    for byte in text.translate(None, delete=bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's pairs, if no key stands twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [k for k, _ in pairs]
        raise errors.DuplicateKey(f"The header has the key {next(k for k in keys if keys.count(k) > 1)!r} twice")
    return made


def no_constant(word: str) -> Any:
    """NaN and Infinity are not JSON."""
    raise ValueError(f"{word} is not a JSON value")


def metadata(raw: Any) -> Mapping[str, str]:
    """The metadata object: texts only, of a layout that we know."""
    if not isinstance(raw, dict) or not all(isinstance(v, str) for v in raw.values()):
        raise errors.BadMetadata("The header's metadata are not a mapping of texts")
    version = raw.get(VERSION)
    if version != LAYOUT:
        raise errors.UnknownLayout(f"The file has layout {version!r}; this version reads {LAYOUT!r}", "Use equal versions")
    return raw


def check_name(name: str, limits: Limits = LIMITS) -> str:
    """A tensor's name or path: printable, not empty, not longer than the limit, no backslash, no empty or dotted step."""
    good = 0 < len(name.encode()) <= limits.name_bytes and name.isprintable() and "\\" not in name
    if not good or any(step in ("", ".", "..") for step in name.split("/")):
        raise errors.BadName(f"{name[:80]!r} cannot name a tensor")
    return name


def entry(name: str, raw: Any, limits: Limits) -> Entry:
    """One entry, every rule checked that needs no other entry."""
    check_name(name, limits)
    if not isinstance(raw, dict) or set(raw) != {"dtype", "shape", "data_offsets"}:
        raise errors.BadEntry(f"The entry of {name!r} must have exactly dtype, shape and data_offsets")
    dtype, offsets = raw["dtype"], raw["data_offsets"]
    shape = check_shape(name, dtype, raw["shape"], limits)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(whole(o) for o in offsets) or offsets[0] > offsets[1]:
        raise errors.BadOffsets(f"The offsets of {name!r} are {offsets!r}")
    if offsets[1] - offsets[0] != nbytes(dtype, shape):
        raise errors.SizeMismatch(f"{name!r} spans {offsets[1] - offsets[0]} bytes; its shape needs {nbytes(dtype, shape)}")
    return Entry(name, dtype, shape, offsets[0], offsets[1])


def check_shape(name: str, dtype: Any, shape: Any, limits: Limits = LIMITS) -> tuple[int, ...]:
    """A shape of whole numbers whose size is within the limit."""
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise errors.UnknownDtype(f"{name!r} has the dtype {dtype!r}; known are {', '.join(ITEM_BYTES)}")
    if not isinstance(shape, list) or len(shape) > limits.axes or not all(whole(n) for n in shape):
        raise errors.BadShape(f"{name!r} has the shape {str(shape)[:80]}")
    if nbytes(dtype, shape) > limits.total_bytes:
        raise errors.BadShape(f"{name!r} would need {nbytes(dtype, shape)} bytes; the limit is {limits.total_bytes}")
    return tuple(shape)


def whole(n: Any) -> bool:
    """A whole number that is not negative (and not a truth value)."""
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63


def cover(entries: Iterable[Entry], size: int) -> None:
    """The buffers cover the data exactly: no overlap, no hole, nothing beyond the end, nothing after it."""
    at = 0
    for each in sorted(entries, key=lambda e: (e.begin, e.end)):
        if each.begin < at:
            raise errors.Overlap(f"{each.name!r} begins at {each.begin}, inside the buffer before it")
        if each.begin > at:
            raise errors.Hole(f"{each.begin - at} bytes before {each.name!r} belong to no tensor")
        at = each.end
    if at > size:
        raise errors.DataTruncated(f"The buffers need {at} bytes; the file has {size}")
    if at < size:
        raise errors.TrailingBytes(f"{size - at} bytes follow the last buffer")


def named_parts(header: Header) -> tuple[tuple[str, int], ...]:
    """The parts that a root names: (digest, bytes of the part's file), in the order of the structure, without repeats."""
    found: dict[str, int] = {}
    pending = [load_json(header.meta.get(RECORD, "{}").encode(), LIMITS)]
    stack: list[Any] = list(pending)
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(reversed(node.values()))
        elif isinstance(node, list):
            if len(node) == 5 and node[0] == "part":
                found.setdefault(check_digest(node[1]), node[4] if whole(node[4]) else 0)
            else:
                stack.extend(reversed(node))
    return tuple(found.items())


def check_digest(text: Any) -> str:
    """A SHA-256 in lower-case hexadecimal: 64 characters."""
    if not isinstance(text, str) or len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise errors.BadName(f"{str(text)[:80]!r} is not a digest")
    return text
