"""What benchmarks of a whole coordinator share: its process, crews of light agents, runs of noise, and limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tideline.bench.processes import stop_all, terminable, unbroken
from tideline.cli.local.demo_processes import Children, ended, wait_for
from tideline.client.http import Client, Endpoint

ROOT = Path(__file__).resolve().parent.parent
METHODS = "benchmarks.noise:METHODS"
WORLD = {"inputs": [2], "classes": 2, "model": "linear", "normalise": "none"}
PATIENCE_SECONDS = 600.0
Said = list[Any]


@dataclass
class Stage:
    """A coordinator, and crews of agents beside it."""

    home: Path
    children: Children
    client: Client
    address: str
    logs: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The coordinator's home."""
        return self.home / "coordinator"

    def pids(self) -> dict[str, int]:
        """The coordinator's process and its numeric worker's."""
        coordinator = self.children.running["coordinator"].pid
        return {"coordinator": coordinator, "worker": child_of(coordinator, "tideline_server.worker")}

    def crew(self, names: list[str], works: bool, stay: float = 0.0, away: float = 0.0) -> None:
        """Invite agents and start them in a process of their own. Those that work know the noise."""
        place, log = self.home / f"crew-{len(self.logs)}.json", self.home / f"crew-{len(self.logs)}.jsonl"
        report = {"address": self.address, "log": str(log), "stay": stay, "away": away, "methods": METHODS if works else ""}
        log.touch()
        self.logs.append(log)
        place.write_text(json.dumps(report | {"tokens": {name: self.token(name) for name in names}}))
        self.program(place.stem, str(ROOT / "benchmarks" / "light.py"), str(place))

    def token(self, name: str) -> str:
        """An invitation."""
        return str(self.client.post("/invites", {"name": name, "ttl_seconds": 3600})["token"])

    def program(self, name: str, *command: str) -> None:
        """A Python program beside the coordinator; it ends with the stage."""
        with (self.home / f"{name}.log").open("wb") as log, unbroken():
            self.children.running[name] = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def said(self, what: str) -> list[Said]:
        """What the crews have noted of a kind, in order."""
        lines = (line for log in self.logs for line in log.read_text().splitlines(keepends=True) if line.endswith("\n"))
        return sorted(report for report in map(json.loads, lines) if report[0] == what)

    def gathered(self, n: int) -> None:
        """Until so many agents are there."""
        self.until(lambda: len({name for _, _, name in self.said("here")}) >= n, f"{n} agents to enrol", 0.5)

    def until(self, true: Callable[[], bool], what: str, pause: float = 0.05) -> None:
        """Wait, as long as every process lives."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not true():
            self.children.check()
            if time.monotonic() > end:
                sys.exit(f"Waited {PATIENCE_SECONDS:.0f} s for {what}")
            time.sleep(pause)

    def start(self, roster: list[str], seed: int, **config: Any) -> str:
        """Start a run of the noise."""
        return str(self.client.post("/runs", experiment(roster, seed, config))["run"])

    def ended(self, run: str, pause: float = 0.1) -> dict[str, Any]:
        """A run's result, once it has ended."""
        self.until(lambda: ended(self.client.get(f"/runs/{run}")), f"run {run}", pause)
        return dict(self.client.get(f"/runs/{run}"))


@contextmanager
def staged(database: str | None = None, redis: str | None = None, methods: str = METHODS) -> Iterator[Stage]:
    """A coordinator that knows these methods, the noise by default; it and its traces are gone afterwards."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    more = () if redis is None else ("--redis", redis)
    with terminable(), tempfile.TemporaryDirectory(prefix="tideline-bench-") as folder, own_schema(database) as url:
        children = Children(Path(folder))
        more = more if url is None else (*more, "--database", url)
        try:
            stage = opened(children, *more, "--methods", methods)
            with stage.client:
                yield stage
        finally:
            with unbroken():
                stop_all(children.running.values())


def opened(children: Children, *more: str) -> Stage:
    """The stage, once both doors are open."""
    folder = children.home / "coordinator"
    children.start("coordinator", "coordinator", "--home", str(folder), "--grpc-port", "0", "--http-port", "0", *more)
    wait_for(children, folder / "coordinator.json")
    address = json.loads((folder / "coordinator.json").read_text())["grpc"]
    return Stage(children.home, children, Client.of(Endpoint(home=folder)), address)


@contextmanager
def own_schema(url: str | None) -> Iterator[str | None]:
    """A schema of its own in a Postgres, for the time of the block; nothing for SQLite."""
    if url is None:
        yield None
        return
    import psycopg

    name = f"tideline_bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        try:
            yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
        finally:
            connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def experiment(roster: list[str], seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """A run of the noise."""
    who = dict.fromkeys(roster, "source")
    return {"method": "noise", "config": dict(config), "world": WORLD, "roster": who, "seed": seed}


def expected(roster: list[str], seed: int, **config: Any) -> str:
    """The digest that a run ends in, from a simulation of it in this process."""
    from benchmarks.light import Rows
    from tideline.core.algorithm import load_methods
    from tideline.engine.simulation.federation import SimSite, simulate

    sites = {name: SimSite(lambda world, role: Rows()) for name in roster}
    result = simulate(load_methods(METHODS), experiment(roster, seed, config), sites)
    assert result["status"] == "completed", result["cause"]
    return str(result["state_digest"])


def child_of(pid: int, word: str) -> int:
    """The child of a process whose command line has a word."""
    return next(child.pid for child in psutil.Process(pid).children(recursive=True) if word in " ".join(child.cmdline()))


class Repeated:
    """Calls something again and again, on a thread, until it is left. What it raises ends the benchmark."""

    def __init__(self, call: Callable[[], None], pause: float = 0.0) -> None:
        self._call, self._pause, self._over = call, pause, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._repeat)

    def __enter__(self) -> Repeated:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _repeat(self) -> None:
        try:
            while not self._over.wait(self._pause):
                self._call()
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._error = error
