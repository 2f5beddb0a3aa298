"""What a client signs, as bytes. Both ends make them from what they know; nothing here computes a signature.

A call is signed over its method, the client, a time and the SHA-256 of the request: who reads one call can make no other of it.
"""

from __future__ import annotations

import hashlib

PROTOCOL = 2  # the version of federation.proto that this Tideline speaks
OLDEST = 2  # the oldest version whose agents a coordinator lets in
WINDOW_SECONDS = 300.0  # how far a call's time may be from the coordinator's
KEY_BYTES = 32  # of each public key, and of nothing else
FINGERPRINT_DIGITS = 32  # hexadecimal: 128 bits, for which nobody finds other keys
CALL, ROTATION, HANDOVER = b"tideline call 2", b"tideline rotation 2", b"tideline handover 1"
BULK = b"tideline bulk 1"


def call_bytes(method: str, client: str, time_ms: int, request: bytes, session: str = "") -> bytes:
    """What is signed of a call. method: its name in the service; request: the bytes of the first message as they are sent.

    session: the agent's start from which it is, if it names one.
    """
    digest = hashlib.sha256(request).hexdigest()
    lines = (CALL, method.encode(), client.encode(), str(time_ms).encode(), digest.encode())
    return b"\n".join((*lines, session.encode()) if session else lines)


def rotation_bytes(client: str, sign_key: bytes, receive_key: bytes) -> bytes:
    """What a new key signs before it takes an old one's place. Keys are public, as raw bytes."""
    return b"\n".join((ROTATION, client.encode(), sign_key.hex().encode(), receive_key.hex().encode()))


def handover_bytes(client: str, sign_key: bytes, receive_key: bytes) -> bytes:
    """What an old key signs of the new ones, so that those who know the old one take them. Keys are public, as raw bytes."""
    return b"\n".join((HANDOVER, client.encode(), sign_key.hex().encode(), receive_key.hex().encode()))


def bulk_bytes(ticket: str, up: bool, client: str, nbytes: int) -> bytes:
    """What is signed of a transfer over the bulk lane. nbytes: of its body, up or down."""
    return b"\n".join((BULK, b"PUT" if up else b"GET", ticket.encode(), client.encode(), str(nbytes).encode()))


def fingerprint(sign_key: bytes, receive_key: bytes) -> str:
    """Two public keys for users to compare: FINGERPRINT_DIGITS hexadecimal digits of their SHA-256, in groups of four."""
    return in_fours(hashlib.sha256(sign_key + receive_key).hexdigest()[:FINGERPRINT_DIGITS])


def in_fours(digits: str) -> str:
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))
