"""Crowds at a coordinator's doors, in small: each is refused or borne, and nothing is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.acceptance.harness import Net, net
from tests.acceptance.hostile.behind_tls import channel, start_with_tls
from tests.acceptance.hostile.liar import Liar
from tests.acceptance.hostile.siege import ATTACKS, Target

pytestmark = pytest.mark.processes
GROWN_BYTES = 96 << 20  # resident memory that an attack may add
MORE_FILES = 40  # descriptors that are still open a while after it
LOG_BYTES = 1 << 20
PATIENCE_SECONDS = 60.0
# Nothing of these is refused in its small size: it is waited for, or kept waiting, until it ends.
BORNE = {
    *("silent connections", "silent HTTP/2 connections", "calls that are reset at once", "heads that come slowly"),
    *("bodies that come slowly", "watchers that never read", "answers that nobody reads", "headers without an end"),
    *("beats of a thousand orders", "fetches that never read", "pushes that stop", "handshakes that stop"),
    *("handshakes that come slowly", "handshakes that are left"),
}


@pytest.fixture(scope="module")
def besieged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Net, Target]]:
    """A coordinator of its own, and a client that signs."""
    with net(tmp_path_factory.mktemp("siege")) as federation:
        authority = start_with_tls(federation) if request.param == "tls" else None
        if authority is None:
            federation.coordinator()
        with channel(federation.address, authority) as line:
            liar = Liar(line).begin(federation)
            liar.over(liar.at_work())  # whatever is loaded at first use
            key = (federation.folder / "admin.key").read_text().strip()
            yield federation, Target(federation.grpc, federation.http, key, liar)


def soon(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("besieged", "name"), [("tls" if attack.tls else "plain", name) for name, attack in ATTACKS.items()], indirect=["besieged"]
)
def test_a_crowd(besieged: tuple[Net, Target], name: str) -> None:
    """Whoever is honest is answered behind it, and the coordinator is as it was."""
    federation, target = besieged
    process = psutil.Process(federation.running["coordinator"].pid)
    memory, files = process.memory_info().rss, process.num_fds()
    outcome = ATTACKS[name].make(target, ATTACKS[name].small)
    assert outcome.tried and (outcome.refused > 0 or name in BORNE), outcome
    soon(lambda: federation.client().get("/health")["status"] == "ok", "/health")
    target.liar.beat()
    assert process.memory_info().rss - memory < GROWN_BYTES
    soon(lambda: process.num_fds() - files < MORE_FILES, "descriptors to be closed")
    assert (federation.home / "coordinator.log").stat().st_size < LOG_BYTES
    soon(lambda: not target.liar.beat().gone and not left_in(federation), "uploads to be forgotten")


def left_in(federation: Net) -> list[str]:
    return [each.name for each in (federation.folder / "parts" / "tmp").iterdir()]
