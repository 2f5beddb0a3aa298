"""A line between agents and a coordinator that can be cut in the middle of a message."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from tests.listening import shut

RESET = struct.pack("ii", 1, 0)  # close at once: the other end reads a reset, not an end


class Wire:
    """Passes bytes on from `port` to a port of this machine. at: the address that it listens at."""

    def __init__(self, to: int, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._to = to
        self._door = socket.create_server(at)
        self.port: int = self._door.getsockname()[1]
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._left: int | None = None  # bytes to the coordinator before the cut that was asked for
        self._gone = False
        self.passed = 0  # bytes, either way
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self, after: int = 0) -> None:
        """Reset every connection once so many more bytes have gone to the coordinator; now, if none are to go."""
        with self._lock:
            self._left = after or None
        if not after:
            self._reset()

    def hang_up(self) -> None:
        """Reset every connection, and each new one, until `mend`."""
        self._gone = True
        self._reset()

    def mend(self) -> None:
        self._gone = False

    def close(self) -> None:
        """Cut every connection, and take no more."""
        shut(self._door)
        self._reset()

    def _reset(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, set()
        for line in lines:
            with suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                if self._gone:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    near.close()  # nobody is there; agents try again
                    continue
                with self._lock:
                    self._lines |= {near, far}
                threading.Thread(target=self._pass_on, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near, False), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 14):
                with self._lock:
                    self.passed += len(data)
                sink.sendall(data[: self._due(len(data))] if up else data)
                if up and self._left == 0:
                    self.cut()
        for line in (source, sink):
            with self._lock:
                self._lines.discard(line)
            line.close()

    def _due(self, size: int) -> int:
        with self._lock:
            if self._left is None:
                return size
            size = min(size, self._left)
            self._left -= size
            return size
