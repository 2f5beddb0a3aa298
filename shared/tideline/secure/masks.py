"""Masks: the numbers of a seed, as AES-256 in counter mode makes them, under a key that HKDF derives for one use.

A use is a text that names everything a mask must not be shared by: the run, the place in its plan, the digest of the order, the
keys of all sites. The same seed has other numbers for another use, so there is never a second message under one mask.
Numbers are the key stream's words of 32 or 64 bits, the least significant byte first.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tideline.secure.fixed_point import Words

SEED = 32  # bytes of a seed, and of a key
CHUNK = 1 << 20  # bytes of numbers at once
ZEROS = bytes(CHUNK)
WORD = b"tideline secure mask 1\n"
Part = str | int


def key_of(seed: bytes, *use: Part) -> bytes:
    """The key of a seed for one use."""
    if len(seed) != SEED:
        raise ValueError(f"A seed has {len(seed)} bytes; give {SEED}")
    info = WORD + json.dumps(use, separators=(",", ":")).encode()
    return HKDF(algorithm=SHA256(), length=SEED, salt=None, info=info).derive(seed)


def add(values: Words, key: bytes) -> None:
    """Add a key's numbers to values, where they lie."""
    masked(values, key, np.add)


def subtract(values: Words, key: bytes) -> None:
    """Take a key's numbers from values, where they lie: the inverse of `add`."""
    masked(values, key, np.subtract)


def masked(values: Words, key: bytes, by: np.ufunc) -> None:
    cipher, item = encryptor(key), values.dtype.itemsize
    buffer = bytearray(CHUNK + 15)  # the most that a cipher of blocks of 16 bytes may write
    numbers = np.frombuffer(buffer, values.dtype.newbyteorder("<"), CHUNK // item)
    for at in range(0, values.size, CHUNK // item):
        part = values[at : at + CHUNK // item]
        cipher.update_into(memoryview(ZEROS)[: part.nbytes], buffer)
        by(part, numbers[: part.size], out=part)


def drawing(key: bytes) -> Callable[[int], bytes]:
    """What gives the next n bytes of a key's stream, each time that it is asked."""
    cipher = encryptor(key)
    return lambda n: cipher.update(bytes(n))


def encryptor(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
