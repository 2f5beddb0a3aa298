"""Crowds at doors with TLS: handshakes that begin and never end."""

from __future__ import annotations

import contextlib
import socket
import ssl

from tests.acceptance.hostile.siege.attack import line


def hello() -> bytes:
    """The first message of a client's handshake."""
    context, into, out = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname="localhost").do_handshake()
    return out.read()


def stopped(port: int, size: int, first: bytes) -> list[socket.socket]:
    """Lines over which so much of a handshake is said, and nothing more."""
    lines = [each for _ in range(size) if (each := line(port))]
    for each in lines:
        with contextlib.suppress(OSError):
            each.sendall(first)
    return lines
