"""Commands and coordinators of other versions: recorded answers, byte for byte, and what people are told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.cli.world import Coordinator, tide
from tideline import __version__

# What the coordinator of before answers, as it was recorded from it: no word about versions, errors in another shape.
JSON = b"content-type: application/json\r\nConnection: close\r\n\r\n"
BEFORE = {
    b"/runs": b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 2\r\n" + JSON + b"[]",
    b"/runs/nosuch": b"HTTP/1.1 404 Not Found\r\nserver: uvicorn\r\ncontent-length: 128\r\n"
    + JSON
    + b'{"error": {"kind": "NotFound", "what": "There is no run \'nosuch\'", "todo": "See the list of runs", '
    + b'"path": null, "context": {}}}',
    b"/health": b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 46\r\n"
    + JSON
    + b'{"status":"ok","version":"0.1.0","replicas":1}',
}


def later(status: bytes, body: bytes, api: bytes = b"3") -> bytes:
    head = b"HTTP/1.1 %s\r\nTideline-Version: 7.0\r\nTideline-Api: %s\r\nContent-Type: application/json\r\n" % (status, api)
    return head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


@contextlib.contextmanager
def answering(recorded: dict[bytes, bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Somebody who answers each address as it was recorded; notes what is asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = door.accept()
                    with line:
                        asked.append(line.recv(1 << 16))
                        if not asked[-1]:
                            return
                        line.sendall(recorded.get(asked[-1].split()[1], recorded[b"/health"]))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}", asked
        finally:
            socket.create_connection(door.getsockname()).close()
            thread.join()


@pytest.mark.parametrize("command", [["run", "list"], ["run", "show", "nosuch"]])
def test_an_older_coordinator(command: list[str]) -> None:
    with answering(BEFORE) as (url, asked):
        told = tide(*command, "--url", url, "--api-key", "k")
    assert told.exit_code == 2
    assert f"is tideline 0.1.0 and speaks API 1; this is tideline {__version__}, which speaks API 2" in told.stderr
    assert "Upgrade the coordinator" in told.stderr
    assert b"tideline-api: 2" in asked[0].lower() and f"tideline-version: {__version__}".encode() in asked[0].lower()


@pytest.mark.parametrize(
    "answer", [later(b"200 OK", b"[]"), later(b"400 Bad Request", b'{"new": "shape"}'), later(b"200 OK", b"<")]
)
def test_a_newer_coordinator(answer: bytes) -> None:
    with answering({b"/runs": answer, b"/health": answer}) as (url, _):
        told = tide("run", "list", "--url", url, "--api-key", "k")
    assert told.exit_code == 2 and "is tideline 7.0 and speaks API 3; this is" in told.stderr
    assert "Upgrade this tideline" in told.stderr


def test_a_stranger_is_no_older_coordinator() -> None:
    """Who answers to everything with something else is called what he is."""
    with answering({b"/health": later(b"200 OK", b"{}").replace(b"Tideline-Api", b"Nothing")}) as (url, _):
        told = tide("run", "list", "--url", url, "--api-key", "k")
    assert told.exit_code == 4 and "is not a Tideline coordinator" in told.stderr


def test_a_command_that_the_coordinator_does_not_understand(there: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal of the coordinator is told as it is: with both versions."""
    monkeypatch.setattr("tideline.client.http.SPOKEN", 9)
    told = tide("run", "list", "--home", there.home)
    assert told.exit_code == 2 and "speaks API 2" in told.stderr and "speaks API 9" in told.stderr
