"""Two coordinators on one Postgres, one Redis and one folder of parts, and three agents behind lines that can be cut.

One coordinator has a bulk lane, and the other has none. Where root plays, parts lie on a small disk that can be filled.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.acceptance.harness import Net
from tests.acceptance.wire import Wire
from tests.redis import Redis
from tests.services import Postgres, free_port
from tideline.algorithms import METHODS
from tideline.client.http import Client, Endpoint
from tideline.core.errors import FederationError
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

COORDINATORS = ("one", "two")
SITES = {"a": "source", "b": "source", "c": "target"}
FEATURES = 1200  # so that a network takes 0.3 MB, which is enough for the bulk lane
WORLD = {"inputs": [FEATURES], "classes": 3, "model": "mlp"}
WITH_LANE, LANE_HOST = "one", "127.0.0.2"  # where agents are told that the lane is
DISK, BLOCK = 512 << 20, 1 << 20  # bytes of the disk for parts, and that are written at once to fill it
ROUNDS = {"fada": 4, "fedavg": 8, "feddadil": 6, "fedwca": 7, "hfedf": 5, "stlf": 1}
MORE = {"stlf": {"exchanges": 6, "compare": ["fedavg_alpha"]}}  # whose classifiers travel sealed, as FADA's contributions do
# Where one site has labels and the others adapt; the site between allows both roles.
ADAPTING = {"a": "source", "b": "target", "c": "target"}
# Where all three have labels, and nobody sees what one of them sends: FedAvg, after the others.
SUMMING, SUMMED, AHEAD = dict.fromkeys(SITES, "source"), "fedavg in secure sums", 2
PLAYS = (*sorted(ROUNDS), SUMMED)
LEASE = 2.0  # seconds


def play_of(seed: int) -> str:
    return PLAYS[seed % len(PLAYS)]


def experiment(seed: int) -> dict[str, Any]:
    """FADA, FedAvg, FedDaDiL, FedWCA, hFedF, ST-LF and sums that nobody sees into by turns; their messages are large enough to be
    cut in the middle.
    """
    method = play_of(seed)
    if method == SUMMED:
        return summed(seed)
    config, roster = {"rounds": ROUNDS[method]} | MORE.get(method, {}), ADAPTING if method == "fedwca" else SITES
    given = {"method": method, "preset": "tiny", "config": config, "world": WORLD, "roster": roster, "seed": seed}
    return given | {"name": f"seed {seed}", "reference": None}


def summed(seed: int) -> dict[str, Any]:
    """Five or six exchanges a round, all of which need all three sites, and keys for two rounds at once."""
    rounds, sums = {"rounds": ROUNDS["fedavg"] // 2}, {"secure_sums": {"ahead": AHEAD}}
    given = {"method": "fedavg", "preset": "tiny", "config": rounds, "world": WORLD, "roster": SUMMING, "seed": seed}
    return given | sums | {"name": f"seed {seed}", "reference": None}


def write_clouds(folder: Path, shift: int) -> Path:
    """Three Gaussian classes, shifted by site."""
    rng = np.random.default_rng(shift)
    folder.mkdir(parents=True)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, FEATURES)) + 2 * np.eye(3, FEATURES)[y] + 0.3 * shift
    np.savez(folder / "clouds.npz", x=x.astype(np.float32), y=y)
    return folder


class World(Net):
    """The federation and what it stands on."""

    def __init__(self, home: Path, lease: float = LEASE, over_http: bool = False) -> None:
        self.postgres, self.redis, self.lease, self.over_http = Postgres(home), Redis(home), lease, over_http
        super().__init__(home, database=self.postgres.url, parts=str(home / "parts"))
        self.data = {name: write_clouds(home / "data" / name, shift) for shift, name in enumerate(SITES)}
        self.wires = {name: Wire(self.ports_of(name)[over_http]) for name in COORDINATORS}
        self.detours = {self.ports_of(name)[0]: wire.port for name, wire in self.wires.items()}
        port = free_port()
        self.lane, self.lane_wire = f"{LANE_HOST}:{port}", Wire(port, at=(LANE_HOST, port))
        self.disk = mounted(home / "parts")
        self.more = {"TIDELINE_LOG_JSON": "1"}

    @property
    def address(self) -> str:
        """What agents call: a line to each coordinator."""
        return ",".join(f"http://127.0.0.1:{wire.port}" for wire in self.wires.values()) if self.over_http else super().address

    def begin(self) -> None:
        """Start everything, and wait until all are there: what is asked to end while it still loads code cannot end in order."""
        for name in COORDINATORS:
            shared = ("--redis", self.redis.url, "--lease", str(self.lease))
            lane = ("--bulk", self.lane) if name == WITH_LANE and not self.over_http else ()
            http = ("--agents-over-http",) if self.over_http else ()
            self.coordinator(*shared, *lane, *http, name=name)
        for name, role in SITES.items():
            token = self.client("one").post("/invites", {"name": name, "ttl_seconds": 600})["token"]
            roles = sorted({role, ADAPTING[name], SUMMING[name]})
            more = [each for other in roles if other != role for each in ("--role", other)]
            self.start(name, *self.agent_command(name, self.data[name], role, token), *more)
        self.until(lambda: {each["name"] for each in self.asked("/clients") or ()} >= set(SITES), "all agents to enrol")

    def asked(self, path: str) -> Any:
        """What either coordinator answers; None if neither does."""
        for name in COORDINATORS:
            with suppress(FederationError), Client.of(Endpoint(home=self.home_of(name))) as client:
                return client.get(path)
        return None

    def over(self, run: str) -> bool:
        """Whether the run is no longer open, as far as anybody answers."""
        found = self.asked(f"/runs/{run}")
        return found is not None and found["status"] not in ("waiting", "running")

    def signal(self, name: str, number: int) -> None:
        """Send a process a signal, if it lives."""
        with suppress(ProcessLookupError):
            os.kill(self.running[name].pid, number)

    def children(self, name: str) -> list[psutil.Process]:
        """The worker of a coordinator, or the trainers of an agent."""
        try:
            return psutil.Process(self.running[name].pid).children()
        except psutil.NoSuchProcess:
            return []

    def undisturbed(self, given: dict[str, Any]) -> str:
        """The state digest of the same run in one process, in peace."""
        sites = {n: SimSite(lambda w, r, n=n: read_folder(self.data[n], w, r)) for n in SITES}
        result = simulate(METHODS, given, sites)
        assert result["status"] == "completed", result["cause"]
        return str(result["state_digest"])

    def stop(self) -> None:
        for name in self.running:
            self.signal(name, signal.SIGCONT)
        super().stop()
        for wire in (*self.wires.values(), self.lane_wire):
            wire.close()
        if self.disk is not None:
            subprocess.run(["umount", "--lazy", self.disk], check=True)
        self.redis.kill()
        self.postgres.kill()


def mounted(folder: Path) -> Path | None:
    """A small disk of its own at a folder; None where none can be mounted."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    made = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    return folder if made else None


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    ballast = disk / "ballast"
    try:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(BLOCK))
        yield
    finally:
        ballast.unlink()


@contextmanager
def world(home: Path, lease: float = LEASE, over_http: bool = False) -> Iterator[World]:
    """A federation that ends with the block. over_http: agents know the people's ports alone."""
    made = World(home, lease, over_http)
    try:
        yield made
    finally:
        made.stop()
