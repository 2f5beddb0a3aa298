"""What every request passes: the key, the limits, strict JSON, and the one shape of errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from api_world import EXPERIMENT, HOME_KEY, JSON, Coordinator, refused, unread
from structlog.testing import capture_logs

from tideline_server.api import ApiSettings

NO_KEYS = (None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "{}", "Bearer {}x", "Bearer \u00e9")
PATHS = ("/runs", "/clients", "/nowhere", "/health/", "http://coordinator//health", "/docs/../runs")


def test_without_the_key_nothing_is_told(door: Coordinator, subtests: pytest.Subtests) -> None:
    """Whatever is asked for, even if it does not exist, a wrong key gets 401 and the challenge."""
    for path, header in itertools.product(PATHS, NO_KEYS):
        with subtests.test(f"{header} for {path}"):
            headers = {} if header is None else {b"Authorization": header.format(HOME_KEY).encode()}
            answer = door.get(path, headers=headers)
            refused(answer, 401, "IdentityRefused")
            assert answer.headers["www-authenticate"] == "Bearer"


def test_with_the_key_the_door_is_open(door: Coordinator) -> None:
    """The scheme's name may be written either way; health and the manual need no key."""
    for scheme in ("Bearer", "bearer"):
        assert door.get("/runs", headers={"Authorization": f"{scheme} {HOME_KEY}"}).status_code == 200
    for path in ("/health", "/docs", "/openapi.json"):
        assert door.get(path).status_code == 200


def test_a_body_is_not_read_without_the_key(door: Coordinator) -> None:
    """Strangers are turned away before the first byte of what they send is taken."""
    refused(door.post("/runs", content=unread()), 401, "IdentityRefused")


def test_unknown_addresses_and_wrong_methods(coordinator: Coordinator) -> None:
    """404 and 405 come in the one shape; 405 says what is allowed; there is no redirection."""
    refused(coordinator.get("/nowhere"), 404, "NotFound")
    refused(coordinator.get("/runs/"), 404, "NotFound")
    answer = coordinator.send("DELETE", "/health")
    refused(answer, 405, "MethodNotAllowed")
    assert answer.headers["allow"] == "GET"


def test_a_long_body_is_refused_when_announced(coordinator: Coordinator) -> None:
    """A body that says that it is above the limit is not read at all."""
    headers = JSON | {"Content-Length": str((1 << 20) + 1)}
    error = refused(coordinator.post("/runs", content=unread(), headers=headers), 413, "TooLarge")
    assert error["context"] == {"limit": 1 << 20}


def test_a_long_body_is_refused_while_it_comes(coordinator: Coordinator) -> None:
    """A body of unknown length is read up to the limit and no further."""
    taken = []

    async def chunks() -> AsyncIterator[bytes]:
        for i in range(64):
            taken.append(i)
            yield b" " * (1 << 16)

    refused(coordinator.post("/runs", content=chunks(), headers=JSON), 413, "TooLarge")
    assert len(taken) <= 18


def test_a_body_at_the_limit_is_read(coordinator: Coordinator) -> None:
    """The limit itself is allowed."""
    padding = b" " * ((1 << 20) - 2)
    refused(coordinator.post("/runs", content=b"{" + padding + b"}", headers=JSON), 422, "ConfigRefused", "method")


NOT_JSON: list[tuple[bytes, str]] = [
    (b"{", "Malformed"),
    (b"method: fedavg", "Malformed"),
    (b"\xff\xfe", "Malformed"),
    (b'{"seed": NaN}', "Malformed"),
    (b'{"seed": -Infinity}', "Malformed"),
    (b'{"seed": 1e999}', "Malformed"),
    (b'{"seed": 9223372036854775808}', "Malformed"),
    (b'{"seed": 1' + b"0" * 5000 + b"}", "Malformed"),
    (b'{"seed": 1, "seed": 2}', "DuplicateKey"),
    (b'{"name": "\\ud800"}', "Malformed"),
    (b'{"\\udfff": 1}', "Malformed"),
    (b'{"name": "a\\u0000b"}', "Malformed"),
    (b"[" * 40 + b"]" * 40, "Malformed"),
    (b"[" * 500_000, "Malformed"),
    (b'{"a":' * 100_000, "Malformed"),
]


def test_only_strict_json_comes_in(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Broken, ambiguous, bottomless and unstorable bodies are refused at the door."""
    for path, (body, kind) in itertools.product(("/runs", "/invites"), NOT_JSON):
        with subtests.test(f"{body[:32]!r} to {path}"):
            refused(coordinator.post(path, content=body, headers=JSON), 400, kind)


def test_a_body_says_that_it_is_json(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Without its label a body is refused, so no web page can have a browser send one."""
    for label in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        with subtests.test(str(label)):
            headers = {} if label is None else {"Content-Type": label}
            refused(coordinator.post("/runs", content=b"{}", headers=headers), 415, "Malformed")


def test_half_a_body_starts_nothing(coordinator: Coordinator) -> None:
    """A client that breaks off while it sends has asked for nothing, even where the part that came is whole JSON."""
    messages = [{"type": "http.request", "body": json.dumps(EXPERIMENT).encode(), "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        return

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/runs", "query_string": b"", "headers": headers}
    anyio.run(coordinator.app, scope, receive, send)
    assert coordinator.get("/runs").json() == []


def test_the_unexpected_is_logged_and_not_told() -> None:
    """A bug is answered with a number that the log has too; its words and traceback stay inside."""

    def health() -> dict[str, Any]:
        raise RuntimeError("the password is swordfish")

    with capture_logs() as logs:
        answer = Coordinator(health=health).get("/health")
    error = refused(answer, 500, "InternalError")
    assert error["instance"] == f"urn:tideline:incident:{error['context']['incident']}"
    assert "swordfish" not in answer.text and "Traceback" not in answer.text
    (entry,) = logs
    assert (entry["event"], entry["incident"]) == ("request_failed", error["context"]["incident"])
    assert entry["exc_info"]


def test_a_compressed_body_is_not_unpacked(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """It is refused unread, whatever it says to be packed with; a body that is plain may say so."""
    for coding in ("gzip", "zstd", "br", "identity, gzip", "x", "GZIP"):
        with subtests.test(coding):
            answer = coordinator.post("/runs", content=unread(), headers=JSON | {"Content-Encoding": coding})
            error = refused(answer, 415, "Malformed")
            assert "compressed" in error["detail"] and answer.headers["accept-encoding"] == "identity"
    plain = coordinator.post("/runs", content=b"{}", headers=JSON | {"Content-Encoding": "identity"})
    refused(plain, 422, "ConfigRefused", "method")


def test_a_body_that_trickles_is_cut() -> None:
    """What has not come in time is not waited for, however lively it trickles; nothing is done, and the line is closed."""
    hasty = Coordinator(ApiSettings(body_seconds=0.05))

    async def trickling() -> AsyncIterator[bytes]:
        yield b"{"
        while True:
            await anyio.lowlevel.checkpoint()
            yield b""

    async def silent() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.Event().wait()

    for body in (trickling, silent):
        answer = hasty.post("/runs", content=body(), headers=JSON)
        assert "within 0.05 s" in refused(answer, 408, "Malformed")["detail"] and answer.headers["connection"] == "close"
    assert hasty.get("/runs").json() == []
