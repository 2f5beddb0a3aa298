"""Handshakes of TLS that never end, at both doors: whoever is honest is answered beside them, and they are cut soon."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance.harness import Net, net
from tests.acceptance.hostile.siege.at_tls import hello, stopped
from tests.acceptance.hostile.siege.attack import closed
from tests.cli.world import tide

pytestmark = pytest.mark.processes
CROWD = 60
CUT_SECONDS = 17.0  # in which a handshake that stops is over: the limit of 10 seconds, and looks that come seldom
MORE_FILES = 40  # descriptors that are still open after it


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Net, Path]]:
    """A coordinator with TLS, and its authority."""
    made = tmp_path_factory.mktemp("tls") / "ca"
    assert tide("tls", "init", "--out", made, "--host", "127.0.0.1").exit_code == 0
    with net(tmp_path_factory.mktemp("half-tls")) as federation:
        federation.coordinator("--tls-cert", str(made / "coordinator.pem"), "--tls-key", str(made / "coordinator.key"))
        yield federation, made / "ca.pem"


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
