"""A network of torchvision over real agents, from a file with its own names and a head of other classes, to predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.acceptance.harness import BRINGS, Net, net
from tests.acceptance.test_data_kinds import image_site
from tests.acceptance.test_own_network import WORLD
from tests.cli.world import tide
from tideline.core.asked.world import world_in
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder

pytestmark = pytest.mark.processes
NAMES = ("anna", "bert", "carl")
MOBILE = {**WORLD, "inputs": [3, 32, 32], "model": "torchvision/mobilenet_v3_small"}
ROUNDS = 2
CONFIG = {"epochs": 4, "batch": 8, "optimiser": "adamw", "rate": 0.001}


def published(file: Path, site: Path) -> Path:
    """A file as torchvision's, its head of 1000 classes; what batch norm measures is of the site's rows.

    It moves by a hundredth a step, and a short training from 0 and 1 would be scored by it.
    """
    from torchvision.models import mobilenet_v3_small

    torch.manual_seed(0)
    made = mobilenet_v3_small(weights=None).train()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        made(read_folder(site, world_in(MOBILE), Role.SOURCE).train.x.all("the test"))
    save_file(made.state_dict(), file)
    return file


def accuracies(made: Net, file: Path, rounds: int) -> tuple[str, dict[str, float]]:
    """A run of the experiment in the file, and the accuracy at each site."""
    home, setting = made.home_of("coordinator"), f"config.rounds={rounds}"
    told = tide("run", "start", file, "--home", home, "--set", setting, "--json")
    assert told.exit_code == 0, told.output
    assert "not loaded: classifier.3.bias (1000), classifier.3.weight (1000 x 1024)" in " ".join(told.stderr.split())
    run: str = json.loads(told.stdout)["run"]
    result = made.completed(run)
    return run, {client["name"]: client["accuracy"] for client in result["clients"]}


def test_a_mobilenet_learns_over_three_agents(tmp_path: Path) -> None:
    """Well above chance and its start on held-out rows; the exported model predicts what the run's scoring counted."""
    sites = {name: image_site(tmp_path / name, i, side=32) for i, name in enumerate(NAMES)}
    published(tmp_path / "mobilenet.safetensors", sites["anna"])
    file = tmp_path / "e.json"
    given = {"method": "fedavg", "config": CONFIG, "world": MOBILE, "weights": "mobilenet.safetensors", "seed": 1}
    file.write_text(json.dumps({**given, "roster": dict.fromkeys(NAMES, "source")}))
    with net(tmp_path) as made:
        made.coordinator()
        for name, folder in sites.items():
            made.agent(name, folder, "source", *made.policy(BRINGS))
        _, first = accuracies(made, file, 0)
        run, last = accuracies(made, file, ROUNDS)
        assert all(last[name] >= max(0.75, first[name] + 0.25) for name in NAMES), (first, last)
        out, rows = tmp_path / "model.safetensors", tmp_path / "rows.csv"
        told = tide("run", "export", run, "--out", out, "--home", made.home_of("coordinator"))
        assert told.exit_code == 0, told.output
    said = tide("predict", "--model", out, "--data", sites["anna"], "--held-out", "--out", rows, "--device", "cpu", "--json")
    assert said.exit_code == 0 and json.loads(said.stdout)["accuracy"]["value"] == last["anna"], said.output
