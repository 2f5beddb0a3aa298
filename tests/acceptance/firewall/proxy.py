"""An HTTP proxy as sites have it: CONNECT alone, for who has its password."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from tests.listening import listening

USER, PASSWORD = "ann", "p@ss:word"
ASKS = b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="site"\r\nContent-Length: 0\r\n\r\n'


@dataclass
class Connecting:
    """What came. answer: instead of a tunnel; authorization: what is asked for, nothing where nothing is."""

    port: int = 0
    answer: bytes = b""
    authorization: str = ""
    tunnels: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    passed: int = 0

    @property
    def url(self) -> str:
        return f"http://{USER}:p%40ss%3Aword@127.0.0.1:{self.port}"

    @property
    def bare(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def connecting(answer: bytes = b"", password: bool = True) -> Iterator[Connecting]:
    said = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}" if password else ""
    made = Connecting(0, answer, said)
    with listening(partial(accept, made=made)) as made.port:
        yield made


def accept(server: socket.socket, made: Connecting) -> None:
    """A thread for each connection, until the server is closed."""
    with suppress(OSError):
        while True:
            near, _ = server.accept()
            threading.Thread(target=serve, args=(near, made), daemon=True).start()


def serve(near: socket.socket, made: Connecting) -> None:
    with suppress(OSError), near:
        while head := head_of(near):
            lines = head.decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
            made.asked.append(lines[0])
            if made.answer:
                near.sendall(made.answer)
            elif method != "CONNECT":
                near.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            elif made.authorization and headers.get("proxy-authorization") != made.authorization:
                near.sendall(ASKS)
            else:
                tunnel(near, target, made)
                return


def head_of(line: socket.socket) -> bytes:
    """A request's head, byte by byte: what follows it belongs to the tunnel."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (byte := line.recv(1)):
            return b""
        head += byte
    return head


def tunnel(near: socket.socket, target: str, made: Connecting) -> None:
    """Pass on what comes, in both directions."""
    host, _, port = target.rpartition(":")
    try:
        far = socket.create_connection((host.strip("[]"), int(port)), 10.0)
    except OSError:
        near.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        return
    far.settimeout(None)
    made.tunnels.append(target)
    near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    back = threading.Thread(target=pass_on, args=(far, near, made), daemon=True)
    back.start()
    pass_on(near, far, made)
    back.join()
    far.close()


def pass_on(source: socket.socket, sink: socket.socket, made: Connecting) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            made.passed += len(data)
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
