"""The coordinator's key for dossiers: made once, shown by its fingerprint, checked by whoever was given that."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tideline.core.errors import ConfigRefused, DossierBroken

MAKE = "Make one with: openssl genpkey -algorithm ed25519 -out signer.pem"
FINGERPRINT = re.compile("[0-9a-f]{64}")
PEM, INFO = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
MOST_PEM = 1024  # bytes of a public key


@dataclass(frozen=True)
class Signer:
    """A key that signs dossiers."""

    key: Ed25519PrivateKey

    @property
    def pem(self) -> bytes:
        """The public key."""
        return self.key.public_key().public_bytes(PEM, INFO)

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.key.public_key())

    @property
    def public(self) -> str:
        """The public key's 32 bytes, in hexadecimal."""
        return self.key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        return self.key.sign(message)


def own_signer(path: Path) -> Signer:
    """The key in a coordinator's home, made if it is not there. Raises ConfigRefused for a file that is no key."""
    if not path.exists():
        # Whole or not at all: half a key would stop the next start.
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private_pem(Ed25519PrivateKey.generate()))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return signer_in(path, f"Bring {path.name} back from a backup, or move it away: the next start makes another key")


def signer_in(path: Path, todo: str = MAKE) -> Signer:
    """The key in a file. Raises ConfigRefused."""
    try:
        found = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as cause:
        raise ConfigRefused(f"The signing key {path} cannot be read: {cause.strerror}", todo, path="signing_key") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PrivateKey):
        what = f"The signing key {path} is no private Ed25519 key in PEM without a password"
        raise ConfigRefused(what, todo, path="signing_key")
    return Signer(found)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def fingerprint_of(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key in DER, in hexadecimal: what `openssl pkey -pubin -outform DER | sha256sum` prints."""
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, INFO)).hexdigest()


def public_key(pem: bytes) -> Ed25519PublicKey:
    """A public key as `Signer.pem` writes it, and in no other form. Raises DossierBroken."""
    try:
        found = serialization.load_pem_public_key(pem) if len(pem) <= MOST_PEM else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PublicKey) or found.public_bytes(PEM, INFO) != pem:
        raise DossierBroken("The key in the file is no public key of a coordinator", "Get the dossier again", member="signer.pem")
    return found


def is_signed(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def read_fingerprint(text: str) -> str:
    """A fingerprint as somebody types it: with spaces or colons, in capital letters. Raises ConfigRefused."""
    found = re.sub(r"[\s:]", "", text).lower()
    if not FINGERPRINT.fullmatch(found):
        todo = "Give the 64 hexadecimal digits that `tideline dossier signer` shows to users of the coordinator"
        raise ConfigRefused(f"--signer is {text[:80]!r}, which is no fingerprint", todo, path="--signer")
    return found
