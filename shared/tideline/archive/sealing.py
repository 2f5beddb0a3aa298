"""Files sealed for other sites: what the coordinator relays and cannot read, and receivers hold to what its holder signed.

A sealed file is 16 random bytes and then, for each CHUNK of the plaintext, its encryption by XChaCha20-Poly1305: the nonce is
those bytes and the chunk's number; authenticated with it are what the file is (`About`) and whether the chunk is the last. So
a chunk that was changed, moved, left out or cut off does not open, nor does one of another value, exchange, holder or run.
The content key is sealed to each reader's X25519 key (libsodium's sealed box). For each reader the holder signs, by Ed25519,
`About`, the sealed file's digest and that reader's box (`Handed`): what is signed and yet does not open is its own fault, and
what is not signed is the fault of somebody on the way. Keys are raw bytes, 32 each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import overload

from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.signing import SigningKey, VerifyKey
from nacl.utils import random

from tideline.archive.digests import Buffer
from tideline.archive.errors import SealBroken

CHUNK = 1 << 20
PREFIX_BYTES, TAG_BYTES, KEY_BYTES = 16, 16, 32
SEALED_KEY_BYTES = 80  # of a content key in a sealed box
SIGNATURE_BYTES = 64
WORD = b"tideline sealed 1\n"


@dataclass(frozen=True)
class About:
    """What a sealed value is: whose, of which exchange in which run; its plaintext's digest and bytes."""

    run: str
    holder: str
    phase: str
    round: int
    digest: str
    size: int

    def signed(self, *more: object) -> bytes:
        return WORD + json.dumps([*astuple(self), *more], separators=(",", ":")).encode()


@dataclass(frozen=True)
class Handed:
    """What one reader is handed of a sealed value: the digest of its sealed file, and the content key in a box for it."""

    about: About
    cipher: str
    reader: str
    box: bytes

    @property
    def words(self) -> bytes:
        return self.about.signed(self.cipher, self.reader, hashlib.sha256(self.box).hexdigest())


def new_key() -> bytes:
    return random(KEY_BYTES)


def chunks_of(size: int) -> int:
    """Chunks of a plaintext; of an empty one there is one, which is empty."""
    return max(-(-size // CHUNK), 1)


def sealed_size(size: int) -> int:
    return PREFIX_BYTES + size + TAG_BYTES * chunks_of(size)


class Sealing(Sequence[bytes]):
    """The buffers of a sealed file, each made when it is looked at and every time the same: a file is never in memory whole."""

    def __init__(self, plain: memoryview, key: bytes, about: About) -> None:
        self._plain, self._key, self._about = plain, key, about
        self._prefix, self._chunks = random(PREFIX_BYTES), chunks_of(len(plain))

    def __len__(self) -> int:
        return 1 + self._chunks

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._prefix if at == 0 else self._chunk(at - 1)

    def _chunk(self, i: int) -> bytes:
        plain = bytes(self._plain[i * CHUNK : (i + 1) * CHUNK])
        where = place_of(self._about, self._prefix, i, self._chunks)
        return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plain, *where, self._key)


def opened(sealed: memoryview, key: bytes, about: About) -> Iterator[Buffer]:
    """The plaintext of a sealed file, a chunk at a time. Raises SealBroken, by its holder's fault: the digest is signed."""
    if len(sealed) != sealed_size(about.size):
        raise by_holder(about, f"its file has {len(sealed)} bytes, and {sealed_size(about.size)} were to be sealed")
    prefix, count = bytes(sealed[:PREFIX_BYTES]), chunks_of(about.size)
    for i in range(count):
        at = PREFIX_BYTES + i * (CHUNK + TAG_BYTES)
        chunk = bytes(sealed[at : at + CHUNK + TAG_BYTES])
        try:
            yield bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(chunk, *place_of(about, prefix, i, count), key)
        except CryptoError:
            raise by_holder(about, "its key does not open its file") from None


def place_of(about: About, prefix: bytes, i: int, count: int) -> tuple[bytes, bytes]:
    """What a chunk is authenticated with, what the file is and whether the chunk is its last; and the chunk's nonce."""
    return about.signed(i + 1 == count), prefix + i.to_bytes(8, "little")


def seal_key(key: bytes, receive_key: bytes) -> bytes:
    """A content key for the holder of a private X25519 key alone. Raises ValueError for no key, or one of low order."""
    return box(key, receive_key)


def box(message: bytes, receive_key: bytes) -> bytes:
    """A short message for the holder of a private X25519 key alone. Raises ValueError for no key, or one of low order."""
    try:
        return bytes(SealedBox(PublicKey(receive_key)).encrypt(message))
    except CryptoError as cause:
        raise ValueError(f"the key to receive is none: {cause}") from None


def receives(receive_key: bytes) -> bool:
    """Whether something can be sealed to a public X25519 key: it is of 32 bytes, and not of low order."""
    try:
        return bool(seal_key(bytes(KEY_BYTES), receive_key))
    except ValueError:
        return False


def open_key(sealed: bytes, receive_key: bytes) -> bytes | None:
    """The content key in a sealed box; None where it was not sealed to this private key."""
    key = unboxed(sealed, receive_key)
    return key if key is not None and len(key) == KEY_BYTES else None


def unboxed(sealed: bytes, receive_key: bytes) -> bytes | None:
    """The message in a sealed box; None where it was not sealed to this private key."""
    try:
        return bytes(SealedBox(PrivateKey(receive_key)).decrypt(sealed))
    except (CryptoError, TypeError, ValueError):
        return None


def sign(handed: Handed, sign_key: bytes) -> bytes:
    return SigningKey(sign_key).sign(handed.words).signature


def sign_words(words: bytes, sign_key: bytes) -> bytes:
    return SigningKey(sign_key).sign(words).signature


def signed_by(handed: Handed, signature: bytes, sign_keys: Iterable[bytes]) -> bool:
    """Whether the holder of one of these public keys signed what a reader is handed."""
    return any(signed(handed.words, signature, key) for key in sign_keys)


def on_the_way(about: About, why: str) -> SealBroken:
    """The error for a sealed value that is not as its holder signed it."""
    what = f"The value {about.digest[:12]} that {about.holder} sealed {place(about)} cannot be trusted: {why}"
    todo = "Somebody on the way changed, swapped or kept back what was sent: look at the coordinator and its store of parts"
    return broken(about, what, todo)


def by_holder(about: About, why: str) -> SealBroken:
    """The error for a sealed value that is as its holder signed it, and of no use."""
    what = f"{about.holder} sealed the value {about.digest[:12]} {place(about)} badly: {why}"
    todo = f"Ask {about.holder}'s owner: its agent is of another version, or broken, or not to be trusted"
    return broken(about, what, todo)


def place(about: About) -> str:
    return f"in round {about.round} of {about.phase}"


def broken(about: About, what: str, todo: str) -> SealBroken:
    return SealBroken(what, todo, digest=about.digest, holder=about.holder)


def new_keys() -> tuple[bytes, bytes]:
    return bytes(SigningKey.generate()), bytes(PrivateKey.generate())


def public_keys(sign_key: bytes, receive_key: bytes) -> tuple[bytes, bytes]:
    return bytes(SigningKey(sign_key).verify_key), bytes(PrivateKey(receive_key).public_key)


def signed(message: bytes, signature: bytes, sign_key: bytes) -> bool:
    try:
        VerifyKey(sign_key).verify(message, signature)
    except (BadSignatureError, CryptoError, TypeError, ValueError):
        return False
    return True
