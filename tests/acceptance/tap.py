"""A tap on the line between agents and coordinator: passes every byte on, and keeps it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from tests.listening import listening


@dataclass
class Tap:
    """What passed, each connection and direction by itself. `port`: where agents connect."""

    port: int
    flows: list[bytearray] = field(default_factory=list)

    def all(self) -> bytes:
        """Every byte of both directions, one flow after another."""
        return b"|".join(bytes(flow) for flow in self.flows)


@contextmanager
def tapped(to: int) -> Iterator[Tap]:
    """A tap in front of a port of this machine."""
    tap = Tap(0)
    with listening(partial(accept, to=to, tap=tap)) as tap.port:
        yield tap


def accept(server: socket.socket, to: int, tap: Tap) -> None:
    """A pair of threads for each connection, until the server is closed."""
    while True:
        try:
            near, _ = server.accept()
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", to))
        for source, sink in ((near, far), (far, near)):
            tap.flows.append(flow := bytearray())
            threading.Thread(target=pass_on, args=(source, sink, flow), daemon=True).start()


def pass_on(source: socket.socket, sink: socket.socket, flow: bytearray) -> None:
    with suppress(OSError), source, sink:  # a hang-up at either end is how a connection ends
        while data := source.recv(1 << 16):
            flow += data
            sink.sendall(data)
