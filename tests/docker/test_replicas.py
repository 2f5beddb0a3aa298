"""Two coordinators behind one name, without TLS: where one dies, agents and commands go on with the other."""

from __future__ import annotations

import json

import pytest

from tests.docker.engine import Containers, docker

pytestmark = [pytest.mark.timeout(1500)]
OVERLAYS = ("plain", "replicas", "plain-replicas")
BOTH = ("coordinator", "coordinator-2")
SHOW = "TIDELINE_API_KEY=$(cat /secrets/admin.key) exec tideline run list --all --url http://federation:7880 --json"
AGAIN = ("run", "start", "/usr/local/lib/tideline/demo.yaml", "--set", "method=fedavg", "--set", "config.rounds=3")


def listed(federation: Containers, service: str) -> list[dict[str, object]]:
    """The runs, asked for by a command at the name that both bear."""
    return list(json.loads(federation.inside(service, "sh", "-c", SHOW)))


def test_one_of_two_is_killed_in_mid_run(federation: Containers) -> None:
    """The demonstration goes on without anybody's help, and its own command, which was watching, sees it to its end."""
    addresses = {federation.address(name, "users") for name in BOTH}
    resolve = "import socket; print(*{each[4][0] for each in socket.getaddrinfo('federation', 7880)})"
    federation.until(
        lambda: set(federation.inside("coordinator-2", "python", "-c", resolve).split()) >= addresses, "both behind one name"
    )
    federation.until(
        lambda: any(int(str(run["cursor"])) >= 3 for run in listed(federation, "coordinator-2")),
        "the first rounds",
    )
    docker("kill", "--signal", "KILL", federation.container("coordinator"))
    assert federation.ended("demo") == 0, federation.log("demo")
    assert {run["status"] for run in listed(federation, "coordinator-2")} == {"completed"}
    assert all(federation.facts(f"site-{i}")["RestartCount"] == 0 for i in range(1, 5))


def test_the_other_is_killed_when_the_first_is_back(federation: Containers) -> None:
    """Nothing was only in one of them."""
    federation.ended("demo")
    docker("start", federation.container("coordinator"))
    federation.until(lambda: federation.facts("coordinator")["State"]["Health"]["Status"] == "healthy", "the first to come back")
    docker("kill", "--signal", "KILL", federation.container("coordinator-2"))
    run = federation.tideline("coordinator", *AGAIN, "--set", "reference=null")["run"]
    federation.until(
        lambda: ("completed", run) in {(each["status"], each["id"]) for each in listed(federation, "coordinator")}, "another run"
    )
    docker("start", federation.container("demo"))
    federation.until(lambda: "of an earlier start" in federation.log("demo"), "the demonstration to be shown again")
    assert federation.ended("demo") == 0, federation.log("demo")
