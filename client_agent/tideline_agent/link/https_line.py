"""A coordinator's endpoint over HTTPS: the calls of the gRPC line, as requests of HTTP/1.1. What is signed is the same."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import httpcore
from google.protobuf.message import DecodeError

from tideline.archive.errors import TooLarge
from tideline.core.errors import Unreachable
from tideline.core.tokens import Place, place_of
from tideline_agent.link.between import MARK, cut, refused, stranger, unlike
from tideline_agent.link.bulk import tls_of
from tideline_agent.link.lines import MOST_RECEIVED, REPLIES, Endpoints, Greeting
from tideline_agent.link.proxies import Proxy, proxy_for
from tideline_agent.link.sockets import Backend, Call
from tideline_protos.v1 import federation_pb2 as pb

Metadata = tuple[tuple[str, str], ...]
PREFIX = "/agents/v1/"
MESSAGE = "application/x-protobuf"
CONNECT_SECONDS, SILENCE_SECONDS, KEEPING_SECONDS = 10.0, 45.0, 120.0
REST_SECONDS = 10.0  # for which a connection rests before it is closed: sooner than a coordinator or a proxy does
MOST_REFUSAL = 1 << 16  # bytes of an answer that refuses
LENGTH_BYTES = 4


class HttpsLine:
    """One coordinator and its calls, over as many connections as there are calls at once. Any number of threads."""

    polls = True

    def __init__(self, address: str, endpoints: Endpoints) -> None:
        self.address, place = address, place_of(address)
        self.greeting: Greeting | None = None
        self._backend, self._closed = Backend(), False
        self.proxy = proxy_for(place, endpoints.proxy)
        self._pool = pool_of(self.proxy, context_of(place, endpoints), self._backend)
        self._base = f"{place.scheme}://{bracketed(place.host)}:{place.port}{place.prefix}{PREFIX}"
        names = [name for name in REPLIES if name not in ("Orders", "Push")]
        self.calls: dict[str, Any] = {name: Unary(self, name) for name in names}
        self.calls |= {"Fetch": Fetch(self), "Push": Push(self)}

    def close(self) -> None:
        """End all calls, and take no more."""
        self._closed = True
        self._backend.shut()
        self._pool.close()

    @contextlib.contextmanager
    def request(
        self, name: str, body: bytes | Iterator[bytes], metadata: Metadata, seconds: float, more: Metadata = ()
    ) -> Iterator[httpcore.Response]:
        """An answer whose body has not been read yet. seconds: that the other end may be silent. Raises as calls do."""
        if self._closed:
            raise Unreachable(f"The line to {self.address} is closed", "The agent is stopping")
        headers = [("Content-Type", MESSAGE), ("User-Agent", "tideline"), *metadata, *more]
        waits = {"connect": CONNECT_SECONDS, "read": seconds, "write": KEEPING_SECONDS, "pool": CONNECT_SECONDS}
        try:
            with self._pool.stream(
                "POST", self._base + name, headers=headers, content=body, extensions={"timeout": waits}
            ) as answer:
                yield answer
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError) as error:
            raise cut(self.address, error, self.proxy) from None
        except (ssl.SSLError, OSError) as error:
            raise cut(self.address, error, self.proxy) from None


def pool_of(proxy: Proxy | None, tls: ssl.SSLContext | None, backend: Backend) -> httpcore.ConnectionPool:
    """Connections, through a proxy where there is one."""
    kept: dict[str, Any] = {
        "ssl_context": tls,
        "max_connections": None,
        "keepalive_expiry": REST_SECONDS,
        "network_backend": backend,
    }
    if proxy is None:
        return httpcore.ConnectionPool(**kept)
    url = httpcore.URL(scheme="http", host=proxy.host, port=proxy.port, target="/")
    return httpcore.HTTPProxy(url, proxy_headers=list(proxy.authorization.items()), **kept)


def context_of(place: Place, endpoints: Endpoints) -> ssl.SSLContext | None:
    """TLS as the endpoints say; where they vouch for nobody, this machine's authorities do. None for http://."""
    if place.scheme == "http":
        return None
    return tls_of(endpoints if endpoints.roots is not None else replace(endpoints, system=True))


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Unary:
    """A call with one message and one reply."""

    def __init__(self, line: HttpsLine, name: str) -> None:
        self._line, self._name, self._reply = line, name, REPLIES[name]

    def __call__(self, body: bytes, metadata: Metadata = (), timeout: float = SILENCE_SECONDS) -> Any:
        until = time.monotonic() + timeout
        with self._line.request(self._name, body, metadata, timeout) as answer:
            content = whole(self._line.address, answer, until)
        made: Any = self._reply()
        try:
            made.ParseFromString(content)
        except DecodeError:
            raise unlike(self._line.address) from None
        return made


class Fetch:
    """A call whose reply is bytes, as they come."""

    def __init__(self, line: HttpsLine) -> None:
        self._line = line

    def __call__(self, body: bytes, metadata: Metadata = ()) -> FetchStream:
        return FetchStream(self._line, body, metadata)


class FetchStream(Call):
    """Bytes as they come; of one thread. Cancelled, it raises."""

    def __init__(self, line: HttpsLine, body: bytes, metadata: Metadata) -> None:
        super().__init__()
        self._chunks = self._coming(line, body, metadata)

    def __iter__(self) -> FetchStream:
        return self

    def __next__(self) -> bytes:
        with self.under_way():
            chunk: bytes = next(self._chunks)
            return chunk

    def close(self) -> None:
        self._chunks.close()

    def _coming(self, line: HttpsLine, body: bytes, metadata: Metadata) -> Any:
        with line.request("Fetch", body, metadata, SILENCE_SECONDS) as answer:
            check_answer(line.address, answer)
            for chunk in answer.iter_stream():
                if chunk:
                    yield chunk


class Push:
    """A call whose first message says what comes, and which goes on with bytes."""

    def __init__(self, line: HttpsLine) -> None:
        self._line = line

    def future(self, messages: Iterator[bytes], metadata: Metadata) -> PushCall:
        return PushCall(self._line, messages, metadata)


class PushCall(Call):
    """A push, which begins when its result is asked for."""

    def __init__(self, line: HttpsLine, messages: Iterator[bytes], metadata: Metadata) -> None:
        super().__init__()
        self._line, self._messages, self._metadata = line, messages, metadata

    def result(self) -> None:
        """Raises as calls do, and FutureCancelledError as that of a push over gRPC."""
        head = next(self._messages)
        nbytes = LENGTH_BYTES + len(head) + sum(part.size - part.offset for part in pb.PushHead.FromString(head).parts)
        more = (("Content-Length", str(nbytes)),)
        try:
            with self.under_way(), self._line.request("Push", self._body(head), self._metadata, KEEPING_SECONDS, more) as answer:
                whole(self._line.address, answer, time.monotonic() + KEEPING_SECONDS)
        except Unreachable:
            if self.cancelled:
                raise grpc.FutureCancelledError from None
            raise

    def _body(self, head: bytes) -> Iterator[bytes]:
        yield len(head).to_bytes(LENGTH_BYTES) + head
        yield from self._messages


def whole(address: str, answer: httpcore.Response, until: float) -> bytes:
    """An answer's body. Raises what the answer says, TooLarge, and Unreachable where it does not end in time."""
    check_answer(address, answer)
    content = bytearray()
    for chunk in answer.iter_stream():
        content += chunk
        if len(content) > MOST_RECEIVED:
            what = f"{address} sends more than {MOST_RECEIVED >> 20} MiB at once"
            raise TooLarge(what, "The coordinator is not to be trusted")
        if time.monotonic() > until:
            raise Unreachable(f"The answer of {address} does not end", "It is tried again")
    return bytes(content)


def check_answer(address: str, answer: httpcore.Response) -> None:
    """Raises what an answer says that is none to the call, and what it means where it is nobody's that we know."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
    if answer.status != 200:
        raise refused(address, answer.status, headers, start_of(answer))
    if MARK not in headers:
        raise stranger(address, answer.status, headers)


def start_of(answer: httpcore.Response) -> bytes:
    """The body of an answer that refuses, or as much of it as can be of ours."""
    content = bytearray()
    for chunk in answer.iter_stream():
        content += chunk
        if len(content) > MOST_REFUSAL:
            break
    return bytes(content)
