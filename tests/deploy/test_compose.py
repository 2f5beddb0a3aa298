"""What the compose files say, without an engine; `make containers` brings them up."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tideline_server.settings import CoordinatorSettings

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = ROOT / "docker-compose.yml"
OVERLAYS = sorted((ROOT / "deploy").glob("*.yml"))
FILES = [BASE, *OVERLAYS]
SITES = ("site-1", "site-2", "site-3", "site-4")
# What the scripts and commands of the containers read, beside the coordinator's settings.
OURS = {"TIDELINE_URL", "TIDELINE_CA", "TIDELINE_INSECURE", "TIDELINE_DEVICE"}


def read(file: Path) -> dict[str, Any]:
    """A compose file."""
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def services(file: Path) -> dict[str, dict[str, Any]]:
    """The services of a file."""
    return dict(read(file)["services"])


def together() -> dict[str, dict[str, Any]]:
    """The services of all files that are whole, which have an image."""
    return {name: told for file in reversed(FILES) for name, told in services(file).items() if "image" in told}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_a_file_names_is_there(file: Path) -> None:
    """Volumes, networks and services that another names, settings that a program reads, scripts that can be started."""
    known = read(BASE) | {"services": services(BASE) | services(file)}
    volumes = set(known["volumes"]) | set(read(file).get("volumes") or {})
    for name, told in services(file).items():
        assert "image" in told or name in services(BASE), f"{name} is nowhere whole"
        for volume in told.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in volumes or (source.startswith("./") and (ROOT / source).exists()), f"{name} mounts {volume}"
        assert set(told.get("networks", ())) <= set(known["networks"]), name
        assert set(told.get("depends_on", ())) <= set(known["services"]), name
        settings = {word for word in told.get("environment", {}) if word.startswith("TIDELINE_")}
        assert settings <= OURS | {f"TIDELINE_{field.upper()}" for field in CoordinatorSettings.model_fields}, name
        for script in told.get("entrypoint", ()):
            here = ROOT / "deploy" / "compose" / Path(script).name
            assert script == f"/usr/local/lib/tideline/{here.name}" and os.access(here, os.X_OK), script


def test_images_are_pinned() -> None:
    """By a version; one's own are local."""
    for name, told in together().items():
        image = re.fullmatch(r"\$\{[A-Z_]+:-(.+)\}", told["image"])
        assert image is not None, f"{name}: another image can be named for {told['image']}"
        assert re.search(r":(local|cuda|v?\d+[\d.]*(-[a-z0-9]+)*)$", image[1]), name


def test_containers_may_do_little() -> None:
    """No capability but those with which Postgres drops root, no new privileges, and a root file system that stays as it is."""
    for name, told in together().items():
        assert told["cap_drop"] == ["ALL"] and told["security_opt"] == ["no-new-privileges:true"], name
        assert told.get("read_only") or name == "grafana", name
        assert "privileged" not in told and ("cap_add" in told) is (name == "postgres"), name
        assert not any("docker.sock" in volume for volume in told.get("volumes", ())), name


def test_networks_keep_sites_apart() -> None:
    """A site is in one network, with the coordinators; only people's ports are published, and on this machine alone."""
    whole, networks = together(), read(BASE)["networks"]
    for site in SITES:
        assert list(whole[site]["networks"]) == [site] and networks[site] == {"internal": True}
        others = {name for name, told in whole.items() if site in told.get("networks", ())}
        assert others == {site, "coordinator", "coordinator-2"}
        assert not any(volume.startswith("secrets:") for volume in whole[site]["volumes"])
    for name in ("postgres", "redis"):
        assert list(whole[name]["networks"]) == ["backend"] and networks["backend"] == {"internal": True}
    published = {name: told["ports"] for name, told in whole.items() if "ports" in told}
    assert set(published) == {"coordinator", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_the_second_coordinator_is_like_the_first() -> None:
    """But for its own home."""
    first, second = services(BASE)["coordinator"], services(ROOT / "deploy" / "replicas.yml")["coordinator-2"]
    assert second["environment"] == first["environment"] and second["networks"] == first["networks"]
    assert [each.replace("coordinator-2:", "coordinator:") for each in second["volumes"]] == first["volumes"]


def test_the_manual_knows_the_overlays() -> None:
    """Each has a line in the page, and the page names no other."""
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `deploy/([a-z]+\.yml)`", page, re.MULTILINE)) == {file.name for file in OVERLAYS}
    variables = set(re.findall(r"\$\{([A-Z_]+)", "".join(file.read_text(encoding="utf-8") for file in FILES)))
    assert variables == set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", page.split("## Settings")[1].split("## Overlays")[0]))
