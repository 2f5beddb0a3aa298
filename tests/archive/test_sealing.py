"""Sealed files: they open for their readers alone, as they were sealed, and in no other way."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.low_order import LOW_ORDER
from tideline.archive import sealing
from tideline.archive.digests import digest_of
from tideline.archive.errors import SealBroken
from tideline.archive.parts import MemoryParts
from tideline.archive.sealing import CHUNK, KEY_BYTES, PREFIX_BYTES, TAG_BYTES, About, Handed, Sealing, opened, sealed_size

SIZES = (0, 1, 63, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7)


def about(plain: bytes = b"x" * 10) -> About:
    """What a value is."""
    return About("run", "anna", "train", 3, digest_of([plain]), len(plain))


def sealed(plain: bytes, key: bytes) -> bytes:
    """A sealed file."""
    return b"".join(Sealing(memoryview(plain), key, about(plain)))


def unsealed(data: bytes, key: bytes, what: About) -> bytes:
    """Its plaintext."""
    return b"".join(map(bytes, opened(memoryview(data), key, what)))


@pytest.mark.parametrize("size", SIZES)
def test_a_file_comes_back(size: int) -> None:
    """Also an empty one, and one whose last chunk is full; its size is known beforehand."""
    plain, key = bytes(range(256)) * (size // 256 + 1), sealing.new_key()
    plain = plain[:size]
    data = sealed(plain, key)
    assert len(data) == sealed_size(size) and unsealed(data, key, about(plain)) == plain
    assert size < 63 or plain[:63] not in data


def test_a_file_is_the_same_each_time_it_is_looked_at() -> None:
    """It is hashed first and written then, and never whole in memory."""
    plain = bytes(3 * CHUNK)
    file = Sealing(memoryview(plain), sealing.new_key(), about(plain))
    assert [bytes(each) for each in file] == file[:]
    parts = MemoryParts()
    assert bytes(parts.view(parts.put(file))) == b"".join(file)
    with pytest.raises(IndexError):
        file[len(file)]
    assert b"".join(Sealing(memoryview(plain), sealing.new_key(), about(plain))) != b"".join(file)


@given(st.binary(min_size=1, max_size=90), st.integers(0, 10**6), st.integers(0, 7))
def test_no_flipped_bit_opens(plain: bytes, at: int, bit: int) -> None:
    """Wherever it is."""
    key = sealing.new_key()
    data = bytearray(sealed(plain, key))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(SealBroken, match="its key does not open its file"):
        unsealed(bytes(data), key, about(plain))


def test_chunks_stay_where_they_are() -> None:
    """Swapped, left out, repeated or cut off at a chunk's end, a file does not open."""
    plain, key = bytes(3 * CHUNK), sealing.new_key()
    data, step = sealed(plain, key), CHUNK + TAG_BYTES
    prefix, chunks = data[:PREFIX_BYTES], [data[PREFIX_BYTES + i * step :][:step] for i in range(3)]
    for order in ((1, 0, 2), (0, 0, 2), (0, 2, 1)):
        with pytest.raises(SealBroken):
            unsealed(prefix + b"".join(chunks[i] for i in order), key, about(plain))
    for short in (data[:-1], data[: PREFIX_BYTES + 2 * step], prefix, b"", data + b"\0"):
        with pytest.raises(SealBroken, match=r"its file has \d+ bytes"):
            unsealed(short, key, about(plain))
    cut = dataclasses.replace(about(plain), size=2 * CHUNK)
    with pytest.raises(SealBroken):  # also where the size that is told fits the cut
        unsealed(prefix + b"".join(chunks[:2]), key, cut)


OTHERS = {"run": "other", "holder": "bert", "phase": "warm", "round": 4, "digest": "b3-" + "0" * 64}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_is_what_it_was_sealed_as(name: str) -> None:
    """Of another run, holder, exchange or value, it does not open: nothing can be replayed."""
    plain, key = b"x" * 10, sealing.new_key()
    data, other = sealed(plain, key), dataclasses.replace(about(plain), **{name: OTHERS[name]})
    with pytest.raises(SealBroken):
        unsealed(data, key, other)


def test_a_key_opens_at_its_reader_alone() -> None:
    """Anybody else gets nothing, and so does who has another sealed box."""
    _, anna = sealing.new_keys()
    sign, bert = sealing.new_keys()
    key, public = sealing.new_key(), sealing.public_keys(sign, bert)[1]
    box = sealing.seal_key(key, public)
    assert len(box) == sealing.SEALED_KEY_BYTES and sealing.open_key(box, bert) == key
    assert sealing.open_key(box, anna) is None and sealing.open_key(b"", bert) is None
    assert sealing.open_key(sealing.seal_key(key[:-1], public), bert) is None
    assert box != sealing.seal_key(key, public)
    with pytest.raises(ValueError, match="none"):
        sealing.seal_key(key, b"short")
    assert len(key) == KEY_BYTES


@pytest.mark.parametrize("receive", LOW_ORDER)
def test_a_key_of_low_order_receives_nothing(receive: str) -> None:
    """Its secret is the same for everybody."""
    assert not sealing.receives(bytes.fromhex(receive))
    with pytest.raises(ValueError, match="the key to receive is none"):
        sealing.seal_key(sealing.new_key(), bytes.fromhex(receive))
    assert not sealing.receives(b"short") and sealing.receives(sealing.public_keys(*sealing.new_keys())[1])


def test_a_signature_is_its_holders_and_of_what_a_reader_is_handed() -> None:
    """By another, for another file, box, reader or value, or not at all, it is none."""
    keys = sealing.new_keys()
    public, other = sealing.public_keys(*keys)[0], sealing.public_keys(*sealing.new_keys())[0]
    mine = Handed(about(), "c" * 64, "bert", b"box" * 20)
    signature = sealing.sign(mine, keys[0])
    assert len(signature) == sealing.SIGNATURE_BYTES and sealing.signed_by(mine, signature, [other, public])
    for what in (
        dataclasses.replace(mine, about=about(b"y")),
        dataclasses.replace(mine, cipher="b3-" + "d" * 64),
        dataclasses.replace(mine, reader="carl"),
        dataclasses.replace(mine, box=b""),
    ):
        assert not sealing.signed_by(what, signature, [public])
    for wrong, key in ((signature[::-1], public), (b"", public), (signature, other), (signature, b"")):
        assert not sealing.signed_by(mine, wrong, [key])
    assert not sealing.signed_by(mine, signature, [])


def test_a_fault_is_told_where_it_lies() -> None:
    """At the holder, who signed what cannot be opened; or on the way, where what came is not what was signed."""
    holder, way = sealing.by_holder(about(), "why"), sealing.on_the_way(about(), "why")
    assert str(holder).startswith("anna sealed the value") and "Ask anna's owner" in holder.todo
    assert "cannot be trusted: why" in way.what and "look at the coordinator" in way.todo
    assert holder.context == way.context == {"digest": about().digest, "holder": "anna"}
