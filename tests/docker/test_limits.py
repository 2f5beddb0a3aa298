"""What a container may take: memory, processes, its log. What it may know: passwords are asked for, and stay where they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docker.engine import Containers, docker

pytestmark = [pytest.mark.timeout(1500)]
SERVICES = ("site-1", "site-4")
SITE_PIDS = 1024
SETTINGS = {"SITE_MEMORY": "1g", "LOG_SIZE": "20k", "LOG_FILES": "2"}
EXPERIMENT = "/usr/local/lib/tideline/demo.yaml"
ROSTER = ("roster={site-1: source, site-4: target}", "method=fedavg", "config.rounds=30", "reference=null")
# As many children as the kernel lets this process have.
FORK = (
    "import os, time\n"
    "made = 0\n"
    "try:\n"
    "    while made < 5000:\n"
    "        if os.fork() == 0: time.sleep(600); os._exit(0)\n"
    "        made += 1\n"
    "except OSError as error: print(made, type(error).__name__)\n"
    "os.killpg(0, 9)"
)
# Files in memory belong to no process: what the kernel ends to make room is the largest, which is the agent's own.
FILL = "dd if=/dev/zero of=/tmp/filled bs=1M 2>/dev/null || true"
SPEAK = "i=0; while [ $i -lt 2000 ]; do echo line $i of a program that says too much; i=$((i + 1)); done"
ASK_POSTGRES = (
    "import psycopg, sys\n"
    "try: psycopg.connect(host='postgres', user='tideline', dbname='tideline', password=sys.argv[1], passfile='/none').close()\n"
    "except psycopg.OperationalError as error: print(str(error).splitlines()[-1])\n"
    "else: print('let in')"
)
ASK_REDIS = (
    "import redis, sys\n"
    "try: redis.Redis('redis', password=sys.argv[1] or None).ping()\n"
    "except redis.RedisError as error: print(type(error).__name__)\n"
    "else: print('let in')"
)
# Files of a container and of its volumes that have a word, and how many of its variables do.
HOLD = (
    r"find / \( -path /proc -o -path /sys -o -path /usr -o -path /opt \) -prune -o -type f -size -64k -readable "
    "-exec grep -lF -- '{0}' {{}} + 2>/dev/null; env | grep -cF -- '{0}'; true"
)


@pytest.fixture(autouse=True)
def ready(federation: Containers) -> None:
    """Both sites are there."""
    for name in SERVICES:
        federation.until(
            lambda name=name: federation.facts(name)["State"].get("Health", {}).get("Status") == "healthy",  # type: ignore[misc]
            name,
        )


def shown(federation: Containers, run: str) -> dict[str, object]:
    """A run as it is; nothing while nobody answers."""
    said = federation.inside("coordinator", "tideline", "run", "show", run, "--json", check=False)
    return dict(json.loads(said)) if said.startswith("{") else {}


def secret(federation: Containers, name: str) -> str:
    """One of those that setup drew, as a coordinator reads it."""
    return federation.inside("coordinator", "cat", f"/secrets/{name}").split(":")[-1]


def test_the_engine_obeys_every_limit(federation: Containers) -> None:
    """Of all containers that are there, as they are, whichever Compose made them."""
    for service in ("postgres", "redis", "coordinator", *SERVICES):
        told = federation.facts(service)["HostConfig"]
        assert told["Memory"] > 0 and told["NanoCpus"] == 10**9 and told["PidsLimit"] > 0 and told["Init"], service
        assert told["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "20k", "max-file": "2"}}, service
    assert federation.facts("site-1")["HostConfig"]["Memory"] == 2**30
    assert federation.facts("site-1")["HostConfig"]["PidsLimit"] == SITE_PIDS


def test_a_wrong_password_is_refused(federation: Containers) -> None:
    """By Postgres and by Redis, and so is none; the right ones are asked for in the same way and let in."""
    right, wrong = secret(federation, "pgpass"), "not-the-password"
    asked = [federation.inside("coordinator", "python", "-c", ASK_POSTGRES, word) for word in (right, wrong, "")]
    assert asked[0] == "let in" and "password authentication failed" in asked[1] and "no password" in asked[2], asked
    right = secret(federation, "redis")
    asked = [federation.inside("coordinator", "python", "-c", ASK_REDIS, word) for word in (right, wrong, "")]
    assert asked == ["let in", "AuthenticationError", "AuthenticationError"], asked
    assert "redis_away" not in federation.log("coordinator")


def test_no_site_can_read_a_secret(federation: Containers) -> None:
    """In no file of its container, in no variable; what `docker inspect` and `ps` show of any container has none either."""
    drawn = [secret(federation, name) for name in ("pgpass", "redis", "admin.key")]
    assert min(map(len, drawn)) == 43 and len(set(drawn)) == 3
    for word in drawn:
        assert federation.inside("site-1", "sh", "-c", HOLD.format(word)) == "0"
        assert federation.inside("coordinator", "sh", "-c", HOLD.format(word)).splitlines()[0].startswith("/secrets/")
        for service in ("setup", "postgres", "redis", "coordinator", "invite", *SERVICES):
            container = federation.container(service)
            running = docker("top", container, "-eo", "args", check=False).stdout
            assert word not in docker("inspect", container).stdout + running + federation.log(service), service


def test_processes_are_bounded(federation: Containers) -> None:
    """A site that forks without end stays below its number, and goes on afterwards."""
    made, error = federation.inside("site-1", "setsid", "--wait", "python", "-c", FORK, check=False).split()
    assert error == "BlockingIOError" and 0 < int(made) < SITE_PIDS
    assert federation.inside("site-1", "true", check=True) == ""


def test_logs_are_bounded(federation: Containers) -> None:
    """What a container says beyond its two files is dropped, the oldest first."""
    federation.inside("site-4", "sh", "-c", f"({SPEAK}) >/proc/1/fd/1")
    said = federation.log("site-4")
    assert "line 1999 of" in said and "line 100 of" not in said
    path = Path(federation.facts("site-4")["LogPath"])
    if path.parent.is_dir():  # the engine may be elsewhere
        files = [each for each in path.parent.iterdir() if re.fullmatch(rf"{path.name}(\.\d+)?", each.name)]
        assert 0 < len(files) <= 2 and max(each.stat().st_size for each in files) < 25_000


def test_a_site_without_memory_comes_back_to_its_run(federation: Containers) -> None:
    """In the middle of a run the kernel ends what the site computes with; the site goes on, and the run completes."""
    settings = [word for each in ROSTER for word in ("--set", each)]
    run = str(federation.tideline("coordinator", "run", "start", EXPERIMENT, *settings)["run"])
    federation.until(lambda: int(str(shown(federation, run).get("cursor", -1))) >= 2, "the first rounds")
    federation.inside("site-1", "sh", "-c", FILL, check=False)
    federation.until(lambda: killed(federation, "site-1"), "the kernel to end something")
    federation.inside("site-1", "rm", "-f", "/tmp/filled", check=False)
    federation.until(lambda: shown(federation, run).get("status") not in ("waiting", "running", None), "the run to end")
    assert shown(federation, run)["status"] == "completed", shown(federation, run).get("cause")


def killed(federation: Containers, service: str) -> bool:
    """Whether the kernel ended processes of a container for memory: the control group counts them, and a restart begins anew."""
    counts = "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null"
    said = federation.inside(service, "sh", "-c", counts, check=False)
    return bool(re.search(r"^oom_kill [1-9]", said, re.MULTILINE)) or federation.facts(service)["RestartCount"] > 0
