"""Servers that answer every request alike: what stands between agents and coordinators."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from tests.acceptance.firewall.proxy import head_of
from tests.listening import listening

PAGE = b"<html>Welcome to the guest network</html>"


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@contextmanager
def answering(said: bytes, tls: ssl.SSLContext | None = None, reads: bool = True) -> Iterator[int]:
    """A port that says this to everybody. reads: once a request has come."""
    with listening(partial(accept, said=said, tls=tls, reads=reads)) as port:
        yield port


def accept(server: socket.socket, said: bytes, tls: ssl.SSLContext | None, reads: bool) -> None:
    """One after the other, until the server is closed."""
    with suppress(OSError):
        while True:
            line, _ = server.accept()
            with suppress(OSError):
                line = line if tls is None else tls.wrap_socket(line, server_side=True)
                head_of(line) if reads else line.recv(1)
                line.sendall(said)
            line.close()
