"""A listening socket for a thread that accepts, which ends with it.

A thread that is still inside `accept` when its socket is closed waits on under the old number. The kernel may begin that
call again, and takes it for whatever has the number by then: the thread would answer another server's callers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def listening(accept: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a socket that a thread accepts from, until the block ends: OSError ends its wait."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, args=(server,), daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            shut(server)
            thread.join()


def shut(server: socket.socket) -> None:
    """Wake who waits in `accept`, then close."""
    server.shutdown(socket.SHUT_RDWR)
    server.close()
