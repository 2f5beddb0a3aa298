"""Connections of an HTTP line, each of which another thread can cut: while a call waits for an answer, nothing else ends it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore

BUFFER = 1 << 19  # bytes that are received, hashed and written at once
RECORD = 1 << 14  # bytes of TLS; what is shorter ended with its sender's words
USED: dict[int, Call] = {}  # the call at which a thread works, by the thread


class Call:
    """A call under way. `cancel` ends it from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._stream is not None:
                self._stream.shut()

    def at(self, stream: Stream) -> None:
        """The call goes on over this connection. Raises ReadError where it was cancelled."""
        with self._lock:
            self._stream = stream
            if self.cancelled:
                raise httpcore.ReadError("The call was cancelled")

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """What this thread sends and receives meanwhile is this call's."""
        USED[threading.get_ident()] = self
        try:
            yield
        finally:
            del USED[threading.get_ident()]
            with self._lock:
                self._stream = None  # others use it from here on


class Stream(httpcore.NetworkStream):
    """A connection, which knows the call that uses it."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes; more than were asked for, where they are there: TLS gives 16 KiB at once, and each piece costs alike."""
        self._note()
        some = [self._inner.read(BUFFER, timeout)]
        nbytes = len(some[0])
        while some[-1] and RECORD <= nbytes < BUFFER and self._inner.get_extra_info("is_readable"):
            some.append(self._inner.read(BUFFER - nbytes, timeout))
            nbytes += len(some[-1])
        return some[0] if len(some) == 1 else b"".join(some)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._note()
        rest: Any = memoryview(buffer)  # of what was sent in part, the rest is no copy
        self._inner.write(rest, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        self._inner = self._inner.start_tls(ssl_context, server_hostname, timeout)
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def shut(self) -> None:
        """Have whoever reads or writes here find its end."""
        line = self._inner.get_extra_info("socket")
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    def _note(self) -> None:
        call = USED.get(threading.get_ident())
        if call is not None:
            call.at(self)


class Backend(httpcore.NetworkBackend):
    """Opens connections, and can cut all that are open."""

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()
        self._open: weakref.WeakSet[Stream] = weakref.WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        made = Stream(self._inner.connect_tcp(host, port, timeout, local_address, socket_options))
        self._open.add(made)
        return made

    def shut(self) -> None:
        for each in list(self._open):
            each.shut()
