"""Requests at the HTTP API that lie, as bytes on a socket where a client would not send them."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.acceptance.conftest import WORLD

EXPERIMENT = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"liar": "source"}, "reference": None}
LABEL = "Content-Type: application/json"


@dataclass(frozen=True)
class Request:
    """A request's line without its version, its headers and its body; the status, the kind of error and words in it.

    chunked: the body is sent in chunks, and its length is told nowhere.
    """

    status: int
    kind: str
    words: str
    body: bytes = b""
    line: str = "POST /runs"
    headers: tuple[str, ...] = (LABEL,)
    chunked: bool = False

    def sent(self, port: int, key: str) -> tuple[int, dict[str, Any]]:
        """The status and the body of the answer."""
        length = "Transfer-Encoding: chunked" if self.chunked else f"Content-Length: {len(self.body)}"
        own = ("Host: here", f"Authorization: Bearer {key}", "Connection: close", *self.headers)
        length = "" if any(each.startswith("Content-Length") for each in self.headers) else f"{length}\r\n"
        head = f"{self.line} HTTP/1.1\r\n" + "".join(f"{each}\r\n" for each in own) + length + "\r\n"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(self.body), self.body) if self.chunked else self.body
        return exchanged(port, head.encode("latin-1") + body)


def exchanged(port: int, told: bytes) -> tuple[int, dict[str, Any]]:
    """What is answered to bytes, also where the other end does not wait for all of them."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        answer = b""
        with suppress(BrokenPipeError, ConnectionResetError):
            line.sendall(told)
        with suppress(ConnectionResetError):
            while more := line.recv(1 << 16):
                answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    said = json.loads(body) if body.startswith(b"{") else {"kind": "", "detail": body.decode(errors="replace")}
    return int(head.split()[1]), said


def experiment(**said: Any) -> bytes:
    """An experiment with a wrong value."""
    return json.dumps(EXPERIMENT | said).encode()


def wrong(field: str, value: Any, kind: str = "ConfigRefused", status: int = 422) -> Request:
    """An experiment with one field of the wrong type."""
    return Request(status, kind, field, experiment(**{field: value}))


DEEP = b'{"method": ' + b"[" * 100_000 + b"}"
ENCODED = (LABEL, "Content-Encoding: gzip")
REQUESTS: Mapping[str, Request] = {
    "body of megabytes": Request(413, "TooLarge", "longer than 1048576 bytes", b" " * (8 << 20)),
    "body without a length": Request(413, "TooLarge", "longer than 1048576 bytes", b" " * (8 << 20), chunked=True),
    "length of exabytes": Request(413, "TooLarge", "longer than 1048576 bytes", headers=(LABEL, f"Content-Length: {1 << 62}")),
    "gzip bomb as a body": Request(415, "Malformed", "compressed", gzip.compress(bytes(64 << 20)), headers=ENCODED),
    "zstd body": Request(415, "Malformed", "compressed", bytes(9), headers=(LABEL, "Content-Encoding: zstd")),
    "deep body": Request(400, "Malformed", "moderate depth", DEEP),
    "body that is no JSON": Request(400, "Malformed", "is not JSON", b"{"),
    "body that is no UTF-8": Request(400, "Malformed", "UTF-8", b'{"method": "\xff"}'),
    "body with a key twice": Request(400, "DuplicateKey", "'method' twice", b'{"method": "fedavg", "method": "local"}'),
    "body with a number of a million digits": Request(400, "Malformed", "64 bits", b'{"seed": ' + b"9" * 1_000_000 + b"}"),
    "body with NaN": Request(400, "Malformed", "NaN", b'{"seed": NaN}'),
    "body with a NUL": Request(400, "Malformed", "NUL", b'{"name": "\\u0000"}'),
    "body that is not labelled": Request(415, "Malformed", "not labelled", b"{}", headers=()),
    "path beyond the tree": Request(404, "NotFound", "", line="GET /runs/..%2f..%2fadmin.key/files/x", headers=()),
    "path with a NUL": Request(422, "ConfigRefused", "run", line="GET /runs/%00", headers=()),
    "path that is no UTF-8": Request(422, "ConfigRefused", "run", line="GET /runs/%ff%fe", headers=()),
    "flood of headers": Request(400, "", "", line="GET /runs", headers=tuple(f"X-{i}: {'y' * 100}" for i in range(4000))),
    "method of the wrong type": wrong("method", 7),
    "preset of the wrong type": wrong("preset", ["tiny"]),
    "config of the wrong type": wrong("config", "rounds"),
    "world of the wrong type": wrong("world", 7),
    "roster of the wrong type": wrong("roster", [1]),
    "seed of the wrong type": wrong("seed", "one"),
    "waiting of the wrong type": wrong("waiting", True),
    "name of the wrong type": wrong("name", {"a": 1}),
    "reference of the wrong type": wrong("reference", 7),
}
