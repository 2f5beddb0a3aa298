"""Lies to a coordinator that is at work: each is refused by name, its memory stays flat, and honest runs do not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from tests.acceptance.conftest import SITES, start_all
from tests.acceptance.harness import Net, net
from tests.acceptance.hostile.calls import CALLS
from tests.acceptance.hostile.files import FILES
from tests.acceptance.hostile.liar import Liar, Poller
from tests.acceptance.hostile.requests import REQUESTS
from tests.acceptance.test_same_bytes import experiment, simulated
from tests.server.agents_http.port import Channel

pytestmark = pytest.mark.processes
LIES = CALLS | FILES
QUICK = (
    *("endless role", "one role again and again", "version with a NUL", "digest of other bytes", "announced too large"),
    *("part at a join", "parts beyond the contract", "order of another client", "thousands of metrics"),
    *("half a million files", "half a million roles", "deep facts", "overlapping tensors", "gzip bomb as a part"),
    *("weights that are no numbers", "one part very often", "features of another width", "atoms of another shape"),
    "no samples",
)
FLAT_BYTES = 96 << 20  # that memory may have grown by after a table of lies, and how much more it may be meanwhile
PEAK_BYTES = 640 << 20
MORE_FILES = 40  # open ones: connections of lies that are just being closed
SLOWER = 10.0  # times, that honest runs may take beside the lies on a machine of two cores


def knock(federation: Net, name: str) -> None:
    """Send a request that lies, and hold the answer to what the table says."""
    lie = REQUESTS[name]
    status, said = lie.sent(federation.http, (federation.folder / "admin.key").read_text().strip())
    where = f"{said.get('detail')} {said.get('path')}"
    assert (status, said.get("kind")) == (lie.status, lie.kind) and lie.words in where, (status, said)


def told(liar: Liar, name: str) -> None:
    """Tell a lie, and hold the answer to what the table says."""
    lie = LIES[name]
    kind, words = lie.tell(liar)
    assert kind == lie.kind and lie.words in words, (kind, words)


@pytest.fixture(scope="module", params=["grpc", "https"])
def liar(coordinator: Net, request: pytest.FixtureRequest) -> Iterator[Liar]:
    """A coordinator, and a client that lies, over either link."""
    if request.param == "https":
        yield Poller(Channel(coordinator.http)).begin(coordinator, "poller")
        return
    with grpc.insecure_channel(coordinator.address) as channel:
        yield Liar(channel).begin(coordinator)


@pytest.mark.parametrize("name", QUICK)
def test_some_lies(liar: Liar, name: str) -> None:
    told(liar, name)


@pytest.mark.nightly(job="journeys")
@pytest.mark.parametrize("name", sorted(LIES.keys() - set(QUICK)))
def test_the_other_lies(liar: Liar, name: str) -> None:
    told(liar, name)


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_that_lie(coordinator: Net, name: str) -> None:
    knock(coordinator, name)
    assert coordinator.client().get("/health")["status"] == "ok"


class Watch(threading.Thread):
    """Looks at a coordinator and its worker again and again."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.over, self.peak, self._process = threading.Event(), 0, psutil.Process(pid)

    def bytes(self) -> int:
        found = [self._process, *self._process.children()]
        return sum(each.memory_info().rss for each in found)

    def files(self) -> int:
        """Files and sockets that the coordinator has open."""
        return self._process.num_fds()

    def run(self) -> None:
        while not self.over.wait(0.05):
            self.peak = max(self.peak, self.bytes())


@contextmanager
def watched(federation: Net) -> Iterator[Watch]:
    """What a coordinator takes meanwhile."""
    watch = Watch(federation.running["coordinator"].pid)
    watch.start()
    try:
        yield watch
    finally:
        watch.over.set()
        watch.join()


def honest(federation: Net, seeds: range) -> tuple[dict[int, str], float]:
    """Digests of honest runs by seed, and the seconds that they took."""
    began = time.monotonic()
    runs = {seed: federation.run(experiment("fedavg", seed=seed)) for seed in seeds}
    ends = {seed: federation.ended(run)["state_digest"] for seed, run in runs.items()}
    return ends, time.monotonic() - began


def all_lies(liar: Liar) -> None:
    for name in LIES:
        told(liar, name)
    for name in REQUESTS:
        knock(liar.federation, name)


def meanwhile(work: Callable[[], Any], until: Callable[[], bool]) -> int:
    """How often a work was done until something else is over; at least once."""
    times = 0
    while not times or not until():
        work()
        times += 1
    return times


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator that lets in any number of calls, and honest agents."""
    with net(tmp_path_factory.mktemp("beside")) as federation:
        start_all(federation, data, "--rate", "0", "--rate-enrol", "0")
        yield federation


@pytest.mark.nightly(job="journeys")
def test_all_lies_beside_honest_runs(sites: Net, data: dict[str, Path]) -> None:
    """Honest runs end with the bytes of a simulation, not much later; memory and open files are as before."""
    federation, seeds = sites, range(40, 46)
    with grpc.insecure_channel(federation.address) as channel, watched(federation) as watch:
        liar = Liar(channel).begin(federation)
        honest(federation, range(20, 21))  # all agents are there, and their trainers
        _, alone = honest(federation, range(30, 36))
        all_lies(liar)  # what is loaded once and kept is loaded now
        before, files = watch.bytes(), watch.files()
        ends: list[tuple[dict[int, str], float]] = []
        runs = threading.Thread(target=lambda: ends.append(honest(federation, seeds)))
        runs.start()
        times = meanwhile(lambda: all_lies(liar), lambda: not runs.is_alive())
        runs.join()
        grown, more = watch.bytes() - before, watch.files() - files
    ((digests, beside),) = ends
    print(f"{times} x {len(LIES) + len(REQUESTS)} lies; alone {alone:.1f} s, beside {beside:.1f} s;", end=" ")
    print(f"memory {before >> 20} MiB, {grown >> 20:+} MiB after, at most {(watch.peak - before) >> 20:+} MiB; files {more:+}")
    assert digests == {seed: simulated(data, experiment("fedavg", seed=seed))[2]["state_digest"] for seed in seeds}
    assert beside < SLOWER * max(alone, 1.0)
    assert grown < FLAT_BYTES and watch.peak - before < PEAK_BYTES and more < MORE_FILES
    assert {federation.running[name].poll() for name in ("coordinator", *SITES)} == {None}
