"""Records to files and back. Every declaration is checked on the way out of a site and again on the way in.

A record becomes one root file and a part for each tensor of PART_BYTES or more; the root names its parts by digest, so the
root's digest stands for the whole value. Decoding maps files and copies nothing.

Legend of the structure kept in a root's metadata (walked by the type, so it needs no tags but one):
    tensor in this file    null
    tensor as a part       ["part", digest, dtype, shape, bytes of the part's file]
    weights, dict, record  an object      tuple  an array      scalar  itself      optional  null or the value
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from tideline.archive import errors, layout
from tideline.archive.parts import Buffer, Parts
from tideline.core.record import Kind, Spec, is_record, specs
from tideline.core.run import EMPTY, Digest

T = TypeVar("T")
PART_BYTES = 1 << 20
PART_NAME = "tensor"

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES: Mapping[torch.dtype, str] = {v: k for k, v in DTYPES.items()}


@dataclass(frozen=True)
class Message:
    """An encoded record: its root's digest and every file it needs, (digest, bytes), the root first."""

    digest: Digest
    files: tuple[tuple[Digest, int], ...]

    @property
    def size(self) -> int:
        """Bytes of root and parts."""
        return sum(size for _, size in self.files)


@dataclass
class Memo:
    """Parts written during one turn, by tensor: what is sent and kept at once is hashed and written once."""

    known: dict[int, tuple[Tensor, int, Digest, int]] = field(default_factory=dict)

    def get(self, tensor: Tensor) -> tuple[Digest, int] | None:
        """The part of this very tensor, unless it was changed in place since."""
        kept = self.known.get(id(tensor))
        if kept is None or kept[1] != tensor._version:
            return None
        return kept[2], kept[3]

    def put(self, tensor: Tensor, digest: Digest, size: int) -> None:
        """Remember a part. The tensor is held, so its id stays its own."""
        self.known[id(tensor)] = (tensor, tensor._version, digest, size)


@dataclass(frozen=True)
class Rules:
    """What a record is held to: sizes of named dims, records that `like` refers to, and whether numbers must be finite."""

    sizes: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    like: tuple[Any, ...] = ()
    finite: bool = True


RULES = Rules()
LAX = Rules(finite=False)


def encode(value: Any, parts: Parts, rules: Rules = RULES, memo: Memo | None = None) -> Message:
    """Write a record into `parts`. Raises Malformed errors for what its type does not declare."""
    writer = Writer(parts, rules, memo or Memo())
    tree = writer.record(value, type(value), "")
    meta = {layout.RECORD: json.dumps(tree, separators=(",", ":"), ensure_ascii=True, allow_nan=False)}
    head, order = layout.build({n: (DTYPE_NAMES[t.dtype], tuple(t.shape)) for n, t in writer.inline.items()}, meta)
    buffers = [head, *(raw(writer.inline[name]) for name in order)]
    root = parts.put(buffers)
    return Message(root, ((root, sum(len(b) for b in buffers)), *writer.written.items()))


def decode(kind: type[T], digest: Digest, parts: Parts, rules: Rules = RULES) -> T:
    """Read a record of a type from `parts`. Raises Malformed errors; copies no tensor."""
    view = parts.view(digest)
    header = layout.parse(view)
    tree = layout.load_json(header.meta.get(layout.RECORD, "").encode(), layout.LIMITS)
    reader = Reader(parts, rules, view, header)
    value = reader.record(kind, tree, "")
    extra = set(header.entries) - reader.used
    if extra:
        raise errors.Undeclared(f"The file holds {sorted(extra)[0]!r}, which {kind.__name__} does not declare")
    return cast(T, value)


def files_of(digest: Digest, parts: Parts) -> tuple[tuple[Digest, int], ...]:
    """The root and the parts that it names, (digest, bytes)."""
    view = parts.view(digest)
    named = layout.named_parts(layout.parse(view))
    return ((digest, len(view)), *((Digest(d), size) for d, size in named))


class Walker:
    """What writing and reading share: the rules, and the dims bound so far in this message."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.bound = dict(rules.sizes)

    def admit(self, tensor: Tensor, dims: str, path: str) -> Tensor:
        """A tensor that fits its dims and is finite."""
        if dims:
            self.bind(tuple(tensor.shape), dims.split(), path)
        if self.rules.finite and tensor.is_floating_point() and tensor.numel() and not is_finite(tensor):
            raise errors.NotFinite(f"{path} holds a NaN or an infinity", "Lower the learning rate, or check the data for NaN")
        return tensor

    def bind(self, shape: tuple[int, ...], names: Sequence[str], path: str) -> None:
        """Hold a shape to its dims; a name met first is bound for the rest of the message."""
        fixed = names[:-1] if names[-1] == "..." else names
        if len(shape) < len(fixed) or (len(shape) > len(fixed) and fixed is names):
            raise errors.WrongDims(f"{path} has the shape {list(shape)}; it is declared as ({' '.join(names)})")
        for name, size in zip(fixed, shape, strict=False):
            wanted = int(name) if name.isdigit() else self.bound.setdefault(name, size)
            if wanted != size:
                raise errors.WrongDims(
                    f"{path} has {name} = {size}; expected {wanted} (shape {list(shape)}, dims {' '.join(names)})"
                )

    def admit_weights(self, weights: Mapping[str, Tensor], dims: str, path: str) -> None:
        """Named tensors that are finite and, where declared, like the template in names, shapes and dtypes."""
        for name, tensor in weights.items():
            self.admit(tensor, "", under(path, name))
        if dims.startswith("like "):
            same(weights, self.template(dims.removeprefix("like ")), path)

    def template(self, name: str) -> Mapping[str, Tensor]:
        """The weights that `like name` refers to."""
        for value in self.rules.like:
            found = getattr(value, name, None)
            if isinstance(found, Mapping):
                return found
        raise errors.WrongDims(f"Nothing named {name!r} was sent that a reply could be like", "Name a Weights field of the order")


def same(weights: Mapping[str, Tensor], template: Mapping[str, Tensor], path: str) -> None:
    """Names, shapes and dtypes agree."""
    if weights.keys() != template.keys():
        odd = sorted(weights.keys() ^ template.keys())[0]
        raise errors.WrongDims(f"{path} {'lacks' if odd in template else 'has the unexpected tensor'} {odd!r}")
    for name, tensor in weights.items():
        like = template[name]
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            got, want = (f"{list(t.shape)} {t.dtype}" for t in (tensor, like))
            raise errors.WrongDims(f"{path}/{name} is {got}; expected {want}")


class Writer(Walker):
    """Walks a value by its type; fills `inline` (tensors of the root) and `written` (parts)."""

    def __init__(self, parts: Parts, rules: Rules, memo: Memo) -> None:
        super().__init__(rules)
        self.parts, self.memo = parts, memo
        self.inline: dict[str, Tensor] = {}
        self.written: dict[Digest, int] = {}

    def record(self, value: Any, kind: type[Any], path: str) -> dict[str, Any]:
        """A record's structure."""
        if not is_record(kind) or type(value) is not kind:
            raise errors.WrongType(f"{path or 'The message'} is a {type(value).__name__}; it is declared as {kind.__name__}")
        return {s.name: self.value(getattr(value, s.name), s.kind, s, under(path, s.name)) for s in specs(kind)}

    def value(self, value: Any, kind: Kind, spec: Spec, path: str) -> Any:
        """One value's structure."""
        match kind.what:
            case "tensor":
                return self.tensor(self.admit(expect(value, Tensor, path), spec.dims, path), path)
            case "weights":
                self.admit_weights(expect(value, Mapping, path), spec.dims, path)
                return {n: self.tensor(t, under(path, n)) for n, t in sorted(value.items())}
            case "record":
                return self.record(value, cast(type, kind.type), path)
            case "dict":
                return {
                    k: self.value(v, inner(kind), spec, under(path, k)) for k, v in sorted(expect(value, Mapping, path).items())
                }
            case "tuple":
                return [self.value(v, inner(kind), spec, f"{path}/{i}") for i, v in enumerate(expect(value, tuple, path))]
            case "optional":
                return None if value is None else [self.value(value, inner(kind), spec, path)]
        return scalar(value, kind, path, self.rules.finite)

    def tensor(self, tensor: Tensor, path: str) -> Any:
        """A tensor: kept for the root, or written as a part."""
        if tensor.dtype not in DTYPE_NAMES:
            known = ", ".join(str(d) for d in DTYPE_NAMES)
            raise errors.UnknownDtype(f"{path} has the dtype {tensor.dtype}", f"Convert it to one of {known}")
        if tensor.nbytes < PART_BYTES:
            self.inline[layout.check_name(path)] = tensor
            return None
        kept = self.memo.get(tensor)
        if kept is None:
            head, _ = layout.build({PART_NAME: (DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))}, {})
            buffers = [head, raw(tensor)]
            kept = self.parts.put(buffers), sum(len(b) for b in buffers)
            self.memo.put(tensor, *kept)
        self.written[kept[0]] = kept[1]
        return ["part", kept[0], DTYPE_NAMES[tensor.dtype], list(tensor.shape), kept[1]]


class Reader(Walker):
    """Walks a type along a file's structure; refuses whatever the type does not declare."""

    def __init__(self, parts: Parts, rules: Rules, view: memoryview, header: layout.Header) -> None:
        super().__init__(rules)
        self.parts, self.view, self.header = parts, view, header
        self.used: set[str] = set()

    def record(self, kind: type[Any], tree: Any, path: str) -> Any:
        """A record of a type."""
        given = expect(tree, dict, path)
        known = [s.name for s in specs(kind)]
        for name in given:
            if name not in known:
                raise errors.Undeclared(f"{under(path, name)} is not declared by {kind.__name__}")
        for name in known:
            if name not in given:
                raise errors.Missing(f"{under(path, name)} is declared by {kind.__name__} and missing")
        return kind(**{s.name: self.value(given[s.name], s.kind, s, under(path, s.name)) for s in specs(kind)})

    def value(self, tree: Any, kind: Kind, spec: Spec, path: str) -> Any:
        """One value."""
        match kind.what:
            case "tensor":
                return self.admit(self.tensor(tree, path), spec.dims, path)
            case "weights":
                weights = {n: self.tensor(t, under(path, n)) for n, t in expect(tree, dict, path).items()}
                self.admit_weights(weights, spec.dims, path)
                return weights
            case "record":
                return self.record(cast(type, kind.type), tree, path)
            case "dict":
                return {k: self.value(v, inner(kind), spec, under(path, k)) for k, v in expect(tree, dict, path).items()}
            case "tuple":
                return tuple(self.value(v, inner(kind), spec, f"{path}/{i}") for i, v in enumerate(expect(tree, list, path)))
            case "optional":
                return None if tree is None else self.value(only(tree, path), inner(kind), spec, path)
        return scalar(tree, kind, path, self.rules.finite)

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
        if not isinstance(tree, list) or len(tree) != 5 or tree[0] != "part":
            raise errors.BadMetadata(f"{path} is neither a tensor of this file nor a part")
        view = self.parts.view(Digest(layout.check_digest(tree[1])))
        header = layout.parse(view)
        entry = header.entries.get(PART_NAME)
        if entry is None or len(header.entries) != 1 or [entry.dtype, list(entry.shape), len(view)] != tree[2:]:
            raise errors.PartMismatch(f"{path}: part {tree[1][:12]} is not the tensor that its root names")
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
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def is_finite(tensor: Tensor) -> bool:
    """Whether no element is NaN or infinite: one pass, no mask (aminmax hands NaN through)."""
    low, high = torch.aminmax(tensor.detach())
    return math.isfinite(low.item()) and math.isfinite(high.item())


def scalar(value: Any, kind: Kind, path: str, finite: bool) -> Any:
    """A number, a text or a truth value of the declared type."""
    wanted: Any = kind.type
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise errors.WrongType(f"{path} is a {type(value).__name__}; it is declared as {wanted.__name__}")
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise errors.TooLarge(f"{path} does not fit 64 bits")
    if finite and wanted is float and not math.isfinite(value):
        raise errors.NotFinite(f"{path} is {value}")
    return wanted(value)


def expect(value: Any, kind: Any, path: str) -> Any:
    """The value, if it is of the kind."""
    if not isinstance(value, kind):
        raise errors.WrongType(f"{path or 'The message'} is a {type(value).__name__}; it is declared as {kind.__name__}")
    return value


def only(tree: Any, path: str) -> Any:
    """What an optional value's list of one holds."""
    if not isinstance(tree, list) or len(tree) != 1:
        raise errors.BadMetadata(f"{path} is neither null nor a list of one value")
    return tree[0]


def inner(kind: Kind) -> Kind:
    """What a container holds."""
    assert kind.of is not None
    return kind.of


def under(path: str, name: str) -> str:
    """A path one step deeper. A name may not hold the separator, or two paths could be one."""
    if "/" in name or not name:
        raise errors.BadName(f"{name[:80]!r} cannot name a part of {path or 'a message'}", "Use names without slashes")
    return f"{path}/{name}" if path else name


def total(files: Iterable[tuple[Digest, int]]) -> int:
    """Bytes of files."""
    return sum(size for _, size in files)
