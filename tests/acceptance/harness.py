"""A federation of real processes, for tests: start, kill, start again, look."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tideline.cli.client import Client
from tideline.engine.ports import Journal
from tideline_server.store import SqlJournal

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 90.0
METHODS = "tideline.algorithms:METHODS"


class Net:
    """A coordinator on fixed free ports and its agents, each a process group of its own."""

    def __init__(self, home: Path, methods: str = METHODS, database: str | None = None) -> None:
        self.home, self.methods, self.database = home, methods, database
        self.grpc, self.http = free_port(), free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._client: Client | None = None

    @property
    def folder(self) -> Path:
        """The coordinator's home."""
        return self.home / "coordinator"

    @property
    def address(self) -> str:
        """The agents' door."""
        return f"127.0.0.1:{self.grpc}"

    def client(self) -> Client:
        """The people's door."""
        if self._client is None:
            self._client = Client.of_home(self.folder)
        return self._client

    def coordinator(self, *more: str) -> None:
        """Start the coordinator and wait until both doors are open."""
        ports = ("--grpc-port", str(self.grpc), "--http-port", str(self.http))
        self.start("coordinator", "coordinator", "--home", str(self.folder), *ports, "--methods", self.methods, *more)
        self.ready()

    def ready(self) -> None:
        """Until the doors answer."""
        said = self.folder / "coordinator.json"
        pid = self.running["coordinator"].pid
        self.until(lambda: said.exists() and json.loads(said.read_text())["pid"] == pid, "the coordinator to open its doors")

    def agent(self, name: str, data: Path, role: str = "source", *more: str) -> None:
        """Invite and start an agent."""
        token = self.client().post("/invites", {"name": name, "ttl_seconds": 600})["token"]
        self.start(name, *self.agent_command(name, data, role, token), *more)

    def agent_command(self, name: str, data: Path, role: str, token: str) -> list[str]:
        """The command of an agent."""
        who = ["agent", "--coordinator", self.address, "--token", token, "--name", name, "--role", role]
        return [
            *who,
            "--data",
            str(data),
            "--home",
            str(self.home / f"home-{name}"),
            "--device",
            "cpu",
            "--methods",
            self.methods,
        ]

    def start(self, process: str, *args: str) -> None:
        """Start `tideline ARGS`, its output in a log file."""
        self._commands[process] = list(args)
        with (self.home / f"{process}.log").open("ab") as log:
            self.running[process] = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tideline", *args],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment(),
            )

    def environment(self) -> dict[str, str]:
        """Where processes find the tests' methods and the coordinator its database. A tester's own is left alone."""
        own = {name: value for name, value in os.environ.items() if name != "TIDELINE_DATABASE"}
        there = {} if self.database is None else {"TIDELINE_DATABASE": self.database}
        return own | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))} | there

    def kill(self, name: str) -> None:
        """SIGKILL one process, and only that one."""
        self.running[name].kill()
        self.running[name].wait()

    def again(self, name: str) -> None:
        """Start a process with the command it had."""
        self.start(name, *self._commands[name])

    def log(self, name: str) -> str:
        """What a process said."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def run(self, experiment: Mapping[str, Any]) -> str:
        """Start an experiment."""
        return str(self.client().post("/runs", dict(experiment))["run"])

    def result(self, run: str) -> dict[str, Any]:
        """A run as it is."""
        return dict(self.client().get(f"/runs/{run}"))

    def ended(self, run: str) -> dict[str, Any]:
        """The result of a run, once it and its reference have ended or stalled."""
        found: dict[str, Any] = {}

        def over() -> bool:
            found.update(self.result(run))
            return not {found["status"], found["reference_status"]} & {"waiting", "running"}

        self.until(over, f"run {run} to end")
        return found

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for a process to get somewhere; the logs tell why it did not."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not true():
            if time.monotonic() > end:
                logs = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self.running)
                raise AssertionError(f"waited {PATIENCE_SECONDS:.0f} s for {what}\n{logs}")
            time.sleep(0.05)

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """The coordinator's own journal, opened beside it."""
        with closing(SqlJournal(self.database or self.folder / "coordinator.db")) as journal:
            yield journal

    def stop(self) -> None:
        """End everything, trainers included."""
        if self._client is not None:
            self._client.__exit__()
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def net(home: Path, methods: str = METHODS, database: str | None = None) -> Iterator[Net]:
    """A federation that ends with the block."""
    made = Net(home, methods, database)
    try:
        yield made
    finally:
        made.stop()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
