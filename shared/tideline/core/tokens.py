"""Invitations as one text to copy: the secret, the coordinators' addresses, and how to know them.

    tide1_ + base64url of: secret (24 bytes), trust (1), authority (32, if the trust is PINNED), addresses, checksum (4)

The secret fills whole groups of base64, so its own text stands in the token and can be cut out where it must not be kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import urlsplit

from tideline.core.errors import ConfigRefused

PREFIX = "tide1_"
SECRET_BYTES = 24
SECRET_CHARS = SECRET_BYTES // 3 * 4
DIGEST_BYTES = 32
CHECK_BYTES = 4
MOST_ADDRESSES = 2000  # characters
# What a coordinator may announce to its agents: addresses, characters of one, certificates of authorities, bytes of those.
MOST_ANNOUNCED, MOST_ADDRESS, MOST_AUTHORITIES, MOST_PEM = 16, 300, 8, 1 << 16
PORTS = {"https": 443, "http": 80}


class Trust(IntEnum):
    """How an agent knows a coordinator: not at all (no TLS), by the authority in the token, or by the system's authorities."""

    PLAIN = 0
    PINNED = 1
    SYSTEM = 2


@dataclass(frozen=True)
class Token:
    """An invitation. secret: the text that the coordinator knows the hash of. authority: SHA-256 of a certificate (DER)."""

    secret: str
    addresses: tuple[str, ...] = ()
    trust: Trust = Trust.PLAIN
    authority: bytes = b""

    @property
    def text(self) -> str:
        body = base64.urlsafe_b64decode(self.secret) + bytes([self.trust]) + self.authority + ",".join(self.addresses).encode()
        return PREFIX + base64.urlsafe_b64encode(body + check(body)).decode().rstrip("=")


def read_token(text: str) -> Token:
    """A token from its text; a text without the prefix is a secret and nothing else. Raises ConfigRefused."""
    if not text.startswith(PREFIX):
        return Token(text)
    encoded = text.removeprefix(PREFIX)
    try:
        body = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        body, ending = body[:-CHECK_BYTES], body[-CHECK_BYTES:]
        if len(body) <= SECRET_BYTES or ending != check(body):
            raise ValueError
        trust = Trust(body[SECRET_BYTES])
        rest = body[SECRET_BYTES + 1 :]
        cut = DIGEST_BYTES if trust is Trust.PINNED else 0
        addresses = tuple(each for each in rest[cut:].decode().split(",") if each)
    except (binascii.Error, ValueError):
        todo = f"Copy all of it, from {PREFIX} on, or ask for a new one: tideline invite"
        raise ConfigRefused("The token is not whole, or was changed on its way", todo, path="token") from None
    return Token(encoded[:SECRET_CHARS], addresses, trust, rest[:cut])


def secret_of(text: str) -> str:
    """The secret in a token's text, whole or not. An agent from before tokens held more sends all of it."""
    return text.removeprefix(PREFIX)[:SECRET_CHARS] if text.startswith(PREFIX) else text


def check(body: bytes) -> bytes:
    return hashlib.sha256(b"tideline token" + body).digest()[:CHECK_BYTES]


@dataclass(frozen=True)
class Place:
    """Where agents call. scheme: grpc, https or http; prefix: of the paths there, such as /tideline, or nothing."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @property
    def here(self) -> bool:
        """Whether it is this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def place_of(address: str) -> Place:
    """HOST:PORT of a gRPC port, or https://HOST[:PORT][/PREFIX]. Raises ConfigRefused; the caller says which option it was."""
    if "://" not in address:
        host, port = split_address(address)
        return Place("grpc", host, int(port))
    try:
        parts = urlsplit(address)
        port_number, host = parts.port or PORTS[parts.scheme], parts.hostname or ""
        whole = not (parts.username or parts.password or parts.query or parts.fragment)
    except (ValueError, LookupError):
        whole, host = False, ""
    if not whole or not host or any(each in address for each in ", @\n"):
        what = f"{address[:200]!r} is no address"
        raise ConfigRefused(what, "Write it as https://HOST, https://HOST:PORT or https://HOST/PREFIX, or as HOST:PORT for gRPC")
    return Place(parts.scheme, host, port_number, parts.path.rstrip("/"))


def split_address(address: str) -> tuple[str, str]:
    """Host and port of HOST:PORT. Raises ConfigRefused; the caller says which option it was."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536 or any(c in host for c in ", /@\n"):
        raise ConfigRefused(f"{address[:200]!r} is no address", "Write it as HOST:PORT, such as 127.0.0.1:7800")
    return host.strip("[]"), port
