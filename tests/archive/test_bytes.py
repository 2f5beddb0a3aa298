"""Values survive the archive bit for bit, and a value has one encoding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from tests.archive.values import Chain, Everything, Flags, Point, Sealed, bytes_of, equal, everything
from tests.budgets import examples
from tideline.archive import errors, layout
from tideline.archive.checks import DTYPES, LAX, RULES
from tideline.archive.digests import digest_of
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, Parts
from tideline.archive.reader import decode, files_of
from tideline.archive.writer import PART_BYTES, encode
from tideline.core.errors import Malformed
from tideline.core.handle import Handle
from tideline.core.record import Weights, record
from tideline.core.run import ClientId, Digest
from tideline_server.parts import open_parts

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="module", params=["memory", "folder", "bucket"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """Every kind of store."""
    if request.param != "bucket":
        yield MemoryParts() if request.param == "memory" else FolderParts(tmp_path_factory.mktemp("parts"), durable=False)
        return
    server = request.getfixturevalue("store_of_objects")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield open_parts(f"s3://{server.bucket()}", tmp_path_factory.mktemp("home"), cache=1.0)


@settings(max_examples=examples(120))
@given(everything)
def test_any_record_comes_back(parts: Parts, value: Everything) -> None:
    """Whatever a record holds, NaN and empty tensors too, is read as it was written, and written again as the same bytes."""
    message = encode(value, parts, LAX)
    back = decode(Everything, message.digest, parts, LAX)
    assert equal(value, back) and encode(back, parts, LAX) == message
    assert files_of(message.digest, parts) == message.files
    assert message.size == sum(parts.size(d) for d, _ in message.files)


@record
class Wide:
    """Tensors large enough for parts of their own, beside ones that are not."""

    a: Tensor
    w: Weights
    t: tuple[Tensor | None, ...]


def wide(seed: int = 0) -> Wide:
    """A record of four parts, two of them equal, and one small tensor."""
    noise = torch.Generator().manual_seed(seed)
    big = torch.randn(PART_BYTES // 4, generator=noise)
    weights = {"z": torch.zeros(PART_BYTES, dtype=torch.uint8), "y": big.clone(), "small": torch.ones(3)}
    return Wide(big, weights, (None, big.double().view(2, -1).T, torch.zeros(PART_BYTES - 1, dtype=torch.bool)))


def test_large_tensors_are_parts_of_their_own(parts: Parts) -> None:
    """From PART_BYTES on a tensor is a file of its own; equal tensors are one file; a message lists all in the root's order."""
    message = encode(wide(), parts)
    assert equal(decode(Wide, message.digest, parts), wide()) and len(message.files) == 1 + 3
    assert files_of(message.digest, parts) == message.files
    assert [n for _, n in message.files] == [parts.size(d) for d, _ in message.files]
    assert message.files[0][0] == message.digest


@record
class Words:
    """Texts that look like what the archive writes itself."""

    texts: tuple[str, ...]
    rate: float = 0.0


@pytest.mark.parametrize(
    "texts", [("part", "a", "b", "c", "d"), ("part", "b3-" + "0" * 64, "F32", "[]", "1"), ("[" * 100,), ("]" * 100,)]
)
def test_texts_are_only_texts(texts: tuple[str, ...]) -> None:
    """A tuple of texts that spells a part names none, and brackets inside texts are no nesting."""
    parts = MemoryParts()
    message = encode(Words(texts), parts)
    assert decode(Words, message.digest, parts).texts == texts
    assert files_of(message.digest, parts) == message.files == ((message.digest, parts.size(message.digest)),)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 1.7976931348623157e308])
def test_numbers_at_the_edge_come_back(rate: float) -> None:
    """Memory may hold a NaN or an infinity; a message may not."""
    parts = MemoryParts()
    message = encode(Words((), rate), parts, LAX)
    assert equal(decode(Words, message.digest, parts, LAX).rate, rate)
    if rate - rate != 0:
        with pytest.raises(errors.NotFinite):
            decode(Words, message.digest, parts, RULES)


def test_nothing_is_written_that_cannot_be_read() -> None:
    """A value nested beyond the limit is refused on writing, by the name that reading would give."""
    value = Chain(None)
    for _ in range(20):
        value = Chain(value)
    parts = MemoryParts()
    assert equal(decode(Chain, encode(value, parts).digest, parts), value)
    for _ in range(20):
        value = Chain(value)
    with pytest.raises(errors.HeaderTooDeep):
        encode(value, parts)
    with pytest.raises(errors.TooManyTensors):
        layout.build({"a": ("U8", ()), "b": ("U8", ())}, {}, layout.Limits(tensors=1))
    with pytest.raises(errors.HeaderTooLarge):
        layout.build({}, {layout.RECORD: "x" * 100}, layout.Limits(header_bytes=100))


def test_tensors_that_autograd_watches_are_kept() -> None:
    """Parameters, results of inference mode and tensors on their way through a graph are written like others."""
    with torch.inference_mode():
        frozen = torch.ones(PART_BYTES // 4)
    leaf = torch.nn.Parameter(torch.ones(3))
    for tensor in (frozen, leaf, leaf * 2):
        parts = MemoryParts()
        assert bytes_of(decode(Flags, encode(Flags(tensor), parts).digest, parts).on) == bytes_of(tensor.detach())


# Golden files. Their bytes are a promise: runs that were begun with an older version go on with a newer one.
FLOATS = ("F64", "F32", "F16", "BF16")
WHOLE = ("I64", "U8", "BOOL")


@record
class Dtypes:
    """Tensors by name."""

    w: Weights


def of(dtypes: tuple[str, ...]) -> Dtypes:
    """For each dtype a matrix, a scalar and an empty tensor."""
    made = {}
    for name in dtypes:
        made[f"{name}.matrix"] = (torch.arange(6).view(2, 3) % (2 if name == "BOOL" else 7)).to(DTYPES[name])
        made[f"{name}.scalar"] = torch.tensor(1, dtype=DTYPES[name])
        made[f"{name}.empty"] = torch.zeros(0, 4, dtype=DTYPES[name])
    return Dtypes(made)


def one_of_each() -> Everything:
    """A fixed record with a value of every kind."""
    x = torch.arange(3, dtype=torch.float32) / 2
    point, other = Point(x, 2**63 - 1), Point(x.view(3, 1), -(2**63))
    return Everything(
        tensor=x,
        weights={"b": x.double(), "a": torch.tensor([True, False])},
        count=-7,
        rate=0.1,
        name='größer "als" \\ [null]',
        flag=True,
        maybe=None,
        point=point,
        points=(point, other),
        table={"zwei": other, "eins": point},
        deep={"k": (None, x)},
        texts=("part", ""),
        twice=(None, (1, 2)),
        handle=Handle("b3-" + "0" * 64, 12, ClientId("north"), "train", 3, kind=Sealed),
    )


GOLDENS: dict[str, tuple[Any, str]] = {
    "floats": (of(FLOATS), "b3-ea611f1dbdd73e709e67b55a2f0ed7c7daf28da5ffa5644b227f36a1b3237a64"),
    "whole": (of(WHOLE), "b3-9e924a617af8bb9d9650483acefb9d29f6e17b20529622cca7b739f2578e0fac"),
    "everything": (one_of_each(), "b3-13502a0ee3638c6b36326c4366217c3539004fa94e143569773d99d7adb4cff3"),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_bytes(name: str) -> None:
    """A fixed record gives exactly the committed file, and the committed file gives the record."""
    value, digest = GOLDENS[name]
    golden = (GOLDEN / f"archive_{name}.safetensors").read_bytes()
    parts = MemoryParts()
    message = encode(value, parts)
    assert bytes(parts.view(message.digest)) == golden and message.digest == digest == digest_of([golden])
    assert equal(decode(type(value), message.digest, parts), value)


def test_golden_parts() -> None:
    """A fixed record with a part has fixed digests for the root and the part."""
    message = encode(Flags(torch.arange(PART_BYTES // 8), "large"), MemoryParts())
    assert message.files == (
        ("b3-b9969e6ba741ec98af5d6c8eaad8fd2c6057f2182dd86b94c622ca8bbcb382fa", 256),
        ("b3-67229f37746d3f235fe7168d93e2dc0e47a928589b410e059875fbd788c916a4", PART_BYTES + 128),
    )


@pytest.mark.parametrize(("name", "dtypes"), [("floats", FLOATS), ("whole", WHOLE)])
def test_public_tools_open_our_files(name: str, dtypes: tuple[str, ...]) -> None:
    """The safetensors package reads the same tensors from the committed files."""
    with safe_open(GOLDEN / f"archive_{name}.safetensors", framework="pt") as file:
        found = {key.removeprefix("w/"): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
        assert file.metadata()[layout.VERSION] == layout.LAYOUT
    assert equal(found, of(dtypes).w)


def fixed() -> bytes:
    """The golden file that holds a value of every kind."""
    return (GOLDEN / "archive_everything.safetensors").read_bytes()


def read(data: bytes) -> Everything | None:
    """The record of a file, or None where it is malformed; nothing else may come out."""
    parts = MemoryParts()
    try:
        return decode(Everything, parts.put([data]), parts, LAX)
    except Malformed:
        return None


def refuses(data: bytes, digest: str) -> bool:
    """Whether an upload of these bytes under this name is turned away."""
    upload = MemoryParts().upload(Digest(digest), len(data))
    upload.write(data)
    try:
        upload.commit()
    except errors.DigestMismatch:
        return True
    return False


def test_no_flipped_bit_crashes_the_reader() -> None:
    """Each single flipped bit gives a Malformed error or another record, and never passes as an upload of the file."""
    data, digest, value = fixed(), digest_of([fixed()]), one_of_each()
    survived = 0
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            back = read(bytes(flipped))
            # What still reads is another record; only another spelling of a letter says the same.
            survived += back is not None and equal(back, value)
        assert refuses(bytes(flipped), digest)
    assert survived < 8


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6))
def test_no_damage_crashes_the_reader(damage: list[tuple[int, bytes]]) -> None:
    """Any bytes overwritten, anywhere: a Malformed error or a record."""
    data = bytearray(fixed())
    for place, noise in damage:
        at = place % len(data)
        data[at : at + len(noise)] = noise
    read(bytes(data))


def test_no_cut_file_is_read() -> None:
    """Every truncation is Malformed."""
    data = fixed()
    assert read(data) is not None and all(read(data[:n]) is None for n in range(len(data)))
