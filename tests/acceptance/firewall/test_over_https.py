"""Real processes over one HTTPS port, through a proxy with a password and a reverse proxy: the same bytes as over gRPC."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.firewall.nginx import alerts, needs_nginx, nginx
from tests.acceptance.firewall.proxy import Connecting, connecting
from tests.acceptance.harness import Net
from tests.acceptance.test_bulk_lane import LARGE, METHODS, NAMES, calls, coming, experiment, joined
from tests.acceptance.test_bulk_lane import expected as expected
from tests.acceptance.test_bulk_lane import undisturbed as undisturbed

pytestmark = pytest.mark.processes
QUIET = ("peer closed connection", "client closed", "upstream prematurely")


class Web(Net):
    """Agents call over HTTPS."""

    url = ""
    options: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return self.url or f"http://127.0.0.1:{self.http}"

    def agent(self, name: str, data: Path, role: str = "source", *more: str) -> None:
        """Invite and start an agent, with what it needs to get out."""
        super().agent(name, data, role, *self.options, *more)


@contextmanager
def web(home: Path) -> Iterator[Web]:
    """A federation that ends with the block, its coordinator started."""
    made = Web(home, METHODS)
    try:
        made.coordinator("--agents-over-http", "--trusted-proxies", "127.0.0.1")
        yield made
    finally:
        made.stop()


@contextmanager
def fenced(home: Path) -> Iterator[tuple[Web, Connecting]]:
    """Agents that reach nothing but a proxy, which knows the way to nginx."""
    with web(home) as federation, nginx(home, federation.http) as port, connecting() as proxy:
        federation.url = f"https://localhost:{port}"
        federation.options = ("--ca", str(home / "tls" / "ca.pem"), "--proxy", proxy.url)
        yield federation, proxy


@pytest.mark.smoke
def test_a_run_over_http_alone(tmp_path: Path, expected: str) -> None:
    with web(tmp_path) as federation:
        joined(federation, tmp_path)
        federation.completed(federation.run(experiment()), expected)
        assert not calls(federation), "nothing came over gRPC"


@needs_nginx
def test_a_run_through_proxy_and_nginx(tmp_path: Path, expected: str) -> None:
    """Every byte goes through the proxy, to nginx and nowhere else; and the run ends as over gRPC."""
    with fenced(tmp_path) as (federation, proxy):
        joined(federation, tmp_path)
        federation.completed(federation.run(experiment()), expected)
        assert not calls(federation) and set(proxy.tunnels) == {federation.url.removeprefix("https://")}
        assert proxy.passed > 2 * len(NAMES) * 3 * 8_000_000
        assert not [each for each in alerts(tmp_path) if not any(words in each for words in QUIET)]
        for name in NAMES:
            assert "p%40ss" not in federation.log(name) and "p@ss" not in federation.log(name)


@needs_nginx
@pytest.mark.parametrize(
    ("who", "where"),
    [
        ("coordinator", "up"),
        ("ann", "down"),
        pytest.param("coordinator", "down", marks=pytest.mark.nightly(job="journeys")),
        pytest.param("ann", "up", marks=pytest.mark.nightly(job="journeys")),
    ],
)
def test_a_kill_in_the_middle_of_a_transfer(tmp_path: Path, undisturbed: str, who: str, where: str) -> None:
    """kill -9 of either end while bytes come in at the one or the other: the run goes on to the same bytes."""
    with fenced(tmp_path) as (federation, _):
        joined(federation, tmp_path)
        run = federation.run(experiment(LARGE))
        folder = federation.folder / "parts" if where == "up" else federation.home / "home-ann" / "runs" / run / "parts"
        federation.until(lambda: any(coming(folder)), "a transfer")
        victim = federation.running[who]
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        federation.again(who)
        if who == "coordinator":
            federation.ready()
        federation.completed(run, undisturbed)
