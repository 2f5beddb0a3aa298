"""Files that lie, each pushed as the root of a reply."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.acceptance.hostile.liar import Liar, Lie, Told
from tests.archive.values import entry, file, head, root
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.feddadil.messages import Atoms
from tideline.archive import layout
from tideline.archive.checks import LAX
from tideline.archive.digests import digest_of
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record

EIGHT = bytes(8)
MANY = 100_000
# The magic number of Zstandard, and a frame that claims to unpack to 2^62 bytes.
ZSTD_BOMB = bytes.fromhex("28b52ffde0") + (1 << 62).to_bytes(8, "little") + bytes(64)


def told(content: bytes, kind: str, words: str) -> Lie:
    return Lie(lambda liar: liar.replied(content), kind, words)


def tensor(name: str = "x", data: bytes = EIGHT, **said: object) -> bytes:
    """A file of one tensor that is described wrongly."""
    return file(head(**{name: entry(**said)}), data)


@record
class Said:
    """What a reply of fedavg holds, without its bounds."""

    model: Weights = field("", Exposure.WEIGHTS)
    samples: int = field("", Exposure.COUNT)


def altered(change: Callable[[dict[str, Tensor]], dict[str, Tensor]], kind: str, words: str, samples: int = 1) -> Lie:
    """The model that was sent, altered, as a reply that is sound in all else."""

    def tell(liar: Liar) -> Told:
        parts, order = MemoryParts(), liar.at_work()
        root = parts.put([liar.fetched(order, order.files[0].digest)])
        model = dict(decode(Model, root, parts).model)
        made = encode(Said(change(model), samples), parts, LAX)
        return liar.answered(order, *(bytes(parts.view(digest)) for digest, _ in made.files))

    return Lie(tell, kind, words)


@record
class Features:
    """What a source of feddadil tells of its features, without its bounds."""

    rows: int
    total_mean: Tensor
    total_variance: Tensor
    classes: Tensor
    count: Tensor
    mean: Tensor
    variance: Tensor


@record
class Cloud:
    """Atoms, held to nothing."""

    z: Tensor
    y: Tensor


def features(d: int = 6, mean: float = 0.0, variance: float = 1.0) -> bytes:
    parts, none = MemoryParts(), torch.zeros(0)
    told = Features(9, torch.full((d,), mean), torch.full((d,), variance), none, none, torch.zeros(0, d), torch.zeros(0, d))
    return bytes(parts.view(encode(told, parts, LAX).digest))


def described(kind: str, words: str, **said: Any) -> Lie:
    """Features that no dictionary could begin with."""
    return Lie(lambda liar: liar.answered(liar.teaching(), features(**said)), kind, words)


def learnt(change: Callable[[Atoms], Cloud], kind: str, words: str) -> Lie:

    def tell(liar: Liar) -> Told:
        parts, order = MemoryParts(), liar.teaching()
        assert liar.report(order, files=liar.pushed(order, features())).verdict == "accepted"
        order = liar.next_order(order.run, 1)
        given = decode(Atoms, parts.put([liar.fetched(order, order.files[0].digest)]), parts)
        return liar.answered(order, bytes(parts.view(encode(change(given), parts, LAX).digest)))

    return Lie(tell, kind, words)


def named(times: int, kind: str, words: str) -> Lie:
    """A root that names one small part again and again."""
    small = file(head(tensor=entry()), EIGHT)
    part = ["part", digest_of([small]), "F32", [2], len(small)]
    made = root({"model": {f"t{i}": part for i in range(times)}, "samples": 1})
    return Lie(lambda liar: liar.answered(liar.at_work(), made, small), kind, words)


def first(value: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda model: model | {min(model): value(model[min(model)])}


def objects(count: int) -> bytes:
    """A header of one list of objects with a key each, no two alike: what costs most among what is not too much."""
    return b'{"__metadata__":{"tideline.layout":"1"},"a":[' + b",".join(b'{"%x":0}' % i for i in range(count)) + b"]}"


FILES: Mapping[str, Lie] = {
    "short": told(b"\x07", "TooShort", "1 bytes has no header"),
    "header beyond the file": told(file(head(), size=1 << 20), "HeaderTruncated", "claims 1048576 bytes"),
    "header beyond all memory": told(file(head(), size=(1 << 64) - 1), "HeaderTooLarge", "the limit is 67108864"),
    "header that is no JSON": told(file(b"{"), "HeaderNotJson", "is not JSON"),
    "header that is no UTF-8": told(file(b'{"\xff": 1}'), "HeaderNotJson", "is not JSON"),
    "deep header": told(file(b'{"a":' + b"[" * MANY), "HeaderTooDeep", "deeper than 64 levels"),
    "flood of lists": told(file(b'{"a":[' + b"[]," * 1_000_001 + b"[]]}"), "HeaderTooLarge", "objects; the limit is 1000000"),
    "flood of texts": told(file(b'{"a":[' + b'"",' * 1_500_001 + b'""]}'), "HeaderTooLarge", "texts; the limit is 1500000"),
    "as many objects as may be": told(file(objects(999_990)), "BadEntry", "must have exactly dtype"),
    "flood of numbers": told(file(b'{"a":[' + b"999," * 4_000_001 + b"0]}"), "HeaderTooLarge", "commas; the limit is 4000000"),
    "number of a million digits": told(file(b'{"x": ' + b"9" * 1_000_000 + b"}"), "HeaderNotJson", "is not JSON"),
    "key twice": told(file(b'{"a": 1, "a": 2}'), "DuplicateKey", "'a' twice"),
    "overlapping tensors": told(
        file(head(x=entry(), y=entry(offsets=(4, 12))), bytes(12)), "Overlap", "inside the buffer before"
    ),
    "hole between tensors": told(file(head(x=entry(), y=entry(offsets=(16, 24))), bytes(24)), "Hole", "belong to no tensor"),
    "shape that overflows": told(tensor(shape=(1 << 40, 1 << 40)), "BadShape", "would span"),
    "negative axis": told(tensor(shape=(-1, 2)), "BadShape", "has the shape [-1, 2]"),
    "seventeen axes": told(tensor(shape=(1,) * 17), "BadShape", "has the shape"),
    "offsets backwards": told(tensor(offsets=(8, 0)), "BadOffsets", "[8, 0]"),
    "unknown dtype": told(tensor(dtype="F8_E4M3"), "UnknownDtype", "known are F64"),
    "dtype of another size": told(tensor(dtype="F64"), "SizeMismatch", "its shape needs 16"),
    "name with a path": told(tensor("../../etc/passwd"), "BadName", "cannot name a tensor"),
    "name with a NUL": told(tensor("a\0b"), "BadName", "cannot name a tensor"),
    "name too long": told(tensor("n" * 513), "BadName", "cannot name a tensor"),
    "cut": told(tensor(data=b""), "DataTruncated", "the file has 0"),
    "bytes behind": told(tensor(data=EIGHT * 2), "TrailingBytes", "8 bytes follow"),
    "metadata of megabytes": told(
        file({layout.META: {layout.VERSION: "1", "x": "y" * (8 << 20)}}), "BadMetadata", "the unknown key 'x'"
    ),
    "metadata that are no texts": told(file({layout.META: {"x": [1]}}), "BadMetadata", "not a mapping of texts"),
    "more tensors than the limit": told(
        file(head(**{f"t{i}": 0 for i in range(200_001)})), "TooManyTensors", "the limit is 200000"
    ),
    "deep structure": told(file(head({layout.RECORD: "[" * 65 + "]" * 65})), "HeaderTooDeep", "deeper than 64 levels"),
    "no record": told(file(head()), "BadMetadata", "holds no record"),
    "gzip bomb as a part": told(gzip.compress(bytes(64 << 20)), "HeaderTooLarge", "the limit is 67108864"),
    "zstd bomb as a part": told(ZSTD_BOMB, "HeaderTooLarge", "the limit is 67108864"),
    "pickle as a part": told(b"\x80\x04cos\nsystem\n(S'true'\ntR.", "HeaderTooLarge", "the limit is 67108864"),
    "part that nobody sent": told(
        root({"model": {"x": ["part", "b3-" + "0" * 64, "F32", [2], 8]}, "samples": 1}),
        "Undeclared",
        "not those that its root names",
    ),
    "record without its fields": told(root({"samples": 1}), "Missing", "model"),
    "record with one field more": told(root({"model": {}, "samples": 1, "rows": 7}), "Undeclared", "rows"),
    "weights that are no numbers": altered(first(lambda w: w * float("nan")), "NotFinite", "holds a NaN"),
    "infinite weights": altered(first(lambda w: w + float("inf")), "NotFinite", "holds a NaN or an infinity"),
    "weights of another shape": altered(first(lambda w: w[None]), "WrongDims", "expected"),
    "weights of another dtype": altered(first(lambda w: w.double()), "WrongDims", "expected"),
    "weights with one more": altered(lambda model: model | {"back.door": torch.ones(1)}, "WrongDims", "unexpected tensor"),
    "weights with one less": altered(lambda model: dict(sorted(model.items())[1:]), "WrongDims", "lacks"),
    "no samples": altered(dict, "OutOfRange", "declared as 1 or more", 0),
    "fewer samples than none": altered(dict, "OutOfRange", "declared as 1 or more", -(10**12)),
    "samples beyond all measure": altered(dict, "OutOfRange", "no number may be beyond 1e+15", 10**16),
    "weights beyond all measure": altered(first(lambda w: w * 0 - 1e30), "OutOfRange", "no number may be beyond 1e+15"),
    "one part very often": named(25_000, "TooManyTensors", "names parts 25000 times; the limit is 8192"),
    "one part under names of its own": named(8_000, "WrongDims", "lacks"),
    "features of another width": described("WrongDims", "d = 5; expected 6", d=5),
    "features beyond all measure": described("OutOfRange", "no number may be beyond 1e+15", mean=1e30),
    "variance below zero": described("OutOfRange", "declared as 0 or more", variance=-1.0),
    "atoms of another shape": learnt(lambda it: Cloud(it.z[1:, 1:], it.y[1:, 1:]), "WrongDims", "K = 3; expected 4"),
    "labels below zero": learnt(lambda it: Cloud(it.z, it.y - 1), "OutOfRange", "declared as 0 or more"),
}
