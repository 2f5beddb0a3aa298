"""`--networks`: a file in the current folder is enough, in whichever process steps run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_simulate import BASE, write
from tests.cli.world import refusal_of, tide, tide_process
from tideline.nets import registry

CODE = """
import math
from torch import nn

built = nn.Linear(4, 2)
taken = {"lenet": lambda world: nn.Linear(4, 2)}
nothing = {}

def tiny(world, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(world.inputs), width), nn.ReLU(), nn.Linear(width, world.classes))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network, from which commands are started."""
    (tmp_path / "tiny_networks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(folder: Path, **options: Any) -> Path:
    return write(folder, world={**BASE["world"], "model": {"name": "tiny", "options": options}})


@pytest.mark.nightly(job="services")
def test_every_pool_ends_in_the_same_bytes(here: Path) -> None:
    file, told = experiment(here, width=6), []
    for pool in ("inline", "processes"):
        ended = tide_process(
            "simulate", file, "--networks", "tiny_networks:tiny", "--pool", pool, "--json", "--out", here / pool, limit=120
        )
        assert ended.returncode == 0, ended.stderr
        told.append(json.loads(ended.stdout))
    assert (here / "inline/state.safetensors").read_bytes() == (here / "processes/state.safetensors").read_bytes()
    assert told[0]["world"]["model"] == {"name": "tiny", "options": {"width": 6}}


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ({"width": "6"}, ("tiny_networks:tiny",), "e.yaml:7: world.model.options.width is '6'; it should be a whole number"),
        ({"widht": 6}, ("tiny_networks:tiny",), "tiny has no option 'widht'"),
        ({}, (), "there is no such network here"),
        ({}, ("tiny_netwroks:tiny",), "No module named 'tiny_netwroks'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(here: Path, options: dict[str, Any], more: tuple[str, ...], said: str) -> None:
    ended = tide("simulate", experiment(here, **options), *(word for place in more for word in ("--networks", place)))
    registry.use([])
    assert ended.exit_code == 2
    assert said in ended.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("tiny_netwroks:tiny", "--networks: tiny_netwroks:tiny: No module named 'tiny_netwroks'"),
        ("tiny_networks", "Write it as MODULE:NAME"),
        ("tiny_networks:taken", "adds 'lenet', and there is such a network"),
    ],
)
def test_an_agent_says_at_its_start_what_is_wrong(here: Path, place: str, said: str) -> None:
    """Before it enrols: it ends as refused."""
    where = ("--coordinator", "127.0.0.1:1", "--role", "source", "--home", here / "home", "--data", here)
    ended = tide_process("agent", *where, "--networks", place, limit=120)
    words = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 2 and said in words, words


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("tiny_networks:tinny", "--networks: tiny_networks:tinny: module 'tiny_networks' has no attribute 'tinny'"),
        ("tiny_networks:built", "'built' is a module that is built already, not a function that builds one"),
        ("tiny_networks:math", "'math' is a module, not a function"),
        ("tiny_networks:nothing", "is an empty mapping"),
    ],
)
def test_what_is_no_network(here: Path, place: str, said: str) -> None:
    assert said in " ".join(refusal_of(tide("simulate", experiment(here), "--networks", place)).split())
    registry.use([])
