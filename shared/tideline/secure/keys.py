"""What a site draws for one round: 32 random bytes, of which everything else follows, so that a site that is killed goes on.

They are two X25519 keys, one to agree on pair masks and one to be sent shares by, the seed of its self mask, and the polynomials
of its shares.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tideline.secure.errors import KeysRefused
from tideline.secure.masks import Part, drawing, key_of

KEY = 32
MASK, SHARE, SELF, POLYNOMIALS = "mask key", "share key", "self mask", "polynomials"


def fresh() -> bytes:
    """A root for one round at one site."""
    return secrets.token_bytes(KEY)


@dataclass(frozen=True)
class RoundKeys:
    """What follows of a root for one place."""

    root: bytes
    place: tuple[Part, ...]

    @property
    def mask_key(self) -> bytes:
        return self.derived(MASK)

    @property
    def share_key(self) -> bytes:
        return self.derived(SHARE)

    @property
    def self_seed(self) -> bytes:
        return self.derived(SELF)

    def random(self, *use: Part) -> Callable[[int], bytes]:
        """Random bytes for a use, always the same."""
        return drawing(self.derived(POLYNOMIALS, *use))

    def derived(self, *use: Part) -> bytes:
        return key_of(self.root, "keys", *self.place, *use)


def public(key: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def usable(key: bytes) -> bool:
    """Whether something can be agreed on with a public key: one of low order, or of another length, is none."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True


def agreeing(key: bytes) -> Callable[[str, bytes], bytes]:
    """What a private key agrees on with a site, by its name and public key. Raises KeysRefused for a key of low order."""
    private = X25519PrivateKey.from_private_bytes(key)

    def agreed(name: str, other: bytes) -> bytes:
        try:
            return private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            what = f"{name} is shown with a key for masks that is none, or of low order: anybody could know its masks"
            raise KeysRefused(what, f"Ask {name}'s owner: its agent is broken, or not to be trusted", peer=name) from None

    return agreed
