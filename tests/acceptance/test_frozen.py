"""A run over a frozen encoder with real agents: its weights are fetched once, its features computed once, its model whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from tests.acceptance.harness import BRINGS, net
from tests.acceptance.test_data_kinds import image_site
from tests.acceptance.test_own_network import WORLD
from tests.cli.world import tide_process
from tideline import nets
from tideline.algorithms import METHODS
from tideline.archive.digests import digest_of
from tideline.core.asked.world import world_in
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.nets import registry

pytestmark = pytest.mark.processes
NETWORK = {**WORLD, "model": "lenet"}
NAMES = ("anna", "bert")


def simulated(folder: Path, given: dict[str, Any], base: bytes) -> dict[str, Any]:
    federation = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(folder / n, w, r)) for n in NAMES})
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
        for i, name in enumerate(NAMES):
            made.agent(name, image_site(tmp_path / name, i), "source", *made.policy(BRINGS))
        made.client().upload_weights(digest, len(base), lambda: iter([base]))
        given = {"method": "fedavg", "preset": "tiny", "world": {**NETWORK, "trains": "head"}, "seed": 3, "weights": digest}
        asked = {**given, "roster": dict.fromkeys(NAMES, "source")}
        result = made.completed(made.run(asked))
        with made.journal() as journal:
            first, *later = [o for o in journal.orders(result["run"]) if o.client == "anna"]
            assert first.bytes_down == len(base) and max(o.bytes_down + o.bytes_up for o in later) < 6000, later
        kept = {file: file.stat().st_ino for name in NAMES for file in (tmp_path / f"home-{name}" / "features").iterdir()}
        assert len(kept) == 4  # to train on and held out, at two sites
        made.kill("anna")
        made.again("anna")
        made.completed(made.run({**asked, "seed": 4}))
        assert kept == {file: file.stat().st_ino for name in NAMES for file in (tmp_path / f"home-{name}" / "features").iterdir()}
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
