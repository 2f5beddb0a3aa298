"""One POST to a user's address. The name is resolved once and that address is connected to, redirects are not followed, and
all of it ends by a deadline, however slowly the receiver goes.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpcore

from tideline.core.errors import ConfigRefused
from tideline.engine.ports.notices import Sent
from tideline_server.notify.addresses import AddressRefused, Allowed, Resolve, chosen, resolve

SECONDS = 10.0  # of a whole try
MOST_READ = 65536  # bytes of an answer
GONE, BUSY = 410, (429, 503)
PORTS = {"https": 443, "http": 80}


@cache
def authorities() -> ssl.SSLContext:
    return ssl.create_default_context()


@dataclass(frozen=True)
class Webhooks:
    """How to reach receivers."""

    allowed: Allowed = field(default_factory=Allowed)
    find: Resolve = resolve
    trust: Callable[[], ssl.SSLContext] = authorities
    seconds: float = SECONDS

    def check(self, url: str) -> None:
        """Raises ConfigRefused for an address to which nothing may be posted."""
        parts = split(url)
        try:
            chosen(parts.hostname or "", port_of(parts), self.allowed, parts.scheme == "https", self.find)
        except AddressRefused as error:
            raise ConfigRefused(error.what, error.todo, path="url") from None

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Sent:
        """Try once."""
        backend = Guarded(self.allowed, self.find, urlsplit(url).scheme == "https", time.monotonic() + self.seconds)
        try:
            with (
                httpcore.ConnectionPool(ssl_context=self.trust(), network_backend=backend) as pool,
                pool.stream("POST", url, headers=list(headers.items()), content=body) as response,
            ):
                drain(response.iter_stream())
                return answered(response.status, dict(response.headers))
        except AddressRefused as error:
            return Sent(False, error.what)
        except httpcore.TimeoutException:
            return Sent(False, f"It did not answer within {self.seconds:g} s")
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            return Sent(False, f"It cannot be reached ({type(error).__name__})")


def split(url: str) -> SplitResult:
    """An address in its parts. Raises ConfigRefused for one to which no webhook goes."""
    todo = "Give https://HOST/PATH, without a user, a fragment or spaces, or mailto:NAME@HOST"
    try:
        parts = urlsplit(url)
        good = parts.scheme in PORTS and bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment
        good = good and url.isascii() and url.isprintable() and " " not in url and 0 < port_of(parts) < 65536
    except ValueError:
        good = False
    if not good:
        raise ConfigRefused("url is no address of a webhook", todo, path="url")
    return parts


def port_of(parts: SplitResult) -> int:
    return PORTS[parts.scheme] if parts.port is None else parts.port


def drain(chunks: Iterable[bytes]) -> None:
    """Read what a receiver says, up to a limit. Nothing of it is kept: it could be a page of our own network."""
    left = MOST_READ
    for chunk in chunks:
        left -= len(chunk)
        if left <= 0:
            return


def answered(status: int, headers: Mapping[bytes, bytes]) -> Sent:
    words = f"HTTP {status}"
    if 200 <= status < 300:
        return Sent(True, words)
    if 300 <= status < 400:
        return Sent(False, f"{words}: redirects are not followed")
    asked = next((value for name, value in headers.items() if name.lower() == b"retry-after"), b"")
    pause = float(asked) if status in BUSY and asked.isdigit() and len(asked) < 7 else 0.0
    return Sent(False, words, gone=status == GONE, pause=pause)


class Guarded(httpcore.NetworkBackend):
    """Connects to an address that was looked at, and never again by name."""

    def __init__(self, allowed: Allowed, find: Resolve, secure: bool, until: float) -> None:
        self._allowed, self._find, self._secure, self._until = allowed, find, secure, until
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        *others, last = chosen(host, port, self._allowed, self._secure, self._find)
        for address in others:
            with contextlib.suppress(httpcore.ConnectError):
                return Timed(self._inner.connect_tcp(address, port, self.left()), self)
        return Timed(self._inner.connect_tcp(last, port, self.left()), self)

    def left(self) -> float:
        """Seconds until the deadline. Raises ReadTimeout behind it."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("The deadline has passed")
        return left


class Timed(httpcore.NetworkStream):
    """A stream each of whose calls ends by the deadline of all: a byte now and then does not put it off."""

    def __init__(self, inner: httpcore.NetworkStream, line: Guarded) -> None:
        self._inner, self._line = inner, line

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._line.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._line.left())

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return Timed(self._inner.start_tls(ssl_context, server_hostname, self._line.left()), self._line)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
