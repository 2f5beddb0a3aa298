"""An agent's keys: one to sign with, one to be written to. The private halves never leave the agent's home."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tideline.core.signing import call_bytes, fingerprint, handover_bytes, rotation_bytes

END = b"-----END PRIVATE KEY-----\n"
PEM = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Keys:
    """Ed25519 to sign, X25519 to receive."""

    sign_key: Ed25519PrivateKey
    receive_key: X25519PrivateKey

    @classmethod
    def made(cls) -> Keys:
        return cls(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def of(cls, pem: bytes) -> Keys:
        """Keys from their file. Raises ValueError for anything else."""
        first, _, second = pem.partition(END)
        sign, receive = load_pem_private_key(first + END, None), load_pem_private_key(second, None)
        if not isinstance(sign, Ed25519PrivateKey) or not isinstance(receive, X25519PrivateKey):
            raise ValueError("other kinds of keys")
        return cls(sign, receive)

    @property
    def pem(self) -> bytes:
        return self.sign_key.private_bytes(*PEM) + self.receive_key.private_bytes(*PEM)

    @property
    def public(self) -> tuple[bytes, bytes]:
        """The public keys, raw: to sign, to receive."""
        return self.sign_key.public_key().public_bytes_raw(), self.receive_key.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        return fingerprint(*self.public)

    def signature(self, method: str, client: str, time_ms: int, request: bytes) -> str:
        """What proves a call, in base64."""
        return base64.b64encode(self.sign_key.sign(call_bytes(method, client, time_ms, request))).decode()

    def hands_over(self, client: str, fresh: Keys) -> bytes:
        """What proves to who knows these keys that the client has others now."""
        return self.sign_key.sign(handover_bytes(client, *fresh.public))

    @property
    def private(self) -> tuple[bytes, bytes]:
        """The private keys, raw: to sign, to receive."""
        return self.sign_key.private_bytes_raw(), self.receive_key.private_bytes_raw()

    def takes_over(self, client: str) -> bytes:
        """What proves that these keys are to take the place of a client's old ones."""
        return self.sign_key.sign(rotation_bytes(client, *self.public))


def receive_pem(receive: bytes) -> bytes:
    """A private X25519 key, raw, as it stands in a file."""
    return X25519PrivateKey.from_private_bytes(receive).private_bytes(*PEM)


def receive_keys(pem: bytes) -> tuple[bytes, ...]:
    """The private X25519 keys of a file, raw, in order; others may stand between them. Raises ValueError for anything else."""
    *blocks, rest = pem.split(END)
    if rest or not blocks:
        raise ValueError("a file that is cut")
    found = [load_pem_private_key(block + END, None) for block in blocks]
    return tuple(key.private_bytes_raw() for key in found if isinstance(key, X25519PrivateKey))
