"""What images are made of: each package in one version, wherever and whenever they are built."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.manual import ROOT

RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FILE = ROOT / "deploy" / "constraints.txt"
LINES = FILE.read_text(encoding="utf-8").splitlines()
LOCKED = (ROOT / "deploy" / "locked.txt").read_text(encoding="utf-8")
PINS = dict(line.split("==") for line in LINES if not line.startswith("#"))


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


TOOL = tool()


def torch(text: str) -> list[Requirement]:
    found = re.search(r"torch==\S+ torchvision==[0-9.]+", text)
    assert found is not None, text
    return [Requirement(word) for word in found[0].split()]


def test_every_package_that_is_asked_for_has_its_version() -> None:
    """One that the project takes; torch's in the recipe, all others in the file."""
    pins = PINS | {each.name: str(each.specifier).removeprefix("==") for each in torch(RECIPE)}
    for each in TOOL.asked((ROOT / "pyproject.toml").read_text(encoding="utf-8")):
        assert each.specifier.contains(pins[canonicalize_name(each.name)]), each


def test_so_has_what_they_need() -> None:
    for name in PINS:
        try:
            same = version(name) == PINS[name]
        except PackageNotFoundError:
            continue
        for line in (requires(name) or ()) if same else ():
            more = Requirement(line)
            if TOOL.wanted(more, ()):
                assert more.specifier.contains(PINS[canonicalize_name(more.name)], prereleases=True), f"{name} needs {line}"


def test_it_is_what_its_tool_makes() -> None:
    """Sorted names with a version each; torch's family is the recipe's, for it differs with the index that it comes from."""
    names = list(PINS)
    assert LINES[0] == TOOL.HEAD.strip() and names == sorted(names) == [canonicalize_name(name) for name in names]
    assert not [name for name in names if TOOL.TORCHS.match(name)]
    made = TOOL.needed([Requirement("torchvision"), Requirement("psycopg[binary]")])
    assert {"numpy", "sympy", "psycopg", "psycopg-binary"} <= set(made) and not [name for name in made if TOOL.TORCHS.match(name)]


def test_their_files_are_known_by_hash() -> None:
    """The locked file has the same packages in the same versions, each with the hashes of its files."""
    entries = re.findall(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", LOCKED, flags=re.MULTILINE)
    assert {canonicalize_name(name): version for name, version, _ in entries} == PINS, "see docs/deploying.md#images"
    assert LOCKED.count("==") == len(entries)


def test_the_recipe_goes_by_it() -> None:
    """Nothing is installed in whichever version is the newest, and nothing but torch's family without a hash."""
    installs = [line.strip() for line in re.findall(r"pip install ([^&\n]+)", RECIPE)]
    assert installs == [
        "--no-deps --require-hashes --requirement locked.txt",
        '--no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} $TORCH',
        "--constraint constraints.txt $TORCH",
        "--no-deps .",
    ]
    assert "pip check" in RECIPE, "what the project asks for is there"
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"!deploy/constraints.txt", "!deploy/locked.txt"} <= set(kept)


def test_torch_is_pinned_alike() -> None:
    files = (ROOT / "docker-compose.yml", ROOT / "deploy" / "gpu.yml")
    base, gpu = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in files)
    usual = base["x-coordinator-image"]["build"]["args"]["TORCH"].removeprefix("${TORCH:-").removesuffix("}")
    assert usual == gpu["services"]["site-1"]["build"]["args"]["TORCH"] == " ".join(map(str, torch(RECIPE)))


# What an engine says of images: those of `lost` are at no registry, and `made` was made here.
ENGINE = """#!/bin/sh
case "$1 $2" in
  "pull --quiet") case "$3" in lost*) echo "no such host" >&2; exit 1 ;; esac ;;
  "image inspect") case "$5" in made*) ;; *) echo "somewhere/else@sha256:$(echo "$5" | tr -c 'a-z0-9\\n' 0)" ;; esac ;;
esac
"""


def digests(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """deploy/digests.sh, with an engine that answers so."""
    (folder / "docker").write_text(ENGINE, encoding="utf-8")
    (folder / "docker").chmod(0o755)
    usual = {name: value for name, value in os.environ.items() if not name.endswith("_IMAGE")}
    env = usual | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"} | variables
    return subprocess.run([ROOT / "deploy" / "digests.sh", *args], env=env, capture_output=True, text=True, check=False)


def test_digests_are_lines_of_settings(tmp_path: Path) -> None:
    """Every base image of the file, under the name that the environment gives it; our own are built here and have none."""
    told = digests(tmp_path, REDIS_IMAGE="redis:8@sha256:0ld")
    lines = dict(line.split("=") for line in told.stdout.splitlines())
    assert told.returncode == 0 and set(lines) == {"PYTHON_IMAGE", "POSTGRES_IMAGE", "REDIS_IMAGE"}, told.stderr
    assert lines["REDIS_IMAGE"] == "redis:8@sha256:redis08" and lines["PYTHON_IMAGE"].startswith(
        "python:3.11-slim-bookworm@sha256:"
    )
    told = digests(tmp_path, str(ROOT / "deploy" / "metrics.yml"))
    assert {line.split("=")[0] for line in told.stdout.splitlines()} == {
        f"{n}_IMAGE" for n in ("PROMETHEUS", "ALERTMANAGER", "GRAFANA")
    }


@pytest.mark.parametrize(
    ("image", "why"), [("lost:1", "lost:1 cannot be pulled"), ("made:1", "the registry of made:1 tells no digest")]
)
def test_an_image_without_a_digest_is_an_error(image: str, why: str, tmp_path: Path) -> None:
    """Said with the image; it does not end well, so that no half of a file passes for a whole one."""
    told = digests(tmp_path, PYTHON_IMAGE=image)
    assert told.returncode == 1 and why in told.stderr
