"""The processes of the demo: a coordinator and its agents as children, commands beside them, and the wait for a run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tideline.bench.processes import start, stop_all, unbroken
from tideline.cli.options import REGISTRY
from tideline.core.errors import FederationError, Unreachable

if TYPE_CHECKING:
    from tideline.client.answers import RunResult
    from tideline.client.http import Client

START_SECONDS = 60.0
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Code:
    """Methods and networks beside the built-in ones, and the network to train; None: the method's own for demonstrations."""

    methods: str = REGISTRY
    networks: tuple[str, ...] = ()
    network: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The same for each child."""
        return "--methods", self.methods, *self.added

    @property
    def added(self) -> tuple[str, ...]:
        """Of networks alone."""
        return tuple(word for place in self.networks for word in ("--networks", place))


CODE = Code()


@dataclass
class Children:
    """Child processes with their logs in a folder."""

    home: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *args: str) -> None:
        """Start `tideline ARGS` with its output in a log file."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")}  # not your own database
        with unbroken():
            self.running[name] = start(args, self.home / f"{name}.log", env)

    def check(self) -> None:
        """Raises FederationError with the last lines of a child that ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                last = (self.home / f"{name}.log").read_text(errors="replace").strip().splitlines()[-12:]
                raise FederationError(f"The process {name} ended with code {process.returncode}:\n" + "\n".join(last))


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    made = tempfile.TemporaryDirectory(prefix="tideline-demo-", ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        with unbroken():
            made.cleanup()


@contextlib.contextmanager
def federation(home: Path, say: Callable[[str], None], code: Code = CODE) -> Iterator[tuple[Children, Client]]:
    """A coordinator on free loopback ports, and a client of its HTTP API."""
    from tideline.client.http import Client, Endpoint

    children = Children(home)
    try:
        say("starting a coordinator")
        own = home / "coordinator"
        children.start("coordinator", "coordinator", "--home", str(own), "--grpc-port", "0", "--http-port", "0", *code.options)
        wait_for(children, own / "coordinator.json")
        with Client.of(Endpoint(home=own)) as client:
            yield children, client
    finally:
        with unbroken():  # a second Ctrl-C while the children stop must not leave them behind
            stop_all(children.running.values())


def wait_for(children: Children, path: Path) -> None:
    """Wait for a file that a child writes. Raises Unreachable."""
    until = time.monotonic() + START_SECONDS
    while not path.exists():
        children.check()
        if time.monotonic() > until:
            raise Unreachable(f"The coordinator did not start within {START_SECONDS:.0f} s", "Try again on a quieter machine")
        time.sleep(0.05)


def tide(*args: str) -> subprocess.CompletedProcess[bytes]:
    """A command of this package in a process of its own: it loads torch, or reads a site's disk."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")}
    return subprocess.run([sys.executable, "-m", "tideline", *args], capture_output=True, check=False, env=env)


def watch(children: Children, client: Client, run: str, as_json: bool) -> None:
    """Show the run until it and its reference have ended."""
    from tideline.client.watching import Watcher

    with Watcher(quiet=as_json) as watcher:
        while True:
            result = client.run(run)
            watcher.show(result)
            if ended(result):
                return
            children.check()
            time.sleep(POLL_SECONDS)


def waited(children: Children, client: Client, run: str) -> str:
    """The run, once it has ended, too."""
    while not ended(client.run(run)):
        children.check()
        time.sleep(POLL_SECONDS)
    return run


def ended(result: RunResult) -> bool:
    """Whether a run and its reference will not move by themselves any more."""
    return not {result["status"], result["reference_status"]} & {"waiting", "running"}


def console(line: str) -> None:
    sys.stderr.write(f"==> {line}\n")
