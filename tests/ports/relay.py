"""A line to Postgres that can be cut at the worst moment: when a commit is done and its answer is on the way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.listening import shut


class Relay:
    """Passes bytes on between its own port and the server's. With `cutting`, the answer to a COMMIT never comes."""

    def __init__(self, host: str, port: int) -> None:
        self._there = (host, port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.cutting = False
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        shut(self._door)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(self._there)
                committing = threading.Event()
                threading.Thread(target=self._asked, args=(near, far, committing), daemon=True).start()
                threading.Thread(target=self._answered, args=(near, far, committing), daemon=True).start()

    def _asked(self, near: socket.socket, far: socket.socket, committing: threading.Event) -> None:
        with suppress(OSError):
            while asked := near.recv(65536):
                if self.cutting and b"COMMIT\0" in asked:
                    committing.set()
                far.sendall(asked)
        end(near, far)

    def _answered(self, near: socket.socket, far: socket.socket, committing: threading.Event) -> None:
        with suppress(OSError):
            while (answer := far.recv(65536)) and not committing.is_set():
                near.sendall(answer)
        end(near, far)


def end(*lines: socket.socket) -> None:
    """Hang up."""
    for line in lines:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()


@contextmanager
def relayed(url: str) -> Iterator[tuple[Relay, str]]:
    """A relay to the server of a URL, and the URL that leads through it. Nothing is encrypted, so that it can be read."""
    there = urlsplit(url)
    relay = Relay(there.hostname or "127.0.0.1", there.port or 5432)
    who = there.netloc.rpartition("@")[0]
    through = there._replace(netloc=f"{who}@127.0.0.1:{relay.port}", query=f"{there.query}&sslmode=disable")
    try:
        yield relay, through.geturl()
    finally:
        relay.close()
