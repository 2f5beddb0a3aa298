"""Every way of being malformed, by name: hostile bytes on the left, the error that they must give on the right."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.archive.values import Flags, Square, entry, file, head, root, stored
from tideline.archive import errors, layout
from tideline.archive.checks import RULES, Rules
from tideline.archive.layout import PART_NAME
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.errors import Malformed
from tideline.core.run import Digest

EIGHT = b"\0" * 8
NONE = "b3-" + "0" * 64

# Files that contradict themselves, whatever they were meant to hold.
FILES: dict[type[Malformed], dict[str, Callable[[], bytes]]] = {
    errors.TooShort: {"empty": lambda: b"", "seven bytes": lambda: b"\0" * 7},
    errors.HeaderTooLarge: {
        "all ones": lambda: file({}, size=2**64 - 1),
        "just beyond": lambda: file({}, size=layout.LIMITS.header_bytes + 1),
        "a flood of lists": lambda: file(b'{"a":[' + b"[],[]," * 2_000_001 + b"[]]}"),
        "a flood of numbers": lambda: file(b'{"a":[' + b"999," * 4_000_001 + b"0]}"),
        "a flood of texts": lambda: file(b'{"a":[' + b'"",' * 4_000_001 + b'""]}'),
    },
    errors.HeaderTruncated: {"no header": lambda: (64).to_bytes(8, "little"), "one byte short": lambda: file(head())[:-1]},
    errors.HeaderNotJson: {
        "nothing": lambda: file(b""),
        "not UTF-8": lambda: file(b'{"\xff": 1}'),
        "a list": lambda: file([]),
        "a number": lambda: file(b"7"),
        "NaN": lambda: file(b'{"x": NaN}'),
        "a number of five thousand digits": lambda: file(b'{"x": ' + b"9" * 5000 + b"}"),
        "garbage behind": lambda: file(json.dumps(head()).encode() + b"x"),
        "zeros behind": lambda: file(json.dumps(head()).encode() + b"\0"),
        "a second object": lambda: file(json.dumps(head()).encode() * 2),
        "cut": lambda: file(json.dumps(head()).encode()[:-1]),
        "a byte order mark": lambda: file(b"\xef\xbb\xbf" + json.dumps(head()).encode()),
        "a text that never ends": lambda: file(b'{"' + b'\\"' * 100_000),
    },
    errors.HeaderTooDeep: {
        "lists": lambda: file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "objects": lambda: file(b'{"a":' * 70 + b"1" + b"}" * 70),
        "behind closing brackets in a text": lambda: file(b'{"' + b"]" * 100_000 + b'":' + b"[" * 100_000),
        "behind a text that ends in a backslash": lambda: file(b'{"\\\\":' + b"[" * 70),
    },
    errors.DuplicateKey: {
        "entries": lambda: file(b'{"__metadata__":{"tideline.layout":"1"},"x":{},"x":{}}'),
        "inside an entry": lambda: file(b'{"x":{"dtype":"F32","dtype":"F32"}}'),
        "metadata": lambda: file(b'{"__metadata__":{"tideline.layout":"1"},"__metadata__":{}}'),
        "spelled otherwise": lambda: file(b'{"x":{},"\\u0078":{}}'),
    },
    errors.BadName: {
        name[:20] or "empty": lambda name=name: file(head(**{name: entry()}), EIGHT)  # type: ignore[misc]
        for name in (
            *("", "/", "a//b", "/a", "a/", "..", "a/../b", "./a", "a\\b", "a\0", "a\nb", "\ud800", "a\u202e", " \t"),
            *("long" + "x" * 509, "wide" + "é" * 255),
        )
    },
    errors.BadEntry: {
        "a list": lambda: file(head(x=[])),
        "null": lambda: file(head(x=None)),
        "no shape": lambda: file(head(x={"dtype": "F32", "data_offsets": [0, 8]}), EIGHT),
        "one key more": lambda: file(head(x=entry() | {"more": 1}), EIGHT),
    },
    errors.UnknownDtype: {
        "unknown": lambda: file(head(x=entry("F8_E4M3")), EIGHT),
        "small letters": lambda: file(head(x=entry("f32")), EIGHT),
        "no text": lambda: file(head(x=entry(["F32"])), EIGHT),
    },
    errors.BadShape: {
        "negative": lambda: file(head(x=entry(shape=[-2])), EIGHT),
        "a fraction": lambda: file(head(x=entry(shape=[2.0])), EIGHT),
        "a truth value": lambda: file(head(x=entry(shape=[2, True])), EIGHT),
        "no list": lambda: file(head(x=entry(shape=2)), EIGHT),
        "too many axes": lambda: file(head(x=entry(shape=[1] * 17)), EIGHT),
        "a product beyond 64 bits": lambda: file(head(x=entry(shape=[2**32, 2**32])), EIGHT),
        "an axis beyond 64 bits": lambda: file(head(x=entry(shape=[2**64])), EIGHT),
        "a product hidden by a zero": lambda: file(head(x=entry(shape=[0, 2**62, 2**62], offsets=[0, 0]))),
    },
    errors.BadOffsets: {
        "backwards": lambda: file(head(x=entry(offsets=[8, 0])), EIGHT),
        "negative": lambda: file(head(x=entry(offsets=[-8, 0])), EIGHT),
        "beyond 63 bits": lambda: file(head(x=entry(offsets=[2**63, 2**63 + 8])), EIGHT),
        "fractions": lambda: file(head(x=entry(offsets=[0.0, 8.0])), EIGHT),
        "three": lambda: file(head(x=entry(offsets=[0, 8, 8])), EIGHT),
        "no list": lambda: file(head(x=entry(offsets={"0": 8})), EIGHT),
    },
    errors.SizeMismatch: {
        "too small": lambda: file(head(x=entry(shape=[3])), EIGHT),
        "too large": lambda: file(head(x=entry(shape=[1])), EIGHT),
        "not empty": lambda: file(head(x=entry(shape=[0])), EIGHT),
    },
    errors.Misaligned: {
        "a buffer": lambda: file(head(a=entry("U8", [1], [0, 1]), x=entry(offsets=[1, 9])), EIGHT + b"\0"),
        "the data": lambda: (len(at := json.dumps(head()).encode() + b" " * 9)).to_bytes(8, "little") + at,
    },
    errors.Overlap: {
        "half": lambda: file(head(a=entry(), b=entry(offsets=[4, 12])), EIGHT * 2),
        "the same": lambda: file(head(a=entry(), b=entry()), EIGHT),
    },
    errors.Hole: {
        "between": lambda: file(head(a=entry(), b=entry(offsets=[16, 24])), EIGHT * 3),
        "in front": lambda: file(head(a=entry(offsets=[8, 16])), EIGHT * 2),
    },
    errors.DataTruncated: {
        "all": lambda: file(head(x=entry())),
        "one byte": lambda: file(head(x=entry()), EIGHT[:7]),
        "terabytes": lambda: file(head(x=entry("U8", [1 << 44], [0, 1 << 44])), EIGHT),
    },
    errors.TrailingBytes: {"behind": lambda: file(head(x=entry()), EIGHT + b"\0"), "no tensor": lambda: file(head(), b"hidden")},
    errors.TooManyTensors: {"one more": lambda: file(head(**{f"t{i}": 0 for i in range(layout.LIMITS.tensors + 1)}))},
    errors.BadMetadata: {
        "a list": lambda: file({layout.META: []}),
        "a number": lambda: file(head({"tideline.record": 7})),
        "an object": lambda: file(head({"tideline.record": {}})),
        "an unknown key": lambda: file(head({"note": "hello"})),
        "a key that is no text": lambda: file(head({"\ud800": "hello"})),
    },
    errors.UnknownLayout: {"no metadata": lambda: file({}), "the next": lambda: file({layout.META: {layout.VERSION: "2"}})},
}

X, Y = torch.zeros(2, 2), torch.zeros(2, 2)
TREE: dict[str, Any] = {"x": None, "y": None, "rate": 0.5, "count": 1, "w": {}}
Case = tuple[MemoryParts, Digest]


def square(x: torch.Tensor = X, y: torch.Tensor = Y, **changes: Any) -> Case:
    """A store with a Square whose structure was changed by hand."""
    return stored(root(TREE | changes, {"x": x, "y": y}))


def lacking(name: str) -> Case:
    """A Square whose structure lacks a field."""
    return stored(root({k: v for k, v in TREE.items() if k != name}, {n: t for n, t in (("x", X), ("y", Y)) if n != name}))


def named_part(part: Any, *files: bytes) -> Case:
    """A Square whose weights are one part, as the root names it."""
    return stored(root(TREE | {"w": {"a": part}}, {"x": X, "y": Y}), *files)


def lie(change: Callable[[list[Any]], Any], record: bool = False, name: str = PART_NAME) -> Case:
    """A Square whose root lies about its part."""
    made, _ = layout.build({name: ("F32", (2,))}, {layout.RECORD: "{}"} if record else {})
    digest = stored(made + EIGHT)[1]
    told: list[Any] = ["part", digest, "F32", [2], len(made) + 8]
    change(told)
    return named_part(told, made + EIGHT)


def put(at: int, value: Any) -> Callable[[list[Any]], None]:
    """A lie at one place of what a root says of a part."""
    return lambda told: told.__setitem__(at, value)


# Files that are whole and contradict the record's type, or each other.
RECORDS: dict[type[Malformed], dict[str, Callable[[], Case]]] = {
    errors.BadMetadata: {
        "no record": lambda: stored(file(head())),
        "a record that is no JSON": lambda: stored(file(head({layout.RECORD: "{"}))),
        "a record that is a list": lambda: stored(file(head({layout.RECORD: "[]"}))),
        "a record with a lone surrogate": lambda: stored(file(head({layout.RECORD: '"\ud800"'}))),
        "a number for a tensor": lambda: stored(root(TREE | {"x": 7}, {"y": Y})),
        "a list for a tensor": lambda: stored(root(TREE | {"x": ["part"]}, {"y": Y})),
    },
    errors.DuplicateKey: {
        "fields": lambda: stored(file(head({layout.RECORD: '{"x":null,"x":null}'}))),
        "weights": lambda: stored(file(head({layout.RECORD: '{"w":{"a":null,"a":null}}'}))),
    },
    errors.HeaderTooDeep: {"a record": lambda: stored(file(head({layout.RECORD: '{"x":' + "[" * 65 + "]" * 65 + "}"})))},
    errors.BadName: {
        "a slash": lambda: square(w={"a/b": None}),
        "two dots": lambda: square(w={"..": None}),
        "empty": lambda: square(w={"": None}),
        "a digest with dots": lambda: named_part(["part", "../../etc/passwd", "F32", [2], 8]),
        "a digest in capitals": lambda: named_part(["part", "A" * 64, "F32", [2], 8]),
        "a digest that is a number": lambda: named_part(["part", 7, "F32", [2], 8]),
    },
    errors.NotBoolean: {
        "two": lambda: stored(root({"on": None, "name": ""}, {"on": torch.zeros(2, dtype=torch.bool)})[:-1] + b"\x02")
    },
    errors.PartMissing: {"not sent": lambda: named_part(["part", NONE, "F32", [2], 8])},
    errors.PartMismatch: {
        "shape": lambda: lie(put(3, [1, 2])),
        "dtype": lambda: lie(put(2, "U8")),
        "size": lambda: lie(put(4, 8)),
        "size as a fraction": lambda: lie(lambda told: put(4, float(told[4]))(told)),
        "another name": lambda: lie(lambda told: None, name="other"),
        "a record of its own": lambda: lie(lambda told: None, record=True),
        "the root of another message": lambda: named_part(["part", stored(root({}))[1], "F32", [2], len(root({}))], root({})),
    },
    errors.BadShape: {"of a part": lambda: lie(put(3, [2.0])), "of a part, overflowing": lambda: lie(put(3, [2**40, 2**40]))},
    errors.UnknownDtype: {"of a part": lambda: lie(put(2, "C64"))},
    errors.Undeclared: {
        "a field": lambda: square(extra=1),
        "a tensor": lambda: stored(root(TREE, {"x": X, "y": Y, "z": X})),
        "a tensor beside": lambda: stored(root(TREE | {"w": {}}, {"x": X, "y": Y, "w/a": X})),
    },
    errors.Missing: {
        "a field": lambda: lacking("count"),
        "a tensor's field": lambda: lacking("x"),
        "a tensor": lambda: stored(root(TREE, {"y": Y})),
        "a weight": lambda: square(w={"a": None}),
    },
    errors.WrongType: {
        "truth value for int": lambda: square(count=True),
        "float for int": lambda: square(count=1.0),
        "null for int": lambda: square(count=None),
        "text for float": lambda: square(rate="0.5"),
        "truth value for float": lambda: square(rate=False),
        "list for weights": lambda: square(w=[]),
        "number for text": lambda: stored(root({"on": None, "name": 1}, {"on": X})),
        "lone surrogate": lambda: stored(root('{"on": null, "name": "\\ud800"}', {"on": X})),
    },
    errors.WrongDims: {
        "a dim with two sizes": lambda: square(x=torch.zeros(2, 3)),
        "a dim of another field": lambda: square(x=torch.zeros(3, 3)),
        "too few": lambda: square(x=torch.zeros(2)),
        "too many": lambda: square(x=torch.zeros(2, 2, 2)),
        "a number": lambda: square(y=torch.zeros(2, 3)),
        "before the dots": lambda: square(y=torch.zeros(2)),
    },
    errors.NotFinite: {
        "NaN": lambda: square(y=torch.full((2, 2), float("nan"))),
        "infinity": lambda: square(y=torch.full((2, 2), -float("inf"), dtype=torch.bfloat16)),
        "a number": lambda: stored(root(json.dumps(TREE).replace("0.5", "1e999"), {"x": X, "y": Y})),
        "a text": lambda: square(rate="nan"),
    },
    errors.OutOfRange: {"a count": lambda: square(count=-2)},
    errors.TooLarge: {
        "int": lambda: square(count=2**63),
        "negative int": lambda: square(count=-(2**63) - 1),
        "int for float": lambda: square(rate=10**400),
    },
}


def rows(table: dict[type[Malformed], dict[str, Callable[[], Any]]]) -> list[Any]:
    """A table as parameters with readable names."""
    return [pytest.param(kind, make, id=f"{kind.__name__}-{name}") for kind, ways in table.items() for name, make in ways.items()]


@pytest.mark.parametrize(("kind", "make"), rows(FILES))
def test_a_broken_file_is_named(kind: type[Malformed], make: Callable[[], bytes]) -> None:
    """The header's reader gives exactly the named error, and a decoder of any record gives the same."""
    hostile = make()
    with pytest.raises(Malformed) as seen:
        layout.parse(memoryview(hostile))
    assert type(seen.value) is kind
    parts, digest = stored(hostile)
    with pytest.raises(Malformed) as seen:
        decode(Square, digest, parts)
    assert type(seen.value) is kind and len(str(seen.value)) < 1000
    str(seen.value).encode()


@pytest.mark.parametrize(("kind", "make"), rows(RECORDS))
def test_a_record_against_its_type_is_named(kind: type[Malformed], make: Callable[[], Case]) -> None:
    """The decoder gives exactly the named error, with a message that can be sent on."""
    parts, digest = make()
    with pytest.raises(Malformed) as seen:
        decode(Flags if rb"{\"on\"" in bytes(parts.view(digest)) else Square, digest, parts)
    assert type(seen.value) is kind and len(str(seen.value)) < 1000
    str(seen.value).encode()


def test_wrong_bytes_under_a_name_are_refused() -> None:
    """An upload whose bytes have another digest is forgotten (DigestMismatch), and so is one of another size than announced."""
    parts = MemoryParts()
    digest = stored(b"right")[1]
    upload = parts.upload(digest, 5)
    upload.write(b"wrong")
    with pytest.raises(errors.DigestMismatch):
        upload.commit()
    with pytest.raises(errors.TooLarge):
        parts.upload(digest, 5).write(b"right!")
    upload = parts.upload(digest, 6)
    upload.write(b"right")
    with pytest.raises(errors.PartMismatch):
        upload.commit()
    assert not parts.has(digest)


def test_every_error_has_a_case() -> None:
    """A new error without hostile bytes of its own fails here."""
    # Above, in test_sealing, in test_damage, and in wire/test_hostile.
    elsewhere = {errors.DigestMismatch, errors.SealBroken, errors.PartDamaged, errors.BadPacking}
    tested = set(FILES) | set(RECORDS) | elsewhere
    groups = {errors.ArchiveBroken}
    made = {
        c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Malformed) and c.__module__ == errors.__name__
    }
    assert made - groups == tested


def test_the_table_starts_from_files_that_are_whole() -> None:
    """Without its lie, each hostile file decodes: the tables test what they say."""
    parts, digest = square()
    assert decode(Square, digest, parts).count == 1
    parts, digest = lie(lambda told: None)
    assert decode(Square, digest, parts).w["a"].shape == (2,)
    layout.parse(memoryview(file(head(x=entry()), EIGHT)))


WRONG: dict[str, tuple[type[Malformed], Callable[[], Any]]] = {
    "no record": (errors.WrongType, lambda: object()),
    "a list for a tensor": (errors.WrongType, lambda: Flags([1.0])),  # type: ignore[arg-type]
    "a number for a text": (errors.WrongType, lambda: Flags(X, 7)),  # type: ignore[arg-type]
    "a truth value for a number": (errors.WrongType, lambda: Square(X, Y, count=True)),
    "a float for a number": (errors.WrongType, lambda: Square(X, Y, count=1.0)),  # type: ignore[arg-type]
    "a huge number": (errors.TooLarge, lambda: Square(X, Y, count=2**63)),
    "a number below its bound": (errors.OutOfRange, lambda: Square(X, Y, count=-2)),
    "NaN": (errors.NotFinite, lambda: Square(X, Y, rate=float("nan"))),
    "NaN in a tensor": (errors.NotFinite, lambda: Square(X * float("nan"), Y)),
    "a list for weights": (errors.WrongType, lambda: Square(X, Y, w=[X])),  # type: ignore[arg-type]
    "a list among weights": (errors.WrongType, lambda: Square(X, Y, w={"a": [1.0]})),  # type: ignore[dict-item]
    "a number for a name": (errors.WrongType, lambda: Square(X, Y, w={1: X})),  # type: ignore[dict-item]
    "a slash in a name": (errors.BadName, lambda: Square(X, Y, w={"a/b": X})),
    "an empty name": (errors.BadName, lambda: Square(X, Y, w={"": X})),
    "a long name": (errors.BadName, lambda: Square(X, Y, w={"a" * 600: X})),
    "dims": (errors.WrongDims, lambda: Square(torch.zeros(2, 3), Y)),
    "complex numbers": (errors.UnknownDtype, lambda: Flags(torch.zeros(2, dtype=torch.complex64))),
    "eight-bit floats": (errors.UnknownDtype, lambda: Flags(torch.zeros(2, dtype=torch.float8_e4m3fn))),
    "a tensor without storage": (errors.WrongType, lambda: Flags(torch.empty(2, device="meta"))),
    "a sparse tensor": (errors.WrongType, lambda: Flags(torch.eye(2).to_sparse())),
    "a lone surrogate": (errors.WrongType, lambda: Flags(X, "\ud800")),
    "a byte that is no truth value": (errors.NotBoolean, lambda: Flags(torch.frombuffer(bytearray(b"\x02"), dtype=torch.bool))),
}


@pytest.mark.parametrize(("kind", "make"), WRONG.values(), ids=WRONG)
def test_what_could_not_be_read_is_not_written(kind: type[Malformed], make: Callable[[], Any]) -> None:
    """Encoding refuses by the same names as decoding, and leaves nothing behind."""
    parts = MemoryParts()
    with pytest.raises(Malformed) as seen:
        encode(make(), parts, RULES)
    assert type(seen.value) is kind and list(parts.digests()) == []


def test_sizes_of_the_world_hold() -> None:
    """A dim that the run pins is held to its size, in both directions."""
    parts, digest = square()
    with pytest.raises(errors.WrongDims):
        decode(Square, digest, parts, Rules({"n": 3}))
    with pytest.raises(errors.WrongDims):
        encode(Square(X, Y), MemoryParts(), Rules({"n": 3}))
    assert decode(Square, digest, parts, Rules({"n": 2, "other": 9})).x.shape == (2, 2)
