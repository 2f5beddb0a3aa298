"""The agents' port over HTTP as processes have it: who is believed about addresses, certificates of agents, and silence."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.harness import Net
from tests.acceptance.test_bulk_lane import METHODS
from tests.acceptance.test_stalls import CONTENT, DIGEST, FILES, HALF, ORDER
from tests.cli.world import tide
from tideline.archive.parts import MemoryParts
from tideline.client.certificates import issue_client, issue_coordinator
from tideline.client.http import Client, Endpoint
from tideline.core.errors import Cancelled, IdentityRefused, Unreachable
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink, https_line
from tideline_protos.v1 import federation_pb2 as pb

HELLO = pb.HelloRequest(protocol=2).SerializeToString()


def greeted(port: int, origin: str) -> int:
    """The status of a greeting that a proxy passes on for somebody."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/x-protobuf", "X-Forwarded-For": origin}
    line.request("POST", "/agents/v1/Hello", HELLO, headers)
    status = line.getresponse().status
    line.close()
    return status


@pytest.mark.processes
@pytest.mark.parametrize(("trusted", "believed"), [("127.0.0.1", True), ("10.0.0.1", False), (None, True)])
def test_who_says_where_a_call_comes_from(tmp_path: Path, trusted: str | None, believed: bool) -> None:
    """A proxy that is named, or without the option one on this machine; whoever else says so is counted himself."""
    made = Net(tmp_path, METHODS)
    try:
        made.coordinator("--agents-over-http", "--rate-enrol", "2", *(("--trusted-proxies", trusted) if trusted else ()))
        assert [greeted(made.http, "192.0.2.7") for _ in range(3)] == [200, 200, 429]
        assert greeted(made.http, "192.0.2.8") == (200 if believed else 429)
    finally:
        made.stop()


def test_what_is_no_address_of_a_proxy(tmp_path: Path) -> None:
    said = tide("coordinator", "--home", tmp_path, "--grpc-port", "0", "--http-port", "0", "--trusted-proxies", "proxy.example")
    assert said.exit_code == 2 and "'proxy.example' is no address" in said.output


@pytest.mark.processes
def test_agents_show_their_certificates(tmp_path: Path) -> None:
    """Where the coordinator asks for them: one of the client's name, while users need none."""
    issue_coordinator(tmp_path / "tls", ["127.0.0.1"])
    for name in ("ann", "bob"):
        issue_client(tmp_path / "tls", name)
    tls = {name: tmp_path / "tls" / name for name in ("coordinator.pem", "coordinator.key", "ca.pem")}
    made = Net(tmp_path, METHODS)
    given = ("--tls-cert", tls["coordinator.pem"], "--tls-key", tls["coordinator.key"], "--tls-client-ca", tls["ca.pem"])
    try:
        made.coordinator("--agents-over-http", *map(str, given))
        made._clients["coordinator"] = Client.of(Endpoint(home=made.folder, ca=tls["ca.pem"]))
        token = made.client().post("/invites", {"name": "ann", "ttl_seconds": 600})["token"]
        secret = token.removeprefix("tide1_")[:32]
        for whose, words in (
            ("", "The certificate is that of no client"),
            ("bob", "The certificate is that of bob"),
            ("ann", ""),
        ):
            pair = [(tmp_path / "tls" / f"{whose}.{kind}").read_bytes() for kind in ("key", "pem")] if whose else None
            own = None if pair is None else (pair[0], pair[1])
            there = Endpoints((f"https://127.0.0.1:{made.http}",), tls["ca.pem"].read_bytes(), own=own)
            with closing(GrpcLink(there, "ann", Keys.made(), threading.Event())) as link:
                if not words:
                    assert link.enrol(secret, ("source",)).standing == "approved"
                    continue
                with pytest.raises(IdentityRefused, match=words):
                    link.enrol(secret, ("source",))
    finally:
        made.stop()


class Mute(http.server.BaseHTTPRequestHandler):
    """A coordinator that stops in its first answer to each call, until it is closed."""

    protocol_version = "HTTP/1.1"
    asked: list[pb.FetchRequest]
    taken: list[int]
    over: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        call = self.path.rpartition("/")[2]
        if call == "Hello":
            self.say(pb.HelloReply(protocol=2, oldest=2, version="test", time_ms=1).SerializeToString())
        elif call == "Fetch":
            request = pb.FetchRequest.FromString(body)
            self.asked.append(request)
            if len(self.asked) == 1:
                self.say(CONTENT[:HALF], len(CONTENT))
                self.over.wait()
            else:
                self.say(CONTENT[request.parts[0].offset :])
        else:
            self.taken.append(len(body))
            self.over.wait()

    def say(self, content: bytes, announced: int | None = None) -> None:
        """An answer, or the beginning of one."""
        self.send_response(200)
        for name, value in (("Tideline-Agents", "1"), ("Content-Length", str(announced or len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Mute], str]]:
    """The coordinator, and an agent with little patience."""
    monkeypatch.setattr(https_line, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(https_line, "KEEPING_SECONDS", 0.5)
    monkeypatch.setattr(Mute, "asked", [], raising=False)
    monkeypatch.setattr(Mute, "taken", [], raising=False)
    monkeypatch.setattr(Mute, "over", threading.Event(), raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mute) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Mute, f"http://127.0.0.1:{server.server_address[1]}"
        Mute.over.set()
        server.shutdown()
        thread.join()


def test_a_fetch_that_stops_goes_on(mute: tuple[type[Mute], str]) -> None:
    """It is asked again from where it stopped, and what came before is not sent twice."""
    there, address = mute
    parts = MemoryParts()
    with closing(GrpcLink(Endpoints((address,)), "ann", Keys.made(), threading.Event())) as link:
        link.fetch(ORDER, FILES, parts)
    assert bytes(parts.view(DIGEST)) == CONTENT
    assert [request.parts[0].offset for request in there.asked] == [0, HALF]


def test_a_push_that_is_never_acknowledged_is_given_up(mute: tuple[type[Mute], str]) -> None:
    """All bytes were taken and nobody said so: the next report tells where to go on."""
    there, address = mute
    parts = MemoryParts()
    parts.put([CONTENT])
    link = GrpcLink(Endpoints((address,)), "ann", Keys.made(), threading.Event())
    with closing(link), pytest.raises(Unreachable, match="has fallen silent"):
        link.push(ORDER, ((DIGEST, len(CONTENT), 0),), parts)
    assert there.taken[0] > len(CONTENT)


def test_a_transfer_ends_with_its_order(mute: tuple[type[Mute], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https_line, "SILENCE_SECONDS", 60.0)
    there, address = mute
    with closing(GrpcLink(Endpoints((address,)), "ann", Keys.made(), threading.Event())) as link:
        ended: list[BaseException] = []

        def fetch() -> None:
            try:
                link.fetch(ORDER, FILES, MemoryParts())
            except Cancelled as error:
                ended.append(error)

        thread = threading.Thread(target=fetch)
        thread.start()
        while not there.asked:
            thread.join(0.01)
        link.give_up(ORDER.id)
        thread.join(10.0)
        assert not thread.is_alive() and ended
