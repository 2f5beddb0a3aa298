"""The HTTP API as a server: how many connections it holds, how slow and how large a request's head may be."""

from __future__ import annotations

import contextlib
import socket

import anyio
import httpx
import pytest
from api_world import Coordinator
from listening import listening
from structlog.testing import capture_logs

from tests.server.loops import LONG
from tideline_server.api.server import HEAD_BYTES


def told(line: socket.socket) -> bytes:
    """Everything until the other end closes."""
    line.settimeout(LONG)
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := line.recv(1 << 16):
            found += more
    return found


def ask(at: tuple[str, int]) -> int:
    """The status of a request on a connection of its own."""
    return httpx.get(f"http://127.0.0.1:{at[1]}/health", trust_env=False, timeout=LONG).status_code


def test_connections_from_one_address_are_bounded() -> None:
    """Those beyond the limit are told so and closed, before they ask; when others close, there is room again."""
    with capture_logs() as logs, listening(8) as at:
        lines = [socket.create_connection(at) for _ in range(8)]
        assert ask_raw(lines[0]) == 200
        for _ in range(300):
            with socket.create_connection(at) as more:
                assert b"429 Too Many Requests" in (answer := told(more)) and b"urn:tideline:error:TooMany" in answer
        lines.pop().close()
        lines.append(socket.create_connection(at))
        assert ask_raw(lines[-1]) == 200
        for line in lines:
            line.close()
        assert ask(at) == 200
    assert {entry["event"] for entry in logs} == {"too_many_connections"}


def ask_raw(line: socket.socket) -> int:
    """The status of a request on this connection."""
    line.settimeout(LONG)
    line.sendall(b"GET /health HTTP/1.1\r\nHost: c\r\n\r\n")
    return int(line.recv(1 << 16).split()[1])


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: c\r\nX-A: "])
def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    """A connection that sends nothing, or a half and no more, is closed; also after a request that was answered."""
    with listening(0, 0.1) as at:
        with socket.create_connection(at) as line:
            line.sendall(sent)
            assert told(line) == b""
        with socket.create_connection(at) as line:
            assert ask_raw(line) == 200
            line.sendall(sent or b"G")
            assert b"HTTP/1.1" not in told(line), "but the rest of the first answer"


def test_a_stream_is_not_a_slow_head() -> None:
    """Who has asked may listen for as long as he likes."""
    coordinator = Coordinator()
    run = coordinator.start()

    async def main() -> None:
        with anyio.fail_after(LONG):
            at = f"{url}/runs/{run}/events"
            async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", at) as stream:
                comments = 0
                async for line in stream.aiter_lines():
                    comments += line.startswith(":")
                    if comments == 10:
                        return

    with listening(0, 0.05, coordinator.app) as (_, number):
        url = f"http://127.0.0.1:{number}"
        anyio.run(main)


def test_a_huge_head_is_refused() -> None:
    """One header, many, or a long address beyond 32 KiB are not read on; somewhat less is."""
    large = b"a" * (HEAD_BYTES + 1)
    heads = [
        b"GET /health HTTP/1.1\r\nHost: c\r\nX: " + large,
        b"GET /" + large,
        b"GET /health HTTP/1.1\r\nHost: c\r\n" + b"X: 1\r\n" * 9000,
    ]
    with listening(0) as at:
        for head in heads:
            with socket.create_connection(at) as line:
                with contextlib.suppress(OSError):
                    line.sendall(head)
                assert told(line).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 ")) or not head.endswith(b"a")
        with socket.create_connection(at) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: c\r\nConnection: close\r\nX: " + b"a" * (HEAD_BYTES // 2) + b"\r\n\r\n")
            assert told(line).startswith(b"HTTP/1.1 200 ")
