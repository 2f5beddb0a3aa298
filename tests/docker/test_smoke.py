"""The one run of containers that .ci/run plays: up, a run that trains through a cut network, down."""

from __future__ import annotations

import json

import pytest

from tests.docker.engine import Containers, docker

pytestmark = [pytest.mark.docker, pytest.mark.smoke, pytest.mark.timeout(1500)]
SERVICES = ("site-1", "site-4")  # and what they depend on: the demonstration is not among it
EXPERIMENT = "/usr/local/lib/tideline/demo.yaml"
ROSTER = ("roster={site-1: source, site-4: target}", "method=fedavg", "config.rounds=20", "reference=null")
CUT_SECONDS = 3
AWAY = f"import time; time.sleep({CUT_SECONDS})"


def shown(federation: Containers, run: str) -> dict[str, object]:
    """The run as it is; nothing while nobody answers."""
    said = federation.inside("coordinator", "tideline", "run", "show", run, "--json", check=False)
    return dict(json.loads(said)) if said.startswith("{") else {}


def reached(federation: Containers, run: str, rounds: int) -> bool:
    """Whether so many rounds are closed, or the run is no longer open."""
    now = shown(federation, run)
    return now.get("status") not in (None, "waiting", "running") or int(str(now.get("cursor", -1))) >= rounds


def test_a_run_goes_through_a_cut_network(federation: Containers) -> None:
    """Two sites train; one is cut off in the middle, and the run waits for it and completes, with every round."""
    federation.until(lambda: all(healthy(federation, name) for name in SERVICES), "the sites to come")
    settings = [word for each in ROSTER for word in ("--set", each)]
    run = str(federation.tideline("coordinator", "run", "start", EXPERIMENT, *settings)["run"])
    federation.until(lambda: reached(federation, run, 2), "the first rounds")
    assert shown(federation, run)["status"] == "running", "there is a middle to cut in"
    network, site = federation.network("site-1"), federation.container("site-1")
    docker("network", "disconnect", network, site)
    assert federation.probe("site-1", "federation", 7800) != "reached"
    federation.inside("coordinator", "python", "-c", AWAY)
    assert shown(federation, run)["status"] == "running", "it waits for the site that is away"
    docker("network", "connect", network, site)
    federation.until(lambda: shown(federation, run).get("status") not in ("waiting", "running", None), "the run to end")
    assert shown(federation, run)["status"] == "completed", shown(federation, run).get("cause")
    assert federation.facts("site-1")["RestartCount"] == 0, "the agent lived through it"


def healthy(federation: Containers, service: str) -> bool:
    """Whether a service says that it is well."""
    return bool(federation.facts(service)["State"].get("Health", {}).get("Status") == "healthy")
