"""Data folders, and processes that are started once, for all tests that share them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.harness import BRINGS, COORDINATOR, Net, net

SITES = {"a": "source", "b": "source", "c": "target"}
WORLD = {"inputs": [6], "classes": 3, "model": "mlp", "normalise": "none"}


def write_blobs(folder: Path, seed: int) -> Path:
    """Three Gaussian classes, shifted by site."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 6)) + 2 * np.eye(3, 6)[y] + 0.3 * seed
    np.savez(folder / "blobs.npz", x=x.astype(np.float32), y=y)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("data")
    return {name: write_blobs(home / name, seed) for seed, name in enumerate(SITES)}


def start_all(federation: Net, data: Mapping[str, Path], *more: str) -> Net:
    """Start a coordinator and an agent for each site. more: options of the coordinator."""
    federation.coordinator(*more)
    for name, role in SITES.items():
        federation.agent(name, data[name], role)
    return federation


@contextmanager
def joined(federation: Net, data: Mapping[str, Path], roster: Mapping[str, str], *more: str) -> Iterator[None]:
    """Agents of a module's own at a coordinator that is there; they leave with the block. more: options of the agents."""
    try:
        for name, role in roster.items():
            federation.agent(name, data[name], role, *more)
        for name in roster:
            federation.heard(name, "enrolled")
        yield
    finally:
        federation.leave(*roster)


class Shared(Net):
    """Processes that many tests use, one after the other. Its own sites let every method work, however often they come."""

    def agent(self, name: str, data: Path, role: str = "source", *more: str) -> None:
        willing = ("--policy", str(self.home / "policy.toml")) if name in SITES else ()
        self.modules[name] = "tests.acceptance.brisk"
        super().agent(name, data, role, *willing, *more)

    def mend(self) -> None:
        """Start again whatever a test has left dead."""
        for name in [name for name, process in self.running.items() if process.poll() not in (None, 0)]:
            self.again(name)
            if name == COORDINATOR:
                self.ready()


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and three agents a, b and c that know every method of the tests, and whose owners let all of them work.

    Who kills one of them starts it again, and leaves all of them as able to work as they were.
    """
    home = tmp_path_factory.mktemp("net")
    (home / "policy.toml").write_text('[allow]\nstatistic = ["peers"]\nmetric = ["peers"]\nsamples = ["coordinator"]\n' + BRINGS)
    made = Shared(home, "tests.acceptance.registry:METHODS")
    try:
        made.coordinator("--rate", "0", "--rate-enrol", "0")
        with joined(made, data, SITES):
            yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """A coordinator without agents, which lets in any number of calls: for clients that the tests play themselves."""
    with net(tmp_path_factory.mktemp("door")) as made:
        made.forks = False  # some look at what it loads, and at what it weighs
        made.coordinator("--rate", "0", "--rate-enrol", "0", "--agents-over-http")
        yield made


@pytest.fixture(autouse=True)
def mended(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails amid its kills spoils only itself."""
    yield
    used = request.node.funcargs.get("federation") if isinstance(request.node, pytest.Function) else None
    if isinstance(used, Shared):
        used.mend()
