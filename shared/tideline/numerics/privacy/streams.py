"""Random numbers for privacy: AES-256 in counter mode under a key that is derived of a secret and a place.

Generators of simulations can be predicted from what they gave. This stream cannot, as long as its key stays secret.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY = 32
USE = b"tideline-stream1"
Part = str | int | bytes


class Stream:
    """The numbers that belong to a key of 32 bytes and a place. Two draws go on where the first one ended."""

    def __init__(self, key: bytes, *place: Part) -> None:
        if len(key) != KEY:
            raise ValueError(f"A stream's key has {len(key)} bytes; give {KEY}")
        self._key, self.place = key, place
        derived = blake2b(encoded(place), key=key, person=USE, digest_size=KEY).digest()
        self._cipher = Cipher(algorithms.AES256(derived), modes.CTR(bytes(16))).encryptor()

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next n words of 64 bits."""
        return np.frombuffer(self._cipher.update(bytes(8 * n)), dtype="<u8").astype(np.uint64, copy=False)

    def uniforms(self, n: int) -> NDArray[np.float64]:
        """The next n multiples of 2^-53 in [0, 1)."""
        return (self.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def child(self, *place: Part) -> Stream:
        """The stream of a place inside this one, from its beginning: Stream(key, a).child(b) is Stream(key, a, b)."""
        return Stream(self._key, *self.place, *place)


def encoded(place: tuple[Part, ...]) -> bytes:
    """Each part with its type and its length before it, so that no two places are written alike."""
    return b"".join(_encoded(part) for part in place)


def _encoded(part: Part) -> bytes:
    if isinstance(part, bool) or not isinstance(part, str | int | bytes):
        raise TypeError(f"A stream's place has {part!r}; give texts, whole numbers or bytes")
    kind = b"b" if isinstance(part, bytes) else b"s" if isinstance(part, str) else b"i"
    body = part if isinstance(part, bytes) else str(part).encode()
    return kind + len(body).to_bytes(8, "big") + body
