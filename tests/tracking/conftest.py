"""A coordinator with two sites in this process, and a real MLflow on SQLite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.cli.conftest import data, there  # noqa: F401 (fixtures)
from tests.cli.world import Coordinator
from tests.services import free_port
from tideline.client.http import Client, Endpoint

PATIENCE_SECONDS = 180.0


@pytest.fixture
def client(there: Coordinator) -> Iterator[Client]:  # noqa: F811
    """Its API, by the key of an admin."""
    with Client.of(Endpoint(home=there.home)) as client:
        yield client


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tracker's own settings of a tester reach a test."""
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "TRACKIO_", "WANDB_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    pytest.importorskip("mlflow.server", reason="mlflow is not installed here: tests/trackers.py makes an environment with it")
    home, port = tmp_path_factory.mktemp("mlflow"), free_port()
    where = ("--backend-store-uri", f"sqlite:///{home}/mlflow.db", "--artifacts-destination", str(home / "artifacts"))
    command = [sys.executable, "-m", "mlflow", "server", *where, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=home)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not answers(address):
            assert time.monotonic() < until and server.poll() is None, (home / "log").read_text()[-3000:]
            time.sleep(0.1)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=5.0).is_success
    except httpx.HTTPError:
        return False
