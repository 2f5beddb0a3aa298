"""A webhook against a real receiver: what it may do, and what it cannot do to us."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.receivers import certified, receiving
from tests.server.loops import LONG
from tideline.core.errors import ConfigRefused
from tideline.engine.model.notices import Form, Kind, Notice, Outgoing, Target
from tideline_server.notify.addresses import Allowed, allowed_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.webhooks import MOST_READ, Webhooks

HERE = allowed_in(["127.0.0.0/8"])
SOON = Webhooks(HERE, seconds=0.5)
ONE = Outgoing("msg_1", "t", Notice(kind=Kind.FAILED, at=5.0, words="Run x has failed", source="1"))


def test_a_notice_arrives_with_its_name_and_signature() -> None:
    """In the target's form."""
    target = Target(
        id="t", name="t", project="", url="", form=Form.JSON, kinds=(Kind.FAILED,), secret="whsec_c2VjcmV0", created=0.0
    )
    with receiving() as receiver:
        sender = NoticeSender(Webhooks(HERE), version="9.9")
        found = sender.send(Target(**{**vars(target), "url": receiver.url}), ONE, 1000.7)
    assert found.taken and found.words == "HTTP 204"
    [got] = receiver.got
    assert got.path == "/hook" and json.loads(got.body)["words"] == "Run x has failed"
    assert (got.headers["webhook-id"], got.headers["webhook-timestamp"]) == ("msg_1", "1000")
    assert got.headers["webhook-signature"].startswith("v1,") and got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"] == "tideline/9.9" and got.headers["host"] == f"127.0.0.1:{receiver.port}"


ANSWERS: tuple[tuple[int, dict[str, str], str, float], ...] = (
    (500, {}, "HTTP 500", 0.0),
    (404, {}, "HTTP 404", 0.0),
    (410, {}, "HTTP 410", 0.0),
    (429, {"Retry-After": "90"}, "HTTP 429", 90.0),
    (503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "HTTP 503", 0.0),
    (301, {"Location": "http://127.0.0.1:1/"}, "HTTP 301: redirects are not followed", 0.0),
    (307, {"Location": "http://169.254.169.254/latest"}, "HTTP 307: redirects are not followed", 0.0),
)


def test_what_a_receiver_answers(subtests: pytest.Subtests) -> None:
    """Its status is all that is noted. Nobody is called because a receiver says so."""
    with receiving() as receiver:
        for status, headers, words, pause in ANSWERS:
            with subtests.test(str(status)):
                receiver.answers, receiver.headers = [status], headers
                receiver.got.clear()
                found = Webhooks(HERE).post(receiver.url, {}, b"{}")
                assert (found.taken, found.words, found.gone, found.pause) == (False, words, status == 410, pause)
                assert len(receiver.got) == 1


def test_who_is_not_there() -> None:
    """Nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert SOON.post(f"http://127.0.0.1:{port}/", {}, b"").words == "It cannot be reached (ConnectError)"


def endless(request: BaseHTTPRequestHandler) -> None:
    """A body without an end."""
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b"x" * 65536)


def test_a_body_without_an_end_is_cut() -> None:
    """After as much as is read; the status counts."""
    with receiving() as receiver:
        receiver.answers = [endless]
        found = Webhooks(HERE).post(receiver.url, {}, b"{}")
    assert found.taken and MOST_READ < 10**6


def dripping(gate: threading.Event) -> socket.socket:
    """A server that answers a byte now and then, until the gate opens; its status line has no end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        line, _ = listener.accept()
        with line:
            while not gate.wait(0.05):
                try:
                    line.sendall(b"H")
                except OSError:
                    return

    threading.Thread(target=serve).start()
    return listener


def test_a_receiver_that_hangs_or_drips_costs_the_deadline() -> None:
    """And no more, although each byte comes in time."""
    gate = threading.Event()
    with dripping(gate) as slow, socket.create_server(("127.0.0.1", 0)) as silent:
        try:
            for listener in (slow, silent):
                found = SOON.post(f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, b"{}")
                assert not found.taken and found.words in (
                    "It did not answer within 0.5 s",
                    "It cannot be reached (RemoteProtocolError)",
                )
        finally:
            gate.set()


def test_what_is_no_http() -> None:
    """A line that means nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(65536)
                line.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        found = SOON.post(f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, b"{}")
        thread.join()
    assert found.words == "It cannot be reached (RemoteProtocolError)"


def test_a_name_that_leads_elsewhere_the_second_time_is_not_asked_a_second_time() -> None:
    """It is resolved once, and what was looked at is what is called: a name that turns private is refused at that try."""
    asked = list[str]()

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    with receiving() as receiver:
        url = f"https://turning.example:{receiver.port}/"
        hooks = Webhooks(Allowed(), rebinding, seconds=0.5)
        hooks.check(url)
        found = hooks.post(url, {}, b"{}")
        assert found.words == "turning.example has no address to which notices may go" and receiver.got == []
        assert asked == ["turning.example"] * 2
        with pytest.raises(ConfigRefused, match="no address to which notices may go"):
            hooks.check(url)


def test_a_name_is_called_at_the_address_that_was_looked_at(tmp_path: Path) -> None:
    """Over TLS with the name's own certificate: the address is what is called, the name is what is proven."""
    server, client = certified(tmp_path, "hooks.example")
    asked = list[str]()

    def here(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with receiving(server) as receiver:
        hooks = Webhooks(HERE, here, lambda: client, LONG)
        assert hooks.post(f"https://hooks.example:{receiver.port}/a?b=c", {}, b"{}").taken
        assert receiver.got[0].path == "/a?b=c" and receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert asked == ["hooks.example"]
        other = hooks.post(f"https://other.example:{receiver.port}/", {}, b"{}")
        assert other.words == "It cannot be reached (ConnectError)" and len(receiver.got) == 1
        stranger = Webhooks(HERE, here, ssl.create_default_context, LONG)
        assert not stranger.post(f"https://hooks.example:{receiver.port}/", {}, b"{}").taken


def test_the_next_address_is_tried_where_the_first_is_dead() -> None:
    """As browsers do."""
    with receiving() as receiver:
        hooks = Webhooks(allowed_in(["127.0.0.0/8"]), lambda host, port: ["127.0.0.2", "127.0.0.1"], seconds=LONG)
        assert hooks.post(f"http://two.example:{receiver.port}/", {}, b"{}").taken


NO_ADDRESSES = (
    *("ftp://hooks.example/", "hooks.example", "https://", "https://user:secret@hooks.example/", "https://hooks.example/#part"),
    *("https://hooks.example/a b", "https://hooks.example:0/", "https://hooks.example:99999/", "https://hooks.example/\r\nX: y"),
    *("https://h\u00f6\u00f6ks.example/", "https://[::1", "file:///etc/passwd", ""),
)


def test_what_is_no_address(subtests: pytest.Subtests) -> None:
    """Refused without a look at any name."""
    hooks = Webhooks(HERE, lambda host, port: pytest.fail("it was resolved"))
    for url in NO_ADDRESSES:
        with subtests.test(url), pytest.raises(ConfigRefused, match="url is no address of a webhook") as caught:
            hooks.check(url)
        assert caught.value.context["path"] == "url"
