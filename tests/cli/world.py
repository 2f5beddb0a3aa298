"""A federation in this process, its HTTP door on a free port of this machine, and a home that tells commands about both."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn
from typer import testing
from typer.testing import CliRunner, Result

from tests.logs import own_log
from tideline import __version__
from tideline.algorithms import METHODS
from tideline.cli.app import app
from tideline.cli.guard import DONE, REFUSED
from tideline.client import http
from tideline.core.asked.world import World
from tideline.core.run import Role, RunId
from tideline.engine.coordinator.enrolment import secret_hash
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import Holdings
from tideline_server.api import ApiSettings, Services, create_app

# Both would be done anew for each call, and cost more than most commands: building the command line, and reading the
# certificates of the world's authorities.
testing._get_command = cache(testing._get_command)
usual_context, context_of = cache(httpx.create_ssl_context), http.ssl_context
http.ssl_context = lambda ca: usual_context() if ca is None else context_of(ca)
COMMAND: Any = testing._get_command(app)
KEY = "the key of the tests"
ROSTER = {"anna": "source", "bert": "target"}
WORLD: dict[str, Any] = {"inputs": [1, 28, 28], "classes": 10, "model": "mlp"}
# The first layer is larger than a part, so that a final state has parts beside its root.
LARGE_WORLD: dict[str, Any] = WORLD | {"inputs": [3, 80, 80]}
EXPERIMENT: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": ROSTER}


async def moved(topic: str, seconds: float) -> bool:
    await asyncio.sleep(min(seconds, 0.05))
    return True


class Door(uvicorn.Server):
    """A server that ends at once, where uvicorn looks ten times a second whether it should."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening, self.closed = threading.Event(), asyncio.Event()

    async def main_loop(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.on_tick(0)
        self.listening.set()
        await self.closed.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let no more connections in, give answers under way a second, and cut the others off."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            _, late = await asyncio.wait(self.server_state.tasks, timeout=1)
            for task in late:
                task.cancel()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.closed.set)


class Coordinator:
    """The kernel, its sites and its door."""

    def __init__(self, home: Path, data: Mapping[str, Path]) -> None:
        self.home = home
        self.federation = Federation(METHODS, {name: SimSite(opener(folder)) for name, folder in data.items()})
        at = self.federation
        engine = (at.run_service, at.journal, at.part_store, at.compute, at.clock)
        services = Services(*engine, moved, __version__, secret_hash(KEY), lambda: {"worker": True})
        self.app = create_app(services, ApiSettings(keep_alive_seconds=0.1))

    @contextlib.contextmanager
    def open(self) -> Iterator[Coordinator]:
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.url = f"http://127.0.0.1:{door.getsockname()[1]}"
            self.home.mkdir(exist_ok=True)
            (self.home / "coordinator.json").write_text(json.dumps({"grpc": "127.0.0.1:7", "http": self.url, "pid": os.getpid()}))
            (self.home / "admin.key").write_text(KEY)
            server = Door(uvicorn.Config(self.app, log_config=None, access_log=False, lifespan="off", ws="none"))
            thread = threading.Thread(target=server.run, args=([door],))
            thread.start()
            assert server.listening.wait(60)
            try:
                yield self
            finally:
                server.close()
                thread.join()

    def start(self, **changed: Any) -> RunId:
        return self.federation.start({**EXPERIMENT, **changed})

    def complete(self, **changed: Any) -> RunId:
        run = self.start(**changed)
        self.federation.run(run)
        return run


def opener(folder: Path) -> Any:
    """A site's data, read as an agent reads them."""

    def open_site_data(world: World, role: Role) -> Holdings:
        return read_folder(folder, world, role)

    return open_site_data


def tide(*args: object, env: Mapping[str, str] | None = None, answer: str | None = None) -> Result:
    with own_log():
        return CliRunner().invoke(app, [str(a) for a in args], env=dict(env or {}), input=answer, catch_exceptions=False)


def tide_process(*args: object, env: Mapping[str, str] | None = None, limit: float = 180.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tideline", *map(str, args)]
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=limit, check=False)


def make_data(folder: Path, domains: str = "abc", n: int = 30) -> None:
    folder.mkdir()
    for i, name in enumerate(domains):
        x = np.random.default_rng(i).normal(size=(n, 4)).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(n) % 3)


def output_of(ended: Result) -> str:
    """Return what a command that succeeded wrote to stdout."""
    assert ended.exit_code == DONE, ended.output
    return ended.stdout


def json_of(ended: Result) -> Any:
    """Return what a command that succeeded wrote to stdout as JSON."""
    return json.loads(output_of(ended))


def refusal_of(ended: Result) -> str:
    """Return what a command that refused wrote to stderr."""
    assert ended.exit_code == REFUSED, ended.output
    return ended.stderr


def assert_tells(ended: Result, *words: str) -> None:
    """Check that a command succeeded and wrote these words to stdout."""
    assert ended.exit_code == DONE, ended.output
    assert [word for word in words if word not in ended.stdout] == [], ended.output


def assert_refuses(ended: Result, *words: str) -> None:
    """Check that a command refused and wrote these words to stderr."""
    assert ended.exit_code == REFUSED, ended.output
    assert [word for word in words if word not in ended.stderr] == [], ended.output
