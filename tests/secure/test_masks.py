"""Masks: fixed by their seed and use, different for any other, and not to be guessed."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.budgets import examples
from tideline.secure import masks
from tideline.secure.fixed_point import Words, finest
from tideline.secure.masks import CHUNK, drawing, key_of

SEED = bytes(range(32))
USES = st.lists(st.one_of(st.text(max_size=3), st.integers(-300, 300)), max_size=4)


def numbers(key: bytes, n: int, dtype: type[np.unsignedinteger] = np.uint32) -> Words:
    """A key's numbers."""
    values = np.zeros(n, dtype)
    masks.add(values, key)
    return values


def test_golden() -> None:
    """What two sites agree on they agree on across machines and versions."""
    key = key_of(SEED, "run", "train", 3)
    assert key.hex() == "a8425a0dc00ee66af85966faee4c0d500c0479d8c2250d27aef0b6fce0e5be7c"
    assert numbers(key, 4).tolist() == [0x8585C8CD, 0x7BFF27E3, 0xE7B5EBBB, 0x355C6D15]
    assert numbers(key, 2, np.uint64).tolist() == [0x7BFF27E38585C8CD, 0x355C6D15E7B5EBBB]


def test_by_the_books() -> None:
    """HKDF-SHA256 and AES-256-CTR of zeros, put together once more."""
    info = b"tideline secure mask 1\n" + json.dumps(["a", 1], separators=(",", ":")).encode()
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(SEED)
    n = CHUNK // 2 + 3  # two chunks and a rest, of 32 bits
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * n))
    assert key == key_of(SEED, "a", 1) and numbers(key, n).tobytes() == stream
    assert numbers(key, n // 2, np.uint64).tobytes() == stream[: n // 2 * 8]
    draw = drawing(key)
    assert draw(5) + draw(0) + draw(20) == stream[:25]


@settings(max_examples=examples(100))
@given(st.integers(0, 2000), st.binary(min_size=32, max_size=32), st.sampled_from([np.uint32, np.uint64]), st.integers(0, 2**32))
def test_what_is_added_is_taken_away(n: int, key: bytes, dtype: type[np.unsignedinteger], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, n, dtype, endpoint=True)
    before = values.copy()
    masks.add(values, key)
    assert n < 4 or (values != before).any()
    masks.subtract(values, key)
    assert (values == before).all()


@settings(max_examples=examples(200))
@given(USES, USES)
def test_two_uses_share_no_key(a: list[str | int], b: list[str | int]) -> None:
    alike = [(type(part), part) for part in a] == [(type(part), part) for part in b]
    assert (key_of(SEED, *a) == key_of(SEED, *b)) is alike and key_of(SEED, *a) != key_of(bytes(32), *a)


def test_seeds_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="A seed has 4 bytes; give 32"):
        key_of(b"seed")


def test_no_second_copy_is_made() -> None:
    """Of 40 MB of values, while a mask is added: buffers of two chunks."""
    values = np.zeros(10_000_000, np.uint32)
    tracemalloc.start()
    masks.add(values, SEED)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * CHUNK


def toy(seeds: NDArray[np.uint32], n: int) -> NDArray[np.uint32]:
    """A generator that begins with 32 bits (splitmix32), as those of simulations do: n numbers of each seed."""
    with np.errstate(over="ignore"):
        z = seeds[:, None] + np.uint32(0x9E3779B9) * np.arange(1, n + 1, dtype=np.uint32)
        z = (z ^ (z >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        z = (z ^ (z >> np.uint32(15))) * np.uint32(0x735A2D97)
        made: NDArray[np.uint32] = z ^ (z >> np.uint32(15))
    return made


def test_a_seed_of_32_bits_is_found_and_ours_is_not() -> None:
    """Who sees masked values tries all seeds and takes the one under which all values lie within the clip.

    Here 2^20 of the 2^32 seeds are tried, so that it takes a second; all of them take an hour. Four values suffice. Against our
    masks the same search finds nothing, nor does one that tries keys of 20 bits in our own stream, of which 2^10 are tried.
    """
    grid, n = finest(1.0, 1000), 4
    hidden = grid.encode(np.array([0.25, -0.5, 0.125, 0.75])).values
    seeds = np.arange(1 << 20, dtype=np.uint32)

    def plausible(masked: Words, of: NDArray[np.uint32]) -> list[int]:
        """Which of these masks leave values that a site may have sent."""
        left = np.abs((masked - of).view(np.int32).astype(np.int64))
        return [int(at) for at in np.flatnonzero((left <= grid.most).all(axis=1))]

    secret = 777_777
    masked = hidden + toy(seeds[secret : secret + 1], n)[0]
    assert plausible(masked, toy(seeds, n)) == [secret]
    assert (masked - toy(seeds[secret : secret + 1], n)[0]).tolist() == hidden.tolist(), "and with it the values"

    ours = hidden.copy()
    masks.add(ours, key_of(SEED, "run"))
    assert plausible(ours, toy(seeds, n)) == []
    short = np.stack([numbers(key_of(at.to_bytes(32, "big"), "run"), n) for at in range(1 << 10)])
    assert plausible(ours, short) == []
