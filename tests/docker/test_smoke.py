"""The one run of containers that .ci/run plays: up, a run that trains through a cut network, down."""

from __future__ import annotations

import json

import pytest

from tests.docker.engine import Containers, docker

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(1500)]
OVERLAYS = ("policy",)
SERVICES = ("site-1", "site-4")  # and what they depend on: the demonstration is not among it
EXPERIMENT = "/usr/local/lib/tideline/demo.yaml"
ROSTER = ("roster={site-1: source, site-4: target}", "method=fedavg", "config.rounds=20", "reference=null")
HOME = "/var/lib/tideline/agent"
PAGES = ("/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json")
READ = (
    "import ssl, sys, urllib.request\n"
    "trusted = ssl.create_default_context(cafile='/trust/ca.pem')\n"
    "for at in sys.argv[1:]: print(len(urllib.request.urlopen(f'https://127.0.0.1:7880{at}', context=trusted).read()))"
)
# What others than a process's user could read of what it wrote.
OPEN = "find /var/lib/tideline /parts -mindepth 1 -perm /077 2>/dev/null || true"
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


def test_an_owner_has_a_policy_and_a_ledger(federation: Containers) -> None:
    """The policy that is mounted is the agent's; its owner's commands work in the container, and the ledger is whole."""
    federation.until(lambda: healthy(federation, "site-1"), "the site to come")
    refused = federation.inside("site-1", "sh", "-c", "echo >> /policy/policy.toml || echo refused")
    assert refused == "refused"
    policy = json.loads(federation.inside("site-1", "tideline", "site", "policy", "check", "/policy/policy.toml", "--json"))
    assert policy["runs"]["methods"] == ["fedavg", "adabn", "shot", "feddadil"]
    first = json.loads(federation.inside("site-1", "head", "-n", "1", f"{HOME}/ledger.jsonl"))
    assert first["kind"] == "started" and first["details"]["policy"]
    federation.inside("site-1", "tideline", "site", "ledger", "verify", "--home", HOME)


def test_what_containers_write_is_theirs_alone(federation: Containers) -> None:
    """Their processes have the umask of the product, and nothing in their volumes is open to others; the witness is among it."""
    for service in ("coordinator", *SERVICES):
        federation.until(lambda service=service: healthy(federation, service), service)
        assert "Umask:\t0077" in federation.status(service)
        assert federation.inside(service, "sh", "-c", OPEN) == ""
        assert "closed_to_others" not in federation.log(service), "an image leaves nothing in a home"
    assert federation.inside("coordinator", "sh", "-c", "ls /parts/witness/*")


def test_the_manual_of_the_api_is_in_the_image(federation: Containers) -> None:
    """Swagger UI's files too, which come from a package."""
    federation.until(lambda: healthy(federation, "coordinator"), "the coordinator")
    sizes = [int(line) for line in federation.inside("coordinator", "python", "-c", READ, *PAGES).split()]
    assert len(sizes) == len(PAGES) and sizes[1] > 1_000_000 and min(sizes) > 200


def healthy(federation: Containers, service: str) -> bool:
    """Whether a service says that it is well."""
    return bool(federation.facts(service)["State"].get("Health", {}).get("Status") == "healthy")
