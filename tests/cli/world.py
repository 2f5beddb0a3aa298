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
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from typer import testing
from typer.testing import CliRunner, Result

from tests.logs import own_log
from tideline import __version__
from tideline.algorithms import METHODS
from tideline.cli.app import app
from tideline.core.asked.world import World
from tideline.core.run import Role, RunId
from tideline.engine.coordinator.enrolment import secret_hash
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import Holdings
from tideline_server.api import ApiSettings, Services, create_app

# The command line is built anew for each call otherwise, which costs more than most commands.
testing._get_command = cache(testing._get_command)
COMMAND: Any = testing._get_command(app)
KEY = "the key of the tests"
ROSTER = {"anna": "source", "bert": "target"}
# Its first layer is larger than a part, so that a final state has parts beside its root.
EXPERIMENT: dict[str, Any] = {
    "method": "fedavg",
    "preset": "tiny",
    "world": {"inputs": [3, 80, 80], "classes": 10, "model": "mlp"},
    "roster": ROSTER,
}


async def moved(topic: str, seconds: float) -> bool:
    """A bell that rings often."""
    await asyncio.sleep(min(seconds, 0.05))
    return True


class Coordinator:
    """The kernel, its sites and its door."""

    def __init__(self, home: Path, data: Mapping[str, Path]) -> None:
        self.home = home
        self.federation = Federation(METHODS, {name: SimSite(opener(folder)) for name, folder in data.items()})
        at = self.federation
        services = Services(
            at.run_service,
            at.journal,
            at.part_store,
            at.compute,
            at.clock,
            moved,
            __version__,
            secret_hash(KEY),
            lambda: {"worker": True},
        )
        self.app = create_app(services, ApiSettings(keep_alive_seconds=0.1))

    @contextlib.contextmanager
    def open(self) -> Iterator[Coordinator]:
        """Listen, and say so in the home."""
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.url = f"http://127.0.0.1:{door.getsockname()[1]}"
            self.home.mkdir(exist_ok=True)
            (self.home / "coordinator.json").write_text(json.dumps({"grpc": "127.0.0.1:7", "http": self.url, "pid": os.getpid()}))
            (self.home / "admin.key").write_text(KEY)
            server = uvicorn.Server(uvicorn.Config(self.app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
            thread = threading.Thread(target=server.run, args=([door],))
            thread.start()
            while not server.started:
                time.sleep(0.01)
            yield self
            server.should_exit = True
            thread.join()

    def start(self, **changed: Any) -> RunId:
        """A run that nobody has worked for yet."""
        return self.federation.start({**EXPERIMENT, **changed})

    def complete(self, **changed: Any) -> RunId:
        """A run that has completed."""
        run = self.start(**changed)
        self.federation.run(run)
        return run


def opener(folder: Path) -> Any:
    """A site's data, read as an agent reads them."""

    def open_site_data(world: World, role: Role) -> Holdings:
        return read_folder(folder, world, role)

    return open_site_data


def tide(*args: object, env: Mapping[str, str] | None = None) -> Result:
    """A command, run in this process."""
    with own_log():
        return CliRunner().invoke(app, [str(a) for a in args], env=dict(env or {}), catch_exceptions=False)


def tide_process(*args: object, env: Mapping[str, str] | None = None, limit: float = 60.0) -> subprocess.CompletedProcess[str]:
    """A command, run in a process of its own."""
    command = [sys.executable, "-m", "tideline", *map(str, args)]
    return subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=limit, check=False)
