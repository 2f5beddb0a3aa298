"""Parts over the bulk lane between real processes: the same bytes, whoever is killed in the middle of a transfer."""

from __future__ import annotations

import json
import os
import signal
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.harness import Net, net
from tests.services import free_port
from tideline.client.certificates import issue_coordinator
from tideline.client.http import Client, Endpoint

pytestmark = pytest.mark.processes
METHODS = "benchmarks.echo:METHODS"
NAMES = ("ann", "bob")
LARGE = 64.0  # MB: a transfer that can be met on its way
WORLD = {"inputs": [2], "classes": 2, "model": "linear", "normalise": "none"}


def experiment(mb: float = 8.0) -> dict[str, Any]:
    """A model that travels down and up, with every element changed."""
    return {"method": "echo", "config": {"rounds": 3, "mb": mb}, "world": WORLD, "roster": dict.fromkeys(NAMES, "source")}


def joined(federation: Net, tmp_path: Path, *more: str) -> None:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    np.savez(data / "a.npz", x=np.zeros((40, 2), np.float32), y=np.arange(40) % 2)
    for name in NAMES:
        federation.agent(name, data, "source", *more)


def calls(federation: Net) -> dict[str, float]:
    """How often each call of gRPC was answered well."""
    said = json.loads((federation.folder / "coordinator.json").read_text())["http"]
    key = {"Authorization": f"Bearer {(federation.folder / 'admin.key').read_text()}"}
    trust = ssl.create_default_context(cafile=federation.home / "tls" / "ca.pem") if said.startswith("https") else None
    with urllib.request.urlopen(urllib.request.Request(f"{said}/metrics", headers=key), context=trust) as answer:
        lines = answer.read().decode().splitlines()
    made = [line for line in lines if line.startswith("tideline_grpc_calls_total") and 'OK"' in line]
    return {line.split('call="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in made}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the run without the lane."""
    home = tmp_path_factory.mktemp("grpc")
    with net(home, METHODS) as federation:
        federation.coordinator()
        joined(federation, home)
        result = federation.ended(federation.run(experiment()))
        assert result["status"] == "completed" and "Ticket" in calls(federation) and calls(federation)["Push"] >= 6
        return str(result["state_digest"])


@pytest.mark.parametrize("tls", [False, True])
def test_a_run_over_the_lane(tmp_path: Path, expected: str, tls: bool) -> None:
    options: tuple[str, ...] = ()
    if tls:
        made = tmp_path / "tls"
        issue_coordinator(made, ["127.0.0.1"])
        options = ("--tls-cert", str(made / "coordinator.pem"), "--tls-key", str(made / "coordinator.key"))
    with net(tmp_path, METHODS) as federation:
        federation.coordinator("--bulk", "0", *options)
        if tls:
            federation._clients["coordinator"] = Client.of(Endpoint(home=federation.folder, ca=tmp_path / "tls" / "ca.pem"))
        joined(federation, tmp_path)
        federation.completed(federation.run(experiment()), expected)
        assert calls(federation)["Ticket"] >= 12 and "Push" not in calls(federation) and "Fetch" not in calls(federation)


@pytest.mark.smoke
def test_an_agent_without_the_lane_uses_grpc(tmp_path: Path, expected: str) -> None:
    """One is told not to use it; the other cannot reach it, and says so."""
    with net(tmp_path, METHODS) as federation:
        federation.coordinator("--bulk", f"127.0.0.9:{free_port()}")
        joined(federation, tmp_path, "--bulk", "on")
        federation.leave("ann")
        federation.agent("ann", tmp_path / "data", "source", "--bulk", "off")
        federation.completed(federation.run(experiment()), expected)
        assert "bulk_lane_away" in federation.log("bob") and "bulk_lane_away" not in federation.log("ann")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the run of a large model, over gRPC."""
    home = tmp_path_factory.mktemp("large")
    with net(home, METHODS) as federation:
        federation.coordinator()
        joined(federation, home)
        return str(federation.ended(federation.run(experiment(LARGE)))["state_digest"])


long = pytest.mark.nightly(job="journeys")


@pytest.mark.parametrize(
    ("who", "where"),
    [
        *(("coordinator", "up"), ("ann", "down"), pytest.param("coordinator", "down", marks=long)),
        pytest.param("ann", "up", marks=long),
    ],
)
def test_a_kill_in_the_middle_of_a_transfer(tmp_path: Path, undisturbed: str, who: str, where: str) -> None:
    """kill -9 of either end while bytes come in at the one or the other: the run goes on to the same bytes."""
    with net(tmp_path, METHODS) as federation:
        federation.coordinator("--bulk", "0")
        joined(federation, tmp_path)
        run = federation.run(experiment(LARGE))
        folder = federation.folder / "parts" if where == "up" else federation.home / "home-ann" / "runs" / run / "parts"
        federation.until(lambda: any(coming(folder)), "a transfer")
        victim = federation.running[who]
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        federation.again(who)
        if who == "coordinator":
            federation.ready()
        federation.completed(run, undisturbed)


def coming(folder: Path) -> list[Path]:
    return [path for path in folder.glob("tmp/b3-*") if path.exists() and path.stat().st_size]
