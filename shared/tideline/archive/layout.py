"""One file: eight bytes of header length, a JSON header, raw little-endian buffers without holes (the safetensors layout).

The header is padded with spaces so that buffers begin at a multiple of 64 bytes. Entries are written by falling item size, then
by name, so that every buffer is naturally aligned. The same value gives the same bytes. Standard library only: the agent, which
never loads torch, reads roots with it to learn which parts they name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple, NoReturn, TypeGuard

from tideline.archive import errors
from tideline.archive.digests import check_digest
from tideline.core.handle import AnyHandle, Handle
from tideline.core.run import ClientId
from tideline.core.settings import Plain

ITEM_BYTES: Mapping[str, int] = {
    "F64": 8,
    "I64": 8,
    "F32": 4,
    "I32": 4,
    "F16": 2,
    "BF16": 2,
    "U8": 1,
    "I8": 1,
    "BOOL": 1,
}
ALIGN = 64
LAYOUT = "1"
META = "__metadata__"
RECORD = "tideline.record"
VERSION = "tideline.layout"
PART_NAME, PART_BYTES = "tensor", 1 << 20  # of the only tensor of a part; bytes from which a tensor is one
TENSORS, HEADER, NAMED = "The header names {} tensors", "The header claims {} bytes", "The root names parts {} times"
ENTRY_KEYS = frozenset(("dtype", "shape", "data_offsets"))
NO_STEPS = frozenset(("", ".", ".."))
STEPS: Mapping[int, int] = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}
# Headers that are remembered, so that equal ones are written and read once: how many, and of how many bytes and tensors.
ALIKE, SHORT, FEW = 128, 1 << 14, 256
NAMES = 4096  # that are remembered to be good
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True)
class Limits:
    """Ceilings checked before anything is allocated."""

    header_bytes: int = 64 << 20
    # Of one JSON document; an entry has 5, 3 and 19 at most. A number costs next to nothing, an object of one key 200 bytes.
    texts: int = 1_500_000
    brackets: int = 1_000_000
    commas: int = 4_000_000
    tensors: int = 200_000
    # Times that a root may name a part: each time it is mapped, and takes one of the files that a process may have open.
    parts: int = 8192
    axes: int = 16
    name_bytes: int = 512
    depth: int = 64
    total_bytes: int = 1 << 44


LIMITS = Limits()
Texts = tuple[tuple[str, str], ...]
Shapes = tuple[tuple[str, tuple[str, tuple[int, ...]]], ...]


class Entry(NamedTuple):
    """One tensor of a file. `begin` and `end` count from the first byte after the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """A file's entries by name, its metadata, and where its buffers begin. Shared by all files that begin alike."""

    entries: Mapping[str, Entry]
    meta: Mapping[str, str]
    data_start: int

    @cached_property
    def structure(self) -> dict[str, Plain]:
        """A root's structure. Raises BadMetadata where there is none, or none that is JSON."""
        text = self.meta.get(RECORD)
        if text is None:
            raise errors.BadMetadata("The file holds no record")
        try:
            # A lone surrogate becomes bytes that are no UTF-8, and is refused as such.
            return load_json(text.encode("utf-8", "surrogatepass"), LIMITS)
        except errors.HeaderNotJson as cause:
            raise errors.BadMetadata(f"The record's structure cannot be read: {cause.what}") from None

    @cached_property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """The parts that a root names: (digest, bytes of the part's file), in the order of the structure, without repeats."""
        found: dict[str, int] = {}
        named = [node for node in nodes(self.structure) if is_part(node)]
        at_most(len(named), LIMITS.parts, errors.TooManyTensors, NAMED)
        for node in named:
            found.setdefault(check_digest(node[1]), node[4] if whole(node[4]) else 0)
        return tuple(found.items())

    @cached_property
    def handles(self) -> tuple[AnyHandle, ...]:
        """The sealed values that a root names, without repeats, in the order of the structure."""
        found = [handle_in(node) for node in nodes(self.structure) if is_handle(node)]
        at_most(len(found), LIMITS.parts, errors.TooManyTensors, NAMED)
        return tuple(dict.fromkeys(found))


def build(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], meta: Mapping[str, str], limits: Limits = LIMITS
) -> tuple[bytes, tuple[str, ...]]:
    """A file's length and header, and the order of the buffers of {name: (dtype, shape)}. Raises what `parse` would."""
    known = len(tensors) <= FEW and sum(map(len, meta.values())) <= SHORT
    return (built if known else built.__wrapped__)(tuple(tensors.items()), tuple(meta.items()), limits)


@lru_cache(ALIKE)
def built(named: Shapes, texts: Texts, limits: Limits) -> tuple[bytes, tuple[str, ...]]:
    tensors, meta = dict(named), dict(texts)
    at_most(len(tensors), limits.tensors, errors.TooManyTensors, TENSORS)
    order = tuple(sorted(tensors, key=lambda n: (-ITEM_BYTES[tensors[n][0]], n)))
    head: dict[str, Plain] = {META: dict(sorted({**meta, VERSION: LAYOUT}.items()))}
    at = 0
    for name in order:
        dtype, shape = tensors[name]
        begin, at = at, at + ITEM_BYTES[dtype] * math.prod(shape)
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, at]}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    at_most(len(text), limits.header_bytes, errors.HeaderTooLarge, HEADER)
    for document in (text, *(m.encode() for m in meta.values())):
        check_nesting(document, limits)
    return len(text).to_bytes(8, "little") + text, order


def parse(buffer: memoryview, limits: Limits = LIMITS) -> Header:
    """The header of a whole file, every rule checked. Raises the named errors of archive.errors."""
    head = header_of(buffer, limits)
    return (parsed if len(head) <= SHORT else parsed.__wrapped__)(head, len(buffer), limits)


@lru_cache(ALIKE)
def parsed(head: bytes, size: int, limits: Limits) -> Header:
    """The header of a file of so many bytes. Messages of one kind begin alike, whoever sends them."""
    raw, start = load_json(head, limits), 8 + len(head)
    meta = metadata(raw.pop(META, {}))
    return Header(entries_in(raw, start, size, limits), meta, start)


def header_of(buffer: memoryview, limits: Limits) -> bytes:
    """The JSON text at the beginning of a file."""
    if len(buffer) < 8:
        raise errors.TooShort(f"An archive of {len(buffer)} bytes has no header")
    size = int.from_bytes(buffer[:8], "little")
    at_most(size, limits.header_bytes, errors.HeaderTooLarge, HEADER)
    if 8 + size > len(buffer):
        raise errors.HeaderTruncated(f"The header claims {size} bytes; the file has {len(buffer) - 8} after its length")
    return bytes(buffer[8 : 8 + size])


def entries_in(
    raw: dict[str, Plain], start: int, end: int, limits: Limits, items: Mapping[str, int] = ITEM_BYTES, align: int = ALIGN
) -> Mapping[str, Entry]:
    """The entries of a header, which is emptied. start, end: of the buffers; items: the dtypes that it may have."""
    at_most(len(raw), limits.tensors, errors.TooManyTensors, TENSORS)
    if start % align:
        raise errors.Misaligned(f"The buffers begin at byte {start}, which is no multiple of {align}")
    entries = {name: entry(name, raw.pop(name), limits, items) for name in tuple(raw)}
    cover(entries.values(), end - start)
    return entries


def at_most(count: int, most: int, error: type[errors.ArchiveBroken], what: str) -> None:
    if count > most:
        raise error(f"{what.format(count)}; the limit is {most}")


def load_json(text: bytes, limits: Limits) -> dict[str, Plain]:
    check_nesting(text, limits)
    try:
        loaded = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as cause:
        raise errors.HeaderNotJson(f"The header is not JSON: {cause}") from None
    if not isinstance(loaded, dict):
        raise errors.HeaderNotJson("The header is not a JSON object")
    return loaded


def check_nesting(text: bytes, limits: Limits) -> None:
    """Neither too deep nor too much of it, found before any parser recurses or allocates. Brackets inside texts are none."""
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    at_most(bare.count(b'"') // 2, limits.texts, errors.HeaderTooLarge, "The header holds {} texts")
    outside = b"".join(bare.split(b'"')[::2])
    # Numbers have neither quotes nor brackets.
    at_most(outside.count(b","), limits.commas, errors.HeaderTooLarge, "The header holds {} commas")
    brackets = outside.translate(None, delete=NO_BRACKETS)
    at_most(len(brackets) // 2, limits.brackets, errors.HeaderTooLarge, "The header holds {} lists and objects")
    if max(accumulate(map(STEPS.__getitem__, brackets)), default=0) > limits.depth:
        raise errors.HeaderTooDeep(f"The header is nested deeper than {limits.depth} levels")


def unique(pairs: list[tuple[str, Plain]]) -> dict[str, Plain]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise errors.DuplicateKey(f"The header has the key {twice[:80]!r} twice")
    return made


def no_constant(word: str) -> NoReturn:
    """NaN and Infinity are not JSON."""
    raise ValueError(f"{word} is not a JSON value")


def metadata(raw: Plain) -> Mapping[str, str]:
    if not isinstance(raw, dict) or len(texts := {k: v for k, v in raw.items() if isinstance(v, str)}) < len(raw):
        raise errors.BadMetadata("The header's metadata are not a mapping of texts")
    if (version := texts.get(VERSION)) != LAYOUT:
        raise errors.UnknownLayout(f"The file has layout {version!r:.80}; this version reads {LAYOUT!r}", "Use equal versions")
    if odd := texts.keys() - {VERSION, RECORD}:
        raise errors.BadMetadata(f"The header's metadata have the unknown key {min(odd)!r:.80}")
    return texts


@lru_cache(NAMES)
def check_name(name: str, limits: Limits = LIMITS) -> str:
    """A tensor's name or path: printable, not empty, not longer than the limit, no backslash, no empty or dotted step."""
    good = name.isprintable() and "\\" not in name and NO_STEPS.isdisjoint(name.split("/"))
    # What is printable has no lone surrogate, so it can be encoded.
    if not good or len(name.encode()) > limits.name_bytes:
        raise errors.BadName(f"{name[:80]!r} cannot name a tensor")
    return name


def entry(name: str, raw: Plain, limits: Limits, items: Mapping[str, int] = ITEM_BYTES) -> Entry:
    """One entry, every rule checked that needs no other entry."""
    check_name(name, limits)
    if not isinstance(raw, dict) or raw.keys() != ENTRY_KEYS:
        raise errors.BadEntry(f"The entry of {name!r} must have exactly dtype, shape and data_offsets")
    dtype, offsets = raw["dtype"], raw["data_offsets"]
    shape = check_shape(name, dtype, raw["shape"], limits, items)
    if not wholes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise errors.BadOffsets(f"The offsets of {name!r} are {offsets!r:.80}")
    begin, end = offsets
    item = items[dtype]
    if end - begin != item * math.prod(shape):
        raise errors.SizeMismatch(f"{name!r} spans {end - begin} bytes; its shape needs {item * math.prod(shape)}")
    if begin % item:
        raise errors.Misaligned(f"{name!r} begins at {begin}, which is no multiple of its item's {item} bytes")
    return Entry(name=name, dtype=dtype, shape=shape, begin=begin, end=end)


def check_shape(
    name: str, dtype: Plain, shape: Plain, limits: Limits = LIMITS, items: Mapping[str, int] = ITEM_BYTES
) -> tuple[int, ...]:
    """A shape of whole numbers whose size is within the limit. A zero hides no overflow: strides are made of the other axes."""
    if not isinstance(dtype, str) or dtype not in items:
        raise errors.UnknownDtype(f"{name!r} has the dtype {dtype!r:.80}; known are {', '.join(items)}")
    if not wholes(shape) or len(shape) > limits.axes:
        raise errors.BadShape(f"{name!r} has the shape {shape!r:.80}")
    span = items[dtype] * (math.prod(shape) or math.prod(filter(None, shape)))
    if span > limits.total_bytes:
        raise errors.BadShape(f"{name!r} would span {span} bytes; the limit is {limits.total_bytes}")
    return tuple(shape)


def whole(n: Plain) -> TypeGuard[int]:
    """A whole number that is not negative (and not a truth value)."""
    return type(n) is int and 0 <= n < 1 << 63


def wholes(given: Plain) -> TypeGuard[list[int]]:
    return isinstance(given, list) and all(map(whole, given))


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


def handle_node(handle: AnyHandle) -> list[Plain]:
    return ["handle", handle.digest, handle.size, handle.holder, handle.phase, handle.round]


def packed_node(node: Plain) -> tuple[str, dict[str, Plain]] | None:
    """The format and the tensors of a packed tensor; None for one that is as it is."""
    match node:
        case [str(name), dict(tensors)]:
            return name, tensors
    return None


def is_handle(node: Plain) -> bool:
    """Whether a node is a handle. No tuple holds texts and numbers beside each other."""
    return isinstance(node, list) and len(node) == 6 and node[0] == "handle" and not isinstance(node[2], str)


def handle_in(node: Plain) -> AnyHandle:
    """The handle of a node. Raises BadMetadata."""
    match node:
        case ["handle", digest, size, str(holder), str(phase), count] if whole(size) and whole(count):
            holder, phase = check_name(holder), check_name(phase)
            return Handle(digest=check_digest(digest), size=size, holder=ClientId(holder), phase=phase, round=count)
    raise errors.BadMetadata(f"{node!r:.80} is no handle of a sealed value")


def nodes(tree: Plain) -> Iterator[list[Plain]]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            yield node
        if isinstance(node, dict):
            stack.extend(reversed(node.values()))
        elif isinstance(node, list) and not is_part(node):
            stack.extend(reversed(node))


def is_part(node: Plain) -> TypeGuard[list[Plain]]:
    """Whether a node names a part. A tuple of five texts is none: no tuple holds texts and a list beside each other."""
    return isinstance(node, list) and len(node) == 5 and node[0] == "part" and isinstance(node[3], list)
