"""Calls whose answers are lost, and coordinators of other versions: what is sent again, and what people are told."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.cli.world import EXPERIMENT, Coordinator, assert_refuses, json_of, output_of, tide
from tests.enrolling import enrol
from tideline import __version__, nets
from tideline.client import http as client
from tideline.client.http import may_pass
from tideline.core.asked.world import World
from tideline.core.errors import Unreachable
from tideline.core.settings import parse

TRYING = "Trying again for 30 s"


class Troubled:
    """A door that lets requests in and then has trouble with the answers, as long as there is some left; it notes the keys."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.troubles: list[str] = []
        self.keys: list[tuple[str, str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        key = dict(scope["headers"]).get(b"idempotency-key", b"").decode()
        self.keys.append((scope["method"], scope["path"], key))
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble.isdecimal():
            await send({"type": "http.response.start", "status": int(trouble), "headers": [(b"content-length", b"6")]})
            await send({"type": "http.response.body", "body": b"<html>"})
        else:
            await self.app(scope, receive, cut(send) if trouble else send)


def cut(send: Send) -> Send:
    """Half an answer, and then the line is dead."""

    async def half(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
        else:
            raise ConnectionError("cut")

    return half


@pytest.fixture
def door(tmp_path: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Coordinator, Troubled]]:
    """A coordinator behind a troubled door, and commands that pause for less than people do."""
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0.01)
    there = Coordinator(tmp_path / "home", data)
    there.app = troubled = Troubled(there.app)  # type: ignore[assignment]
    with there.open():
        yield there, troubled


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment."""
    path = tmp_path / "e.yaml"
    path.write_text(json.dumps(EXPERIMENT))
    return path


def test_each_call_has_a_key_of_its_own(door: tuple[Coordinator, Troubled], file: Path) -> None:
    """Start, cancel, resume and invite send one; looking sends none."""
    there, troubled = door
    at = ("--home", there.home)
    run = json_of(tide("run", "start", file, *at, "--json"))["run"]
    for args in (["invite", "--name", "carl"], ["run", "resume", run], ["run", "cancel", run], ["run", "list"]):
        tide(*args, *at)
    keys = [key for _, _, key in troubled.keys]
    assert [(method, bool(key)) for method, _, key in troubled.keys] == [("POST", True)] * 4 + [("GET", False)]
    assert len(set(keys)) == 5


@pytest.mark.parametrize("troubles", [["cut"], ["cut", "503", "cut"], ["502", "cut", "504"]])
def test_a_lost_answer_starts_one_run(door: tuple[Coordinator, Troubled], file: Path, troubles: list[str]) -> None:
    """Whatever becomes of the first answers, there is one run, and its id is what the command prints; the wait is told once."""
    there, troubled = door
    troubled.troubles = troubles
    started = tide("run", "start", file, "--home", there.home)
    (row,) = there.federation.journal.headlines()
    assert started.exit_code == 0 and started.stdout.split()[1] == f"{row.id}."
    assert started.stderr.count(TRYING) == 1 and len(started.stderr.splitlines()) == 1
    assert len({key for _, _, key in troubled.keys}) == 1


def test_lost_answers_to_every_command(door: tuple[Coordinator, Troubled]) -> None:
    """A token that came at the second try is good; a run that was cancelled at the first is no conflict at the second."""
    there, troubled = door
    run = there.start()
    for args in (["invite", "--name", "carl"], ["run", "cancel", run]):
        troubled.troubles = ["cut", "cut"]
        told: dict[str, Any] = json_of(tide(*args, "--home", there.home, "--json"))
        if "token" in told:
            enrol(there.federation.run_service, told["token"], "carl", ("peer",))
        else:
            assert told["status"] == "cancelled"


def test_a_refusal_is_not_sent_again(door: tuple[Coordinator, Troubled], file: Path) -> None:
    there, troubled = door
    ended = tide("run", "start", file, "--home", there.home, "--set", "config.rounds=-1")
    assert ended.exit_code == 2 and TRYING not in ended.stderr and len(troubled.keys) == 1


def test_it_is_given_up_after_a_while(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is known: it may have been done, and how to find out. A look is not repeated at all."""
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(client, "AGAIN_SECONDS", 0.05)
    (tmp_path / "coordinator.json").write_text('{"grpc": "127.0.0.1:1", "http": "http://127.0.0.1:1", "pid": 1}')
    ended = tide("run", "start", file, "--home", tmp_path)
    assert ended.exit_code == 3 and "Trying again for 0 s" in ended.stderr
    assert "Error: No coordinator answers" in ended.stderr and "`tideline run list` what was done" in ended.stderr


def test_waiting_does_not_mend_a_certificate() -> None:
    assert may_pass(Unreachable("No coordinator answers at https://a: [Errno 111] Connection refused"))
    assert not may_pass(Unreachable("No coordinator answers at https://a: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed"))


@pytest.mark.parametrize("troubles", [["cut"], ["", "cut"], ["", "503", "cut"], ["", "", "cut"], ["502", "cut", "", "cut"]])
def test_weights_are_brought_through_troubles(
    door: tuple[Coordinator, Troubled], file: Path, tmp_path: Path, troubles: list[str]
) -> None:
    """Whichever of the look, the file and the start gets no answer: one run begins, from the file, which is there whole."""
    there, troubled = door
    troubled.troubles = troubles
    save_file(nets.weights_of(nets.build(parse(World, EXPERIMENT["world"]))), tmp_path / "net.safetensors")
    output_of(tide("run", "start", file, "--home", there.home, "--set", f"weights={tmp_path / 'net.safetensors'}"))
    (row,) = there.federation.journal.headlines()
    run = there.federation.run_service.find(row.id)
    assert there.federation.parts.size(run.spec.initial_weights) == run.spec.initial_weights_bytes
    assert {method for method, path, _ in troubled.keys if path.startswith("/weights/")} == {"GET", "PUT"}
    assert not any(key for method, _, key in troubled.keys if method == "PUT")


# What the coordinator of before answers, as it was recorded from it: no word about versions, errors in another shape.
JSON = b"content-type: application/json\r\nConnection: close\r\n\r\n"
NOT_FOUND = b'{"error": {"kind": "NotFound", "what": "There is no run \'nosuch\'", "todo": "See the list of runs", '
NOT_FOUND += b'"path": null, "context": {}}}'
HEALTHY = b'{"status":"ok","version":"0.1.0","replicas":1}'
BEFORE = {
    b"/runs": b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 2\r\n" + JSON + b"[]",
    b"/runs/nosuch": b"HTTP/1.1 404 Not Found\r\nserver: uvicorn\r\ncontent-length: 128\r\n" + JSON + NOT_FOUND,
    b"/health": b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 46\r\n" + JSON + HEALTHY,
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
    assert_refuses(tide("run", "list", "--home", there.home), "speaks API 2", "speaks API 9")
