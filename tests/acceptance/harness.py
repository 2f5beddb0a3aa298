"""A federation of real processes, for tests: start, kill, start again, look."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.forking import Started
from tests.services import free_port
from tideline.client.http import Client, Endpoint
from tideline.engine.ports.journal import Journal
from tideline_server.store import SqlJournal

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 240.0  # before the suite gives the test up, so that the logs are told
METHODS = "tideline.algorithms:METHODS"
COORDINATOR = "coordinator"


BRINGS = '[runs]\nweights = "any"\n'  # of a policy: runs may begin from weights of their users


class Net:
    """Coordinators on fixed free ports and their agents, each a process group of its own. Most tests have one coordinator."""

    def __init__(self, home: Path, methods: str = METHODS, database: str | None = None, parts: str | None = None) -> None:
        self.home, self.methods, self.database, self.parts = home, methods, database, parts
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, tuple[int, int]] = {}  # of each coordinator: for agents, for people
        self.detours: dict[int, int] = {}  # the port that agents call instead of a coordinator's own
        self.more: dict[str, str] = {}  # environment
        self.forks = True  # where the suite forks processes; off for a test of what a process loads or weighs
        self.modules: dict[str, str] = {}  # of processes that are not started as `tideline`
        self._commands: dict[str, list[str]] = {}
        self._clients: dict[str, Client] = {}

    @property
    def folder(self) -> Path:
        return self.home_of(COORDINATOR)

    @property
    def grpc(self) -> int:
        return self.ports_of(COORDINATOR)[0]

    @property
    def http(self) -> int:
        return self.ports_of(COORDINATOR)[1]

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{self.detours.get(grpc, grpc)}" for grpc, _ in self.ports.values())

    def home_of(self, name: str) -> Path:
        return self.home / name

    def ports_of(self, name: str) -> tuple[int, int]:
        if name not in self.ports:
            self.ports[name] = free_port(), free_port()
        return self.ports[name]

    def client(self, name: str = COORDINATOR) -> Client:
        if name not in self._clients:
            self._clients[name] = Client.of(Endpoint(home=self.home_of(name)))
        return self._clients[name]

    def coordinator(self, *more: str, name: str = COORDINATOR) -> None:
        """Start a coordinator and wait until both doors are open."""
        grpc, http = self.ports_of(name)
        where = ("--home", str(self.home_of(name)), "--grpc-port", str(grpc), "--http-port", str(http))
        self.start(name, "coordinator", *where, "--methods", self.methods, *more)
        self.ready(name)

    def ready(self, name: str = COORDINATOR) -> None:
        said = self.home_of(name) / "coordinator.json"
        pid = self.running[name].pid
        self.until(lambda: said.exists() and json.loads(said.read_text())["pid"] == pid, f"the {name} to open its doors")

    def agent(self, name: str, data: Path, role: str = "source", *more: str) -> None:
        token = self.client().post("/invites", {"name": name, "ttl_seconds": 600})["token"]
        self.start(name, *self.agent_command(name, data, role, token), *more)

    def policy(self, text: str) -> tuple[str, str]:
        """Options of an agent whose owner has written this."""
        path = self.home / f"policy-{hashlib.sha256(text.encode()).hexdigest()[:8]}.toml"
        path.write_text(text)
        return "--policy", str(path)

    def agent_command(self, name: str, data: Path, role: str, token: str) -> list[str]:
        who = ["agent", "--coordinator", self.address, "--token", token, "--name", name, "--role", role]
        where = ["--data", str(data), "--home", str(self.home / f"home-{name}")]
        return [*who, *where, "--device", "cpu", "--methods", self.methods]

    @contextmanager
    def by_way_of(self, port: int) -> Iterator[None]:
        """An agent that is started meanwhile calls this port instead of the coordinator's."""
        self.detours[self.grpc] = port
        yield
        self.detours.clear()

    def start(self, process: str, *args: str) -> None:
        """Start `tideline ARGS`, its output in a log file."""
        self._commands[process] = list(args)
        with (self.home / f"{process}.log").open("ab") as log:
            self.running[process] = (subprocess.Popen if self.forks else Started)(
                [sys.executable, "-W", "error", "-m", self.modules.get(process, "tideline"), *args],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment(),
            )

    def environment(self) -> dict[str, str]:
        """Where processes find the tests' methods and the coordinator its database and parts. A tester's own are left alone."""
        given = {"TIDELINE_DATABASE": self.database, "TIDELINE_PARTS": self.parts}
        own = {name: value for name, value in os.environ.items() if name not in given}
        there = {name: value for name, value in given.items() if value is not None}
        path = [self.more.get("PYTHONPATH"), str(ROOT), os.environ.get("PYTHONPATH")]
        return own | self.more | {"PYTHONPATH": os.pathsep.join(filter(None, path))} | there

    def kill(self, name: str) -> None:
        """SIGKILL one process, and only that one."""
        self.running[name].kill()
        self.running[name].wait()

    def leave(self, *names: str) -> None:
        """End agents for good, with their trainers."""
        gone = [self.running.pop(name) for name in names if name in self.running]
        end(gone)

    def again(self, name: str) -> None:
        """Start a process with the command it had."""
        self.start(name, *self._commands[name])

    def restart(self, name: str) -> None:
        """Kill a process and start it again; wait until a coordinator is ready."""
        self.kill(name)
        self.again(name)
        if name in self.ports:
            self.ready(name)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def run(self, experiment: Mapping[str, Any]) -> str:
        return str(self.client().post("/runs", dict(experiment))["run"])

    def result(self, run: str) -> dict[str, Any]:
        return dict(self.client().get(f"/runs/{run}"))

    def ended(self, run: str) -> dict[str, Any]:
        """The result of a run, once it and its reference have ended or stalled."""
        found: dict[str, Any] = {}

        def over() -> bool:
            found.update(self.result(run))
            return not {found["status"], found["reference_status"]} & {"waiting", "running"}

        self.until(over, f"run {run} to end")
        return found

    def completed(self, run: str, digest: str = "") -> dict[str, Any]:
        """Return the result of a run that has completed, in the bytes of this digest if one is given."""
        result = self.ended(run)
        assert result["status"] == "completed", result["cause"]
        assert digest in ("", result["state_digest"]), result["notes"]
        return result

    def heard(self, name: str, words: str, times: int = 1) -> None:
        """Wait until a process has said something in its log, so many times."""
        self.until(lambda: self.log(name).count(words) >= times, f"{name} to say {words!r}")

    def owner(self, name: str, *words: str | Path) -> Any:
        """Return what a command of an agent's owner, `tideline site`, prints as JSON."""
        return self.command("site", *words, "--home", self.home / f"home-{name}", "--json")

    def command(self, *words: str | Path) -> Any:
        """Run a `tideline` command that must succeed; return its JSON."""
        ended = subprocess.run(
            [sys.executable, "-m", "tideline", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

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
        for client in self._clients.values():
            client.__exit__()
        end(self.running.values())


def end(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Ask processes to end, all at once; kill those that do not."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def net(home: Path, methods: str = METHODS, database: str | None = None, parts: str | None = None) -> Iterator[Net]:
    """A federation that ends with the block."""
    made = Net(home, methods, database, parts)
    try:
        yield made
    finally:
        made.stop()
