"""Tensors of a safetensors file of another program's: read without its package, by our rules, or refused by name."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from tideline.archive import errors, layout
from tideline.archive.reader import KNOWN, tensors_in
from tideline.core.errors import Malformed

NETWORK = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.zeros(2), "steps": torch.tensor(7), "none": torch.ones(0, 4)}


def read(content: bytes) -> dict[str, torch.Tensor]:
    """What a file holds."""
    return tensors_in(memoryview(bytearray(content)))


def made(head: dict[str, object], data: bytes = b"", pad: int = 8) -> bytes:
    """A file of a header, whose buffers begin at a multiple of `pad`."""
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text)) % pad)
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: tuple[int, ...] = (1,), begin: int = 0, end: int = 4) -> dict[str, object]:
    """One entry of a header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize("meta", [None, {"format": "pt"}, {"any": "thing", "tideline.layout": "99"}])
def test_what_the_package_writes_is_read(meta: dict[str, str] | None) -> None:
    """Bit for bit, with metadata of any kind."""
    found = read(save(NETWORK, meta))
    assert found.keys() == NETWORK.keys()
    assert all(torch.equal(found[n], t) and found[n].dtype == t.dtype and found[n].shape == t.shape for n, t in NETWORK.items())


@pytest.mark.parametrize("dtype", sorted(KNOWN))
def test_every_dtype_is_read(dtype: str) -> None:
    """Those of our own files, and whole numbers of other widths."""
    tensor = torch.tensor([1, 0, 1]).to(KNOWN[dtype])
    assert torch.equal(read(save({"w": tensor}))["w"], tensor)


def test_our_own_files_are_read() -> None:
    """A file that this project writes is one, too."""
    head, _ = layout.build({"w": ("F32", (2,))}, {})
    assert torch.equal(read(head + torch.ones(2).numpy().tobytes())["w"], torch.ones(2))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", errors.TooShort),
        ((1 << 60).to_bytes(8, "little"), errors.HeaderTooLarge),
        (made({"w": entry()})[:20], errors.HeaderTruncated),
        ((9).to_bytes(8, "little") + b'{"w": 1} ', errors.Misaligned),
        (made({"w": entry("F8")}, b"1234"), errors.UnknownDtype),
        (made({"w": entry(end=8)}, b"12345678"), errors.SizeMismatch),
        (made({"w": entry()}, b"123"), errors.DataTruncated),
        (made({"w": entry()}, b"12345"), errors.TrailingBytes),
        (made({"w": entry(), "v": entry()}, b"1234"), errors.Overlap),
        (made({"w": entry(begin=4, end=8)}, b"12345678"), errors.Hole),
        (made({"../w": entry()}, b"1234"), errors.BadName),
        (made({"w": entry("U8", (1,), 0, 1), "v": entry("F32", (1,), 1, 5)}, b"12345"), errors.Misaligned),
        (b"\x80\x02" + b"c" * 100, errors.HeaderTooLarge),
    ],
)
def test_what_is_no_such_file_is_refused_by_name(content: bytes, kind: type[Malformed]) -> None:
    """Cut, overlong, overlapping, unknown, hostile: each before a tensor is made. The last is what pickles begin with."""
    with pytest.raises(kind):
        read(content)


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_bit_that_is_another_is_met_by_name(at: int, bit: int) -> None:
    """A damaged file is refused, or read as what then stands there; nothing else is raised."""
    content = bytearray(save(NETWORK))
    content[at % len(content)] ^= 1 << bit
    with suppress(Malformed):
        read(bytes(content))
