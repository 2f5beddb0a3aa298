"""`docker compose up`: containers on separate networks come to a trained model, and outlive what happens to containers."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import pytest

from tests.docker.engine import Containers, docker

pytestmark = [pytest.mark.timeout(1500)]
SITES = ("site-1", "site-2", "site-3", "site-4")
OURS = ("coordinator", *SITES)
EXPERIMENT = "/usr/local/lib/tideline/demo.yaml"
LEASE_SECONDS = 15
LISTEN = "import socket, time; s = socket.create_server(('', 9999)); time.sleep(600)"
AWAY = "import time; time.sleep({})"


def test_the_demonstration_ends_and_prints_its_table(federation: Containers) -> None:
    """Three sites with labels and one without: what adapting bought on rows that nobody trained on; the federation stays up."""
    assert federation.ended("demo") == 0, federation.log("demo")
    said = federation.log("demo")
    rows = dict(re.findall(r"^(\w[\w ,]*?) +(?:yes|no) +(0\.\d+) \(0\.\d+–[01]\.\d+\) +[+-]\d+\.\d *$", said, re.MULTILINE))
    assert set(rows) == {"no adaptation", "no adaptation, lenet", "adabn", "shot"}, said
    assert max(rows, key=lambda name: float(rows[name])) == "shot" and float(rows["shot"]) > 0.7
    assert re.search(
        r"shot: .*above the best baseline shown \(.*95\s%\sinterval \+.* held-out rows\)", said.replace("\n", " ")
    ), said
    (target,) = (line for line in shown_demo(federation)["clients"] if line["name"] == "site-4")
    assert target["accuracy"] > target["source_only"] + 0.1 and target["role"] == "target"
    (words,) = re.findall(r"docker compose exec site-4 (tideline site export .*)", said)
    federation.inside("site-4", *words.split())
    assert int(federation.inside("site-4", "stat", "-c", "%s", "/tmp/model.safetensors")) > 10_000
    assert federation.facts("coordinator")["State"]["Health"]["Status"] == "healthy"


def shown_demo(federation: Containers) -> dict[str, Any]:
    """The result of the demonstration's run."""
    (run,) = [line for line in federation.tideline("coordinator", "run", "list") if line["name"].startswith("demo:")]
    return dict(federation.tideline("coordinator", "run", "show", run["id"]))


def test_repeated_calls_are_done_once(federation: Containers) -> None:
    """What draws secrets and hands out tokens has ended well, and is not started again."""
    assert [federation.ended(name) for name in ("setup", "authority", "invite")] == [0, 0, 0]
    assert federation.facts("setup")["RestartCount"] == 0


@pytest.mark.parametrize("site", SITES)
def test_a_site_reaches_the_coordinator_and_nothing_else(federation: Containers, site: str) -> None:
    """Not the database, not Redis, not another site: each is tried with a socket, and answers where it may be reached from."""
    other = SITES[SITES.index(site) - 1]
    assert federation.probe(site, "federation", 7800) == "reached"
    assert federation.probe("coordinator", "postgres", 5432) == "reached"
    assert federation.probe("coordinator", "redis", 6379) == "reached"
    for service, port in (("postgres", 5432), ("redis", 6379)):
        assert federation.probe(site, service, port) == "gaierror", "its name is not even known there"
        assert federation.probe(site, federation.address(service, "backend"), port) != "reached"
    docker("exec", "--detach", federation.container(other), "python", "-c", LISTEN)
    there = federation.address(other, other)
    federation.until(lambda: federation.probe(other, there, 9999) == "reached", "a socket at the other site")
    assert federation.probe("coordinator", there, 9999) == "reached"
    assert federation.probe(site, there, 9999) != "reached"
    assert federation.probe(site, other, 9999) == "gaierror"


def test_no_site_has_a_way_out(federation: Containers) -> None:
    """Its one network is internal: what the coordinator has on other networks is out of reach from there."""
    users = federation.address("coordinator", "users")
    assert federation.probe("coordinator", users, 7880) == "reached"
    for site in SITES:
        (network,) = federation.facts(site)["NetworkSettings"]["Networks"]
        assert network == federation.network(site)
        assert json.loads(docker("network", "inspect", network).stdout)[0]["Internal"]
        assert federation.probe(site, users, 7880) != "reached"


def test_no_site_reaches_the_host(federation: Containers) -> None:
    """What the host listens on at all its addresses is reached from the users' network, and from no site's."""
    with socket.create_server(("0.0.0.0", 0)) as host:
        port = host.getsockname()[1]
        assert federation.probe("coordinator", federation.gateway("users"), port) == "reached"
        for site in SITES:
            assert federation.probe(site, federation.gateway(site), port) != "reached"


@pytest.mark.parametrize("service", OURS)
def test_a_container_may_do_little(federation: Containers, service: str) -> None:
    """No root, no capability, no way to get one, and nothing to write to but its volumes and /tmp."""
    status = dict(line.split(":", 1) for line in federation.status(service).splitlines())
    assert set(status["Uid"].split()) == {"10001"} and set(status["Gid"].split()) == {"10001"}
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"].strip() == "1"
    for path in ("/here", "/usr/here", "/opt/tideline/here"):
        assert "Read-only file system" in docker("exec", federation.container(service), "touch", path, check=False).stderr
    mounts = {mount["Destination"]: mount["RW"] for mount in federation.facts(service)["Mounts"]}
    assert not mounts.get("/secrets", False) and "/var/run/docker.sock" not in mounts
    at_a_site = {"/var/lib/tideline", "/data", "/tokens"}
    assert service == "coordinator" or set(mounts) == at_a_site, "a site holds none of the coordinator's secrets"


def test_the_database_runs_as_nobody_special(federation: Containers) -> None:
    """Postgres drops root; its root file system is read-only too. Redis never was root."""
    for service in ("postgres", "redis"):
        facts = federation.facts(service)
        status = federation.status(service)
        assert "\nUid:\t0" not in status and facts["HostConfig"]["ReadonlyRootfs"]


def started(federation: Containers, *settings: str) -> str:
    """Another run of the demonstration's experiment."""
    given = [word for each in settings for word in ("--set", each)]
    return str(federation.tideline("coordinator", "run", "start", EXPERIMENT, *given)["run"])


def shown(federation: Containers, run: str) -> dict[str, object]:
    """A run as it is; nothing while nobody answers."""
    said = federation.inside("coordinator", "tideline", "run", "show", run, "--json", check=False)
    return dict(json.loads(said)) if said.startswith("{") else {}


def came_to(federation: Containers, run: str, rounds: int) -> bool:
    """Whether so many rounds are closed, or the run has ended."""
    now = shown(federation, run)
    return now.get("status") in ("completed", "failed", "stalled") or int(str(now.get("cursor", -1))) >= rounds


def test_partition_kill_and_restart_in_one_run(federation: Containers) -> None:
    """A site cut off for longer than a lease, the coordinator killed, the database restarted: the undisturbed run's bytes."""
    assert federation.ended("demo") == 0
    peaceful = started(federation)
    federation.until(lambda: shown(federation, peaceful).get("status") == "completed", "the undisturbed run to complete")
    run = started(federation)
    federation.until(lambda: came_to(federation, run, 3), "the first rounds")
    assert shown(federation, run)["status"] == "running"
    network, site = federation.network("site-2"), federation.container("site-2")
    docker("network", "disconnect", network, site)
    assert federation.probe("site-2", "federation", 7800) != "reached"
    federation.inside("coordinator", "python", "-c", AWAY.format(LEASE_SECONDS + 5))
    assert shown(federation, run)["status"] == "running", "it waits, and says for whom"
    docker("network", "connect", network, site)
    coordinator = federation.container("coordinator")
    docker("kill", "--signal", "KILL", coordinator)
    docker("start", coordinator)
    docker("restart", "--time", "5", federation.container("postgres"))
    federation.until(lambda: shown(federation, run).get("status") == "completed", "the run to complete")
    result, before = shown(federation, run), shown(federation, peaceful)
    assert result["state_digest"] == before["state_digest"]
    assert federation.facts("site-2")["RestartCount"] == 0, "the agent lived through it"


KEPT = "/secrets/admin.key", "/secrets/redis", "/secrets/pgpass", "/trust/ca.pem", "/certificate/coordinator.pem"


def test_up_again_changes_nothing(federation: Containers) -> None:
    """After `down`, secrets, certificates, tokens, homes and runs are as they were; the demonstration is not repeated."""
    federation.ended("demo")
    before = federation.tideline("coordinator", "clients", "list")
    keys = {line["name"]: line["fingerprint"] for line in before}
    files = [federation.inside("coordinator", "cat", name) for name in KEPT]
    runs = {line["id"] for line in federation.tideline("coordinator", "run", "list")}
    federation.compose("down", "--timeout", "20")
    federation.compose("up", "--detach", "--no-build")
    federation.until(lambda: federation.facts("site-4")["State"].get("Health", {}).get("Status") == "healthy", "the sites")
    after = federation.tideline("coordinator", "clients", "list")
    assert {line["name"]: line["fingerprint"] for line in after} == keys
    assert [federation.inside("coordinator", "cat", name) for name in KEPT] == files
    assert federation.ended("demo") == 0 and "of an earlier start" in federation.log("demo"), federation.log("demo")
    assert {line["id"] for line in federation.tideline("coordinator", "run", "list")} == runs


def test_a_site_that_lost_its_home_comes_back(federation: Containers) -> None:
    """Revoked by a person, it is invited anew by `up`, and enrols with new keys."""
    (before,) = (line for line in federation.tideline("coordinator", "clients", "list") if line["name"] == "site-4")
    federation.compose("rm", "--stop", "--force", "site-4")
    docker("volume", "rm", federation.network("home-4"))
    federation.tideline("coordinator", "clients", "revoke", "site-4")
    federation.compose("up", "--detach", "--no-build", "site-4")
    federation.until(lambda: federation.facts("site-4")["State"].get("Health", {}).get("Status") == "healthy", "the site")
    (after,) = (line for line in federation.tideline("coordinator", "clients", "list") if line["name"] == "site-4")
    assert after["standing"] == "approved" and after["fingerprint"] != before["fingerprint"]
