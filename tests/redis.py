"""A Redis of a test's own, which it may kill."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Redis:
    """A process, and the port that it has for as long as it is needed."""

    def __init__(self, folder: Path, password: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder, self.password, self.process = folder, password, None
        self.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        command += ["--requirepass", self.password] if self.password else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Ready to accept" in line:
                return
        raise AssertionError("redis-server ended")

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@contextmanager
def running(folder: Path, password: str = "") -> Iterator[Redis]:
    """A Redis that answers. Skips, loudly, where none is installed; in CI that is a failure."""
    try:
        made = Redis(folder, password)
    except FileNotFoundError:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip("NOT TESTED: redis-server is not installed")
    try:
        yield made
    finally:
        made.kill()
