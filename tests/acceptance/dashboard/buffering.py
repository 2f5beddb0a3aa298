"""A relay before the coordinator that does as some proxies do: it keeps a stream back until it ends, or has grown large."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LARGE = 1 << 20  # bytes that it waits for
PIECE = 1 << 16


@contextmanager
def relay(port: int) -> Iterator[int]:
    """Listens on a port of its own, and gives answers on in whole: streams of events as good as never."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=serve, args=(door, port), daemon=True).start()
        yield door.getsockname()[1]


def serve(door: socket.socket, port: int) -> None:
    with suppress(OSError):  # the door closes with the test
        while True:
            browser, _ = door.accept()
            threading.Thread(target=carry, args=(browser, port), daemon=True).start()


def carry(browser: socket.socket, port: int) -> None:
    """One connection: what the browser asks is passed on at once, as the only request of its connection."""
    with suppress(OSError), browser, socket.create_connection(("127.0.0.1", port)) as coordinator:
        browser.settimeout(120)
        coordinator.sendall(alone(head_of(browser)))
        asking = threading.Thread(target=pump, args=(browser, coordinator), daemon=True)
        asking.start()
        held(coordinator, browser)


def head_of(browser: socket.socket) -> bytes:
    """The head of a request, and what of its body came with it."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = browser.recv(PIECE)
        if not piece:
            raise OSError("gone")
        found += piece
    return found


def alone(request: bytes) -> bytes:
    """The same, to be answered and closed."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close", b"", body])


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE):
            sink.sendall(piece)


def held(source: socket.socket, sink: socket.socket) -> None:
    """An answer, its head at once, its body once it is whole."""
    head = head_of(source)
    top, _, kept = head.partition(b"\r\n\r\n")
    sink.sendall(top + b"\r\n\r\n")
    while piece := source.recv(PIECE):
        kept += piece
        if len(kept) > LARGE:
            sink.sendall(kept)
            kept = b""
    sink.sendall(kept)
