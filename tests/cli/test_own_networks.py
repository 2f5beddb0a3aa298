"""`--networks`: a file in the current folder is enough, in whichever process steps run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_simulate import BASE, write
from tests.cli.world import tide, tide_process
from tideline.nets import registry

CODE = """
import math
from torch import nn

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


def test_every_pool_ends_in_the_same_bytes(here: Path) -> None:
    """Processes of a pool know what their parent adds."""
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
        ({}, ("tiny_networks:tinny",), "no attribute 'tinny'"),
        ({}, ("tiny_netwroks:tiny",), "No module named 'tiny_netwroks'"),
        ({}, ("tiny_networks:CODE",), "no attribute 'CODE'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(here: Path, options: dict[str, Any], more: tuple[str, ...], said: str) -> None:
    ended = tide("simulate", experiment(here, **options), *(word for place in more for word in ("--networks", place)))
    registry.use([])
    assert ended.exit_code == 2
    assert said in ended.stderr
