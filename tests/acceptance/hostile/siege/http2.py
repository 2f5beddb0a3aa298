"""A client of HTTP/2 that keeps no rules: frames as bytes (RFC 9113), headers written out (RFC 7541)."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable

from tests.acceptance.hostile.siege.attack import line
from tests.acceptance.raw import SERVICE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, WINDOW, CONTINUATION = 0, 1, 3, 4, 8, 9
END_STREAM, END_HEADERS = 1, 4
WIDE = (1 << 31) - 1
Header = tuple[str, str]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def number(value: int) -> bytes:
    """A length of seven bits and as many more as it takes."""
    if value < 127:
        return bytes((value,))
    rest, made = value - 127, bytearray((127,))
    while rest >= 128:
        made.append(rest % 128 + 128)
        rest //= 128
    return bytes((*made, rest))


def literal(headers: Iterable[Header]) -> bytes:
    """Headers, none of which is remembered."""
    return b"".join(b"\0" + number(len(name)) + name.encode() + number(len(text)) + text.encode() for name, text in headers)


def message(content: bytes, length: int | None = None, compressed: bool = False) -> bytes:
    """A message of gRPC; `length` says another length than it has."""
    return struct.pack(">?I", compressed, len(content) if length is None else length) + content


class Http2:
    """A connection, its settings exchanged as far as this end cares."""

    def __init__(self, port: int, window: int = 65535) -> None:
        self.line: socket.socket | None = line(port)
        self._stream = -1
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))

    def send(self, content: bytes) -> bool:
        """Whether it could be sent; it waits a little where the line is full."""
        if self.line is None:
            return False
        self.line.settimeout(2.0)
        try:
            self.line.sendall(content)
        except OSError:
            return False
        return True

    def call(self, name: str, *more: Header, content: bytes = b"", end: bool = False, flags: int = END_HEADERS) -> int:
        """Begin a call: its headers, and the bytes of its messages; gives its stream."""
        self._stream += 2
        path = name if name.startswith("/") else SERVICE + name
        first = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"))
        block = literal((*first, ("content-type", "application/grpc"), *more))
        sent = frame(HEADERS, flags, self._stream, block[: 1 << 14])
        rest = [block[at : at + (1 << 14)] for at in range(1 << 14, len(block), 1 << 14)]
        if rest:
            sent = frame(HEADERS, 0, self._stream, block[: 1 << 14])
            sent += b"".join(frame(CONTINUATION, 0, self._stream, each) for each in rest[:-1])
            sent += frame(CONTINUATION, END_HEADERS, self._stream, rest[-1])
        pieces = [content[at : at + (1 << 14)] for at in range(0, len(content), 1 << 14)]
        for at, each in enumerate(pieces):
            sent += frame(DATA, END_STREAM if end and at == len(pieces) - 1 else 0, self._stream, each)
        self.send(sent)
        return self._stream

    def reset(self, stream: int) -> None:
        self.send(frame(RESET, 0, stream, struct.pack(">I", 8)))

    def heard(self, seconds: float = 0.5) -> bytes:
        """What the other end says within some seconds without a pause."""
        found = bytearray()
        if self.line is not None:
            self.line.settimeout(seconds)
            with contextlib.suppress(OSError):
                while more := self.line.recv(1 << 16):
                    found += more
        return bytes(found)

    def over(self, seconds: float = 0.5) -> int:
        """How many calls the other end has ended, as far as it says within some seconds without a pause."""
        heard, at, ended = self.heard(seconds), 0, set[int]()
        while at + 9 <= len(heard):
            length, kind, flags = int.from_bytes(heard[at : at + 3]), heard[at + 3], heard[at + 4]
            stream = int.from_bytes(heard[at + 5 : at + 9])
            if kind == RESET or (kind == HEADERS and flags & END_STREAM):
                ended.add(stream)
            at += 9 + length
        return len(ended)

    def close(self) -> None:
        if self.line is not None:
            self.line.close()


def lines_of(made: Iterable[Http2]) -> list[socket.socket]:
    """The connections that could be opened."""
    return [each.line for each in made if each.line is not None]
