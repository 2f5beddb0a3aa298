"""Networks of one's own, of torchvision and frozen ones over real agents, from files with weights to predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file
from torch import nn

from tests.acceptance.harness import BRINGS, Net, net
from tests.acceptance.test_data_kinds import IMAGES, image_site
from tests.cli.world import tide, tide_process
from tideline import nets
from tideline.algorithms import METHODS
from tideline.archive.digests import digest_of
from tideline.core.asked.world import world_in
from tideline.core.run import Role
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.nets import registry

pytestmark = pytest.mark.processes
OWN = ("--networks", "tests.nets.foreign:convolutions")
WORLD = {**IMAGES, "class_names": list(IMAGES["class_names"])}  # type: ignore[call-overload]


def test_agents_train_it_and_one_without_it_is_told_how(tmp_path: Path) -> None:
    with net(tmp_path) as made:
        made.coordinator(*OWN)
        for i, name in enumerate(("anna", "bert", "carl")):
            made.agent(name, image_site(tmp_path / name, i), "source", *OWN)
        made.agent("dora", image_site(tmp_path / "dora", 9), "source")
        model = {"name": "convolutions", "options": {"width": 6}}
        given = {"method": "fedavg", "preset": "tiny", "world": {**WORLD, "model": model}, "seed": 3}
        run = made.run({**given, "roster": dict.fromkeys(("anna", "bert", "carl"), "source")})
        result = made.completed(run)
        assert result["world"]["model"] == model
        lacking = made.run({**given, "roster": {"dora": "source"}, "waiting": {"deadline": 60}})
        made.until(lambda: "--networks MODULE:NAME" in str(made.result(lacking)), "the site without it to say so")


@pytest.mark.parametrize("command", [("coordinator", "--grpc-port", "0", "--http-port", "0"), ("doctor", "--role", "source")])
def test_a_place_without_a_network_is_said_at_the_start(tmp_path: Path, command: tuple[str, ...]) -> None:
    data = ("--data", image_site(tmp_path / "data", 1), "--coordinator", "127.0.0.1:1") if command[0] == "doctor" else ()
    ended = tide_process(*command, "--home", tmp_path / "home", *data, "--networks", "no.such:thing", limit=120)
    assert ended.returncode != 0
    assert "--networks: no.such:thing: No module named 'no'" in ended.stdout + ended.stderr


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


NETWORK = {**WORLD, "model": "lenet"}
TWO = ("anna", "bert")


def simulated(folder: Path, given: dict[str, Any], base: bytes) -> dict[str, Any]:
    federation = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(folder / n, w, r)) for n in TWO})
    assert federation.bring([base]) == given["weights"]
    return federation.run(federation.start(given))


def test_the_encoder_is_fetched_once_and_applied_once(tmp_path: Path) -> None:
    """A restarted agent does not compute the features again; the exported model predicts what the run's scoring counted.

    A simulation ends in the same bytes, also where a layer below the head trains.
    """
    torch.manual_seed(4)
    weights = nets.weights_of(nets.build(world_in(NETWORK)))
    base = save(weights)
    digest = digest_of([base])
    with net(tmp_path) as made:
        made.coordinator()
        for i, name in enumerate(TWO):
            made.agent(name, image_site(tmp_path / name, i), "source", *made.policy(BRINGS))
        made.client().upload_weights(digest, len(base), lambda: iter([base]))
        given = {"method": "fedavg", "preset": "tiny", "world": {**NETWORK, "trains": "head"}, "seed": 3, "weights": digest}
        asked = {**given, "roster": dict.fromkeys(TWO, "source")}
        result = made.completed(made.run(asked))
        with made.journal() as journal:
            first, *later = [o for o in journal.orders(result["run"]) if o.client == "anna"]
            assert first.bytes_down == len(base) and max(o.bytes_down + o.bytes_up for o in later) < 6000, later
        kept = {file: file.stat().st_ino for name in TWO for file in (tmp_path / f"home-{name}" / "features").iterdir()}
        assert len(kept) == 4  # to train on and held out, at two sites
        made.restart("anna")
        made.completed(made.run({**asked, "seed": 4}))
        assert kept == {file: file.stat().st_ino for name in TWO for file in (tmp_path / f"home-{name}" / "features").iterdir()}
        patterns = {**asked, "world": {**NETWORK, "trains": ["features.3.*", "classifier.bias"]}}
        part = made.ended(made.run(patterns))
        with made.journal() as journal:
            later = [o for o in journal.orders(part["run"]) if o.client == "anna"][1:]
            assert max(o.bytes_down for o in later) < 60_000 < len(base), later
        out, rows = tmp_path / "model.safetensors", tmp_path / "rows.csv"
        told = tide_process("run", "export", result["run"], "--out", out, "--home", made.home_of("coordinator"))
        assert told.returncode == 0, told.stderr
        said = tide_process("predict", "--model", out, "--data", tmp_path / "anna", "--held-out", "--out", rows, "--json")
        assert said.returncode == 0, said.stderr
    for there, given in ((result, asked), (part, patterns)):
        here = simulated(tmp_path, given, base)
        assert (there["status"], there["state_digest"]) == ("completed", here["state_digest"]), there["cause"]
    assert all(torch.equal(load_file(out)[name], w) for name, w in weights.items() if name.startswith("features."))
    accuracies = {client["name"]: client["accuracy"] for client in result["clients"]}
    assert json.loads(said.stdout)["accuracy"]["value"] == accuracies["anna"]


def test_an_agent_without_the_network_is_told(tmp_path: Path) -> None:
    own = ("--networks", "tests.nets.foreign:convolutions")
    with net(tmp_path) as made:
        made.coordinator(*own)
        made.agent("dora", image_site(tmp_path / "dora", 9), "source", *made.policy(BRINGS))
        world = {**WORLD, "model": "convolutions"}
        registry.use(["tests.nets.foreign:convolutions"])
        try:
            base = save(nets.weights_of(nets.build(world_in(world))))
        finally:
            registry.use([])
        digest = digest_of([base])
        made.client().upload_weights(digest, len(base), lambda: iter([base]))
        asked = {"method": "fedavg", "preset": "tiny", "world": {**world, "trains": "head"}, "weights": digest}
        lacking = made.run({**asked, "roster": {"dora": "source"}, "waiting": {"deadline": 60}})
        made.until(lambda: "--networks MODULE:NAME" in str(made.result(lacking)), "the site without it to say so")
