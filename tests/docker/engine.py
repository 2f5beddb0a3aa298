"""A federation of containers: `docker compose` over the project's own files, under a name and with volumes of its own."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = {
    "python": "python:3.11-slim-bookworm",
    "postgres": "postgres:16-alpine",
    "redis": "redis:7-alpine",
    "prometheus": "prom/prometheus:v2.53.2",
}
PATIENCE_SECONDS = 900.0  # the demonstration plays a dozen runs, and other work may share the machine
# A socket to HOST PORT: what comes of it.
PROBE = (
    "import socket, sys\n"
    "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close(); print('reached')\n"
    "except OSError as error: print(type(error).__name__)"
)


def why_not() -> str:
    """Why containers cannot be tried here; nothing if they can."""
    if shutil.which("docker") is None:
        return "NOT TESTED: there is no docker on this machine"
    if docker("info", check=False).returncode:
        return "NOT TESTED: no Docker engine answers (dockerd)"
    return "" if composer() else "NOT TESTED: there is neither `docker compose` nor docker-compose"


def docker(*args: str, check: bool = True, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command of the engine's."""
    return run(["docker", *args], check, env)


def run(command: Sequence[str], check: bool = True, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command from the project's root; its words, if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | (env or {}))
    assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def composer() -> list[str]:
    """The command of Compose: the plugin, or the older program, which reads the same files."""
    if docker("compose", "version", check=False).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


def base_images() -> dict[str, str]:
    """See that the base images are here; build arguments that fit. Without a registry, stand-ins are made."""
    lacking = {name: image for name, image in IMAGES.items() if docker("image", "inspect", image, check=False).returncode}
    lacking = {name: image for name, image in lacking.items() if docker("pull", "--quiet", image, check=False).returncode}
    if lacking:
        run([str(Path(__file__).with_name("stand_ins.sh")), *(f"{name}={image}" for name, image in lacking.items())])
    return settings_here()


def settings_here() -> dict[str, str]:
    """A stand-in knows wheels that its machine keeps; what is not among them comes from where pip looks on this machine."""
    wheels = docker("run", "--rm", IMAGES["python"], "ls", "/var/lib/wheels", check=False).stdout.split()
    torch = next((f"torch=={name.split('-')[1]}" for name in wheels if name.startswith("torch-")), "")
    return {"BUILD_NETWORK": "host", "TORCH_INDEX": "", "TORCH": f"{torch} torchvision"} if torch else {}


class Containers:
    """One federation. `overlays`: files of deploy/ on top."""

    def __init__(self, settings: dict[str, str], *overlays: str) -> None:
        self.name = f"tideline-{uuid.uuid4().hex[:8]}"
        self.env = settings | {"COMPOSE_PROJECT_NAME": self.name, "HTTP_PORT": "0", "PROMETHEUS_PORT": "0"}
        files = ["docker-compose.yml", *(f"deploy/{name}.yml" for name in overlays)]
        self._command = composer() + [word for file in files for word in ("--file", file)]

    def compose(self, *args: str, check: bool = True) -> str:
        """A command of Compose; what it said."""
        done = run([*self._command, *args], check, self.env)
        return done.stdout + done.stderr

    def down(self) -> None:
        """End it, and forget everything."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)

    def container(self, service: str) -> str:
        """The container of a service."""
        label = f"label=com.docker.compose.service={service}"
        found = docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={self.name}", "--filter", label)
        return found.stdout.strip()

    def facts(self, service: str) -> dict[str, Any]:
        """What the engine knows of a service's container."""
        return dict(json.loads(docker("inspect", self.container(service)).stdout)[0])

    def network(self, name: str) -> str:
        """A network's own name."""
        return f"{self.name}_{name}"

    def address(self, service: str, network: str) -> str:
        """Where a service is in a network."""
        return str(self.facts(service)["NetworkSettings"]["Networks"][self.network(network)]["IPAddress"])

    def gateway(self, network: str) -> str:
        """The address that the engine keeps for the host in a network."""
        (config,) = json.loads(docker("network", "inspect", self.network(network)).stdout)[0]["IPAM"]["Config"]
        return str(config.get("Gateway") or next(ipaddress.ip_network(config["Subnet"]).hosts()))

    def inside(self, service: str, *command: str, check: bool = True) -> str:
        """What a command says within a service's container."""
        return docker("exec", self.container(service), *command, check=check).stdout.strip()

    def status(self, service: str) -> str:
        """What the kernel says of a service's first process, below the engine's own, which reaps."""
        return self.inside(service, "sh", "-c", "cat /proc/$(cat /proc/1/task/1/children | cut -d ' ' -f 1)/status")

    def probe(self, service: str, host: str, port: int) -> str:
        """What comes of a socket that a service opens: reached, or the error's name."""
        return self.inside(service, "python", "-c", PROBE, host, str(port))

    def tideline(self, service: str, *command: str) -> Any:
        """A command with --json within a service's container."""
        return json.loads(self.inside(service, "tideline", *command, "--json"))

    def log(self, service: str) -> str:
        """What a service said."""
        done = docker("logs", self.container(service))
        return done.stdout + done.stderr

    def until(self, true: Callable[[], bool], what: str, patience: float = PATIENCE_SECONDS) -> None:
        """Wait for containers to get somewhere; the logs tell why they did not."""
        end = time.monotonic() + patience
        while not true():
            if time.monotonic() > end:
                logs = self.compose("logs", "--tail", "15", check=False)
                raise AssertionError(f"waited {patience:.0f} s for {what}\n{logs}")
            time.sleep(0.2)

    def ended(self, service: str) -> int:
        """The exit code of a service that ends by itself."""
        self.until(lambda: self.facts(service)["State"]["Status"] == "exited", f"{service} to end")
        return int(self.facts(service)["State"]["ExitCode"])
