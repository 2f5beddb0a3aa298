"""What the chart's pods would run, run here: their arguments, variables, probes and files, with paths moved below a folder."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.harness import Net, net
from tests.deploy.cases import IMAGES
from tests.deploy.chart import Object, containers, of, parsed, texts
from tests.services import free_port
from tideline.client.certificates import issue_client, issue_coordinator

pytestmark = [pytest.mark.processes, pytest.mark.nightly(job="services")]
MOUNTED = re.compile(r"^(--[a-z-]+=)?(/(?:var/lib/tideline|secrets|parts|data)(?:/.*)?)$")
SITE = {"name": "hospital-a", "roles": ["source"], "device": "cpu", "tls": {"secret": "hospital-a-tls"}}
TLS = {"secret": "tls", "clientCa": {"secret": "authority"}}
MOUNTS = {"data": {"existingClaim": "hospital-a-data"}, "token": {"secret": "hospital-a"}}


class Pod:
    """One container of a render, whose mounts are folders of this machine."""

    def __init__(self, container: Object, root: Path) -> None:
        self.container, self.root = container, root
        for mount in container["volumeMounts"]:
            self.at(mount["mountPath"]).mkdir(parents=True)
        self.at("/var/lib/tideline").chmod(0o2775)  # as a claim comes from the kubelet: its group may write

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def moved(self, words: list[str]) -> list[str]:
        """Arguments, with paths of the container as they are here."""
        return [MOUNTED.sub(lambda found: f"{found[1] or ''}{self.at(found[2])}", word) for word in words]

    @property
    def args(self) -> list[str]:
        return self.moved(self.container["args"])

    @property
    def env(self) -> dict[str, str]:
        return {each["name"]: self.moved([each["value"]])[0] for each in self.container["env"]}

    def secret(self, path: str, content: bytes) -> None:
        """A file of a Secret, as it is mounted: its group may read it."""
        self.at(path).write_bytes(content)
        self.at(path).chmod(0o440)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Net]:
    """Processes that end with the test."""
    with net(tmp_path) as made:
        yield made


def test_pods_find_each_other(federation: Net, tmp_path: Path) -> None:
    """With certificates on both sides: probes pass, the command that is printed invites, the agent is let in, and comes back."""
    grpc, http = free_port(), free_port()
    said = texts(
        IMAGES
        | {
            "coordinator": {"advertise": f"127.0.0.1:{grpc}", "tls": {"secret": "tls", "clientCa": {"secret": "authority"}}},
            "agents": [SITE | MOUNTS | {"coordinator": f"127.0.0.1:{grpc}"}],
        }
    )
    objects = parsed(said)
    made = {each["name"]: Pod(each, tmp_path / "pods" / each["name"]) for each in containers(objects)}
    coordinator, agent = made["coordinator"], made["agent"]
    fill(tmp_path / "tls", coordinator, agent)
    coordinator.secret("/secrets/admin/admin.key", b64decode(of(objects, "Secret")[0]["data"]["admin.key"]))
    federation.more = coordinator.env | {"TIDELINE_GRPC_PORT": str(grpc), "TIDELINE_HTTP_PORT": str(http)}
    federation.start("coordinator", *coordinator.args)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        url = f"https://127.0.0.1:{http}{coordinator.container[probe]['httpGet']['path']}"
        federation.until(lambda url=url: answers(url), f"{url} to answer")
    agent.secret("/secrets/token/token", invited(said["tideline/templates/NOTES.txt"], coordinator, federation))
    federation.more = agent.env
    enrolled_twice(federation, agent)


def fill(folder: Path, coordinator: Pod, agent: Pod) -> None:
    """What the Secrets and the site's claim hold."""
    issue_coordinator(folder, ["127.0.0.1"])
    issue_client(folder, "hospital-a")
    for pod, name in ((coordinator, "coordinator"), (agent, "hospital-a")):
        pod.secret("/secrets/tls/tls.crt", (folder / f"{name}.pem").read_bytes())
        pod.secret("/secrets/tls/tls.key", (folder / f"{name}.key").read_bytes())
    coordinator.secret("/secrets/client-ca/ca.crt", (folder / "ca.pem").read_bytes())
    np.savez(agent.at("/data/scanner.npz"), x=np.eye(6, dtype=np.float32), y=np.arange(6) % 2)


def answers(url: str) -> bool:
    """Whether a probe passes: the kubelet does not look at the certificate either."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def invited(notes: str, coordinator: Pod, federation: Net) -> bytes:
    """The token that the printed command gives, typed within the coordinator's pod."""
    found = re.search(r"'(tideline invite .*?)'", notes)
    assert found is not None
    typed = found[1].replace("tideline ", f"{sys.executable} -m tideline ", 1)
    typed = typed.replace("/tmp/token", str(coordinator.at("/tmp/token"))).replace("/secrets", str(coordinator.at("/secrets")))
    done = subprocess.run(["sh", "-c", typed], env=federation.environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert not coordinator.at("/tmp/token").exists()
    return done.stdout


def enrolled_twice(federation: Net, agent: Pod) -> None:
    """The agent gets ready by its probe, ends in order, and is let in again with the same token in its Secret."""
    probe = agent.moved(agent.container["readinessProbe"]["exec"]["command"])
    assert subprocess.run(probe, check=False).returncode == 1
    for times in (1, 2):
        federation.start("agent", *agent.args)
        federation.until(lambda times=times: federation.log("agent").count("enrolled") == times, "the agent to be let in")
        federation.until(lambda: subprocess.run(probe, check=False).returncode == 0, "the agent to be ready")
        federation.running["agent"].terminate()
        assert federation.running["agent"].wait(120) == 0
    assert agent.at("/var/lib/tideline/agent/keys.pem").stat().st_mode & 0o777 == 0o600
