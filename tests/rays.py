"""A Ray of this machine for the tests of a module: two workers, reached by nobody without its token."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tideline.engine.process.ray_tasks import LOCKED, QUIET, Cluster, connect, loaded

CPUS = 2


def free_port() -> int:
    """A port of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def running() -> Iterator[ModuleType]:
    """Ray, started in this process, whose pools then use it and leave it running."""
    started = loaded(QUIET | LOCKED)
    connect(started, Cluster(cpus=CPUS))
    try:
        yield started
    finally:
        started.shutdown()
