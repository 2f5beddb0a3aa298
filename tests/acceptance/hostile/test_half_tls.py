"""Handshakes of TLS that never end, at both doors: whoever is honest is answered beside them, and they are cut soon."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import psutil
import pytest

from tests.acceptance.harness import Net, net
from tests.acceptance.hostile.siege.at_tls import hello, stopped
from tests.acceptance.hostile.siege.attack import closed, said
from tests.acceptance.raw import Raw
from tests.cli.world import tide

pytestmark = pytest.mark.processes
CROWD = 60
CUT_SECONDS = 17.0  # in which a handshake that stops is over: the limit of 10 seconds, and looks that come seldom
GROWN_BYTES = 96 << 20  # resident memory that a crowd may add
MORE_FILES = 40  # descriptors that are still open after it


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Net, Path]]:
    """A coordinator with TLS, and its authority."""
    made = tmp_path_factory.mktemp("tls") / "ca"
    assert tide("tls", "init", "--out", made, "--host", "127.0.0.1").exit_code == 0
    with net(tmp_path_factory.mktemp("half-tls")) as federation:
        federation.coordinator("--tls-cert", str(made / "coordinator.pem"), "--tls-key", str(made / "coordinator.key"))
        yield federation, made / "ca.pem"


def trickle(lines: list[socket.socket], content: bytes, until: float) -> int:
    """Say a byte over each line now and then, as if the handshake went on; how many lines were cut meanwhile."""
    gone = 0
    for at in range(len(content)):
        left = [each for each in lines if each.fileno() >= 0]
        gone += closed(left, 0.3)
        for each in left:
            if not said(each, content[at : at + 1]):
                each.close()
        if time.monotonic() > until or not left:
            break
    return gone


def invited(federation: Net, authority: Path, name: str) -> str:
    key = (federation.folder / "admin.key").read_text().strip()
    answer = httpx.post(
        f"https://127.0.0.1:{federation.http}/invites",
        json={"name": name, "ttl_seconds": 600},
        headers={"Authorization": f"Bearer {key}"},
        verify=ssl.create_default_context(cafile=str(authority)),
    )
    return str(answer.raise_for_status().json()["token"]).rpartition(".")[2]


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_handshake_that_trickles(besieged: tuple[Net, Path], door: str) -> None:
    """It has the same seconds in all, however it goes on; an honest agent's beats are answered, and memory is bounded."""
    federation, authority = besieged
    process, port = psutil.Process(federation.running["coordinator"].pid), getattr(federation, door)
    trusted = grpc.ssl_channel_credentials(authority.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{federation.grpc}", trusted) as channel:
        agent = Raw(channel, f"honest-{door}")
        agent.enrol(invited(federation, authority, agent.name))
        memory, files, began = process.memory_info().rss, process.num_fds(), time.monotonic()
        lines = stopped(port, CROWD, b"")
        agent.beat()
        trickle(lines, hello(), began + CUT_SECONDS)
        agent.beat()
        assert not [each for each in lines if each.fileno() >= 0], f"lines are open after {time.monotonic() - began:.0f} s"
        federation.until(lambda: process.num_fds() - files < MORE_FILES, "descriptors to be closed")
        assert process.memory_info().rss - memory < GROWN_BYTES


@pytest.mark.smoke
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_handshake_that_stops(besieged: tuple[Net, Path], door: str, share: float) -> None:
    """A crowd of them, after the first message or within it, ends by itself within seconds, and nothing is left open."""
    federation, authority = besieged
    trusting = ssl.create_default_context(cafile=str(authority))
    process, port = psutil.Process(federation.running["coordinator"].pid), getattr(federation, door)
    files, first, began = process.num_fds(), hello(), time.monotonic()
    lines = stopped(port, CROWD, first[: int(len(first) * share)])
    for _ in range(5):
        asked = time.monotonic()
        assert httpx.get(f"https://127.0.0.1:{federation.http}/health", verify=trusting, timeout=5.0).json()["status"] == "ok"
        assert time.monotonic() - asked < 5.0
    gone = closed(lines, CUT_SECONDS - (time.monotonic() - began))
    assert gone == len(lines) == CROWD, f"{gone} of {len(lines)} lines were cut after {time.monotonic() - began:.0f} s"
    federation.until(lambda: process.num_fds() - files < MORE_FILES, "descriptors to be closed")
    assert (federation.home / "coordinator.log").stat().st_size < 1 << 20
    for each in lines:
        each.close()
