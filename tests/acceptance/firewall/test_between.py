"""What stands between an agent and its coordinator: each says what is wrong and what to do, and none ends an agent for good."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.firewall.answering import PAGE, answer, answering
from tests.acceptance.firewall.nginx import needs_nginx, nginx
from tests.acceptance.firewall.proxy import connecting
from tests.server.agents_http.port import http_port_of, until_polled
from tests.server.grpc_port import grpc_port_of
from tests.services import free_port
from tideline.archive.digests import digest_of
from tideline.archive.parts import MemoryParts
from tideline.client.certificates import issue_coordinator
from tideline.core.errors import ConfigRefused, Unreachable
from tideline.core.run import OrderId, RunId
from tideline.core.tokens import place_of
from tideline.engine.model.orders import Order
from tideline.engine.simulation.federation import Federation
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink, authority, proxy_for
from tideline_agent.link.outcomes import FullThere
from tideline_agent.link.proxies import Proxy, proxy_in

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy")


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, int]]:
    with http_port_of() as made:
        yield made


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


def link_to(address: str, proxy: str = "", roots: bytes | None = None, name: str = "ann") -> closing[GrpcLink]:
    return closing(GrpcLink(Endpoints((address,), roots, proxy=proxy), name, Keys.made(), threading.Event()))


def refusal(address: str, proxy: str = "", roots: bytes | None = None) -> Unreachable:
    """What it says to a first call. All of these are outages to an agent: it tries again."""
    with link_to(address, proxy, roots) as link, pytest.raises(Unreachable) as caught:
        link.hello()
    assert caught.value.todo
    return caught.value


@pytest.mark.parametrize(
    ("said", "what", "todo"),
    [
        (answer("200 OK", PAGE, "Content-Type: text/html"), "answers with a web page", "Sign in with a browser"),
        (answer("302 Found", b"", "Location: https://login.example/"), "sends us elsewhere (302), to https", "sign-in page"),
        (answer("404 Not Found", PAGE, "Content-Type: text/html; charset=utf-8"), "answers 404 with a web page", "its prefix"),
        (answer("401 Unauthorized", b"{}", "Tideline-Version: 1"), "takes no agents over HTTP", "--agents-over-http"),
        (answer("407 Proxy Authentication Required"), "asks for a user name and a password (407)", "--proxy"),
        (answer("413 Payload Too Large", PAGE), "takes no bodies of that size (413)", "client_max_body_size 0"),
        (answer("502 Bad Gateway", PAGE), "gets no answer of the coordinator (502)", "See that the coordinator runs"),
        (answer("504 Gateway Timeout", PAGE), "gets no answer of the coordinator (504)", "60 s or longer"),
        (answer("200 OK", b"\xff" * 9), "answers 200 and is no coordinator's port", "its prefix"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "was cut", "tried again"),
        (b"", "was cut", "tried again"),
    ],
    ids=["portal", "redirect", "404", "off", "407", "413", "502", "504", "nobody", "ssh", "hangs up"],
)
def test_who_answers_instead(said: bytes, what: str, todo: str) -> None:
    with answering(said) as port:
        error = refusal(f"http://127.0.0.1:{port}")
    assert what in error.what and todo in error.todo


def test_nobody_listens() -> None:
    port = free_port()
    assert "does not answer" in refusal(f"https://127.0.0.1:{port}").what
    with connecting() as proxy:
        error = refusal(f"https://127.0.0.1:{port}", proxy.url)
        assert f"The proxy 127.0.0.1:{proxy.port} cannot reach" in error.what and "(502" in error.what
    error = refusal("https://coordinator.example.org", f"http://127.0.0.1:{port}")
    assert f"The proxy 127.0.0.1:{port} does not answer" in error.what and "--proxy names the right one" in error.todo


@pytest.mark.parametrize("address", ["https://coordinator.example.org", "coordinator.example.org:7800"])
def test_a_proxy_asks_for_a_password(address: str) -> None:
    """And one does not take ours; and one does not let us through. The certificate's fetch says the same."""
    with connecting() as proxy:
        wrong = proxy.url.replace("p%40ss", "word")
        if address.startswith("https"):
            assert "asks for a user name and a password (407)" in refusal(address, proxy.bare).what
            assert "does not accept the user name 'ann'" in refusal(address, wrong).what
        for url, words in ((proxy.bare, "asks for a user name"), (wrong, "does not accept the user name")):
            with pytest.raises(Unreachable, match=words):
                authority(Endpoints((address,), proxy=url), bytes(32))
    with connecting(answer("403 Forbidden", PAGE)) as proxy, pytest.raises(Unreachable, match=r"does not let calls to .* \(403"):
        authority(Endpoints((address,), proxy=proxy.url), bytes(32))


def test_a_certificate_of_somebody_else(tmp_path: Path) -> None:
    """A proxy that opens TLS shows a certificate of its own authority."""
    issue_coordinator(tmp_path / "theirs", ["localhost"])
    issue_coordinator(tmp_path / "ours", ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "theirs" / "coordinator.pem", tmp_path / "theirs" / "coordinator.key")
    with answering(answer("200 OK", PAGE), context) as port:
        error = refusal(f"https://localhost:{port}", roots=(tmp_path / "ours" / "ca.pem").read_bytes())
        assert "is not to be trusted: self-signed certificate in certificate chain" in error.what
        assert "--ca" in error.todo and "a proxy opens TLS on the way" in error.todo
        error = refusal(f"https://127.0.0.1:{port}", roots=(tmp_path / "theirs" / "ca.pem").read_bytes())
        assert "IP address mismatch" in error.what
    with answering(answer("400 Bad Request", PAGE), reads=False) as port:
        assert "does not agree on TLS" in refusal(f"https://localhost:{port}").what


def enrolled(federation: Federation, link: GrpcLink) -> None:
    link.enrol(federation.run_service.invite(link.name, {}, 60.0), ("source",))


@pytest.mark.parametrize("tls", [True, False])
def test_grpc_goes_through_a_proxy_too(tmp_path: Path, tls: bool) -> None:
    """By gRPC's own support, with a password; and the certificate's fetch, which a token calls for."""
    issue_coordinator(tmp_path, ["localhost"])
    key, chain = (tmp_path / "coordinator.key").read_bytes(), (tmp_path / "coordinator.pem").read_bytes()
    with grpc_port_of(tls=(key, chain) if tls else None) as (federation, port), connecting() as proxy:
        address = f"localhost:{port}"
        with link_to(address, proxy.url, (tmp_path / "ca.pem").read_bytes() if tls else None) as link:
            enrolled(federation, link)
            assert link.beat({}).gone == ()
        assert set(proxy.tunnels) == {address}


@needs_nginx
def test_a_body_limit_is_waited_out(tmp_path: Path, opened: tuple[Federation, int]) -> None:
    """Nginx as it comes takes 1 MB: a push is put off, and says what to change."""
    federation, port = opened
    content = bytes(2 << 20)
    parts = MemoryParts()
    parts.put([content])
    order = Order(OrderId("order"), RunId("run"), 0, "train", "train", 1, (), 0, -1, 60.0, {})
    with (
        nginx(tmp_path, port, change=("client_max_body_size 0;", "")) as at,
        link_to(f"https://localhost:{at}", roots=(tmp_path / "tls" / "ca.pem").read_bytes()) as link,
    ):
        enrolled(federation, link)
        link.stop.set()  # nobody waits before the next try
        with pytest.raises(FullThere, match=r"takes no bodies of that size \(413\)"):
            link.push(order, ((digest_of([content]), len(content), 0),), parts)


def test_a_prefix(opened: tuple[Federation, int]) -> None:
    with answering(answer("404 Not Found")) as port:
        error = refusal(f"http://127.0.0.1:{port}/tideline/")
    assert f"http://127.0.0.1:{port}/tideline/" in error.what


def test_the_proxy_of_the_environment(bare: pytest.MonkeyPatch) -> None:
    """By the scheme, but for this machine and what NO_PROXY names; an option goes first."""
    far, here, grpc = map(place_of, ("https://coordinator.example.org", "https://127.0.0.1:8443", "coordinator.example.org:7800"))
    assert proxy_for(far) is None
    bare.setenv("https_proxy", "http://proxy.site:3128")
    found = proxy_for(far)
    assert found == proxy_for(grpc) == Proxy(host="proxy.site", port=3128, source="HTTPS_PROXY")
    assert proxy_for(here) is None and proxy_for(far, "off") is None
    assert proxy_for(here, "http://ann:p%40ss@other:8080") == Proxy(host="other", port=8080, user="ann", password="p@ss")
    bare.setenv("NO_PROXY", "example.org")
    assert proxy_for(far) is None


@pytest.mark.parametrize("text", ["socks5://proxy:1080", "https://proxy:443", "http://", "http://proxy:port", "http://a:b@:3128"])
def test_what_is_no_proxy(text: str) -> None:
    with pytest.raises(ConfigRefused, match="--proxy names no HTTP proxy") as caught:
        proxy_in(text, "--proxy")
    assert "a:b" not in str(caught.value)
    assert "word" not in repr(Proxy(host="h", port=1, user="u", password="word"))


def test_a_poll_ends_when_the_agent_stops(opened: tuple[Federation, int]) -> None:
    """At once: nobody waits for the end of a poll, which takes 15 seconds."""
    federation, port = opened
    with link_to(f"http://127.0.0.1:{port}", name="bob") as link:
        enrolled(federation, link)
        heard = threading.Thread(target=lambda: list(link.orders()))
        heard.start()
        until_polled(port)
        link.close()
        heard.join(5.0)
        assert not heard.is_alive()
