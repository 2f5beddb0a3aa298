"""The adapters of the manual: they train with fedavg, and the pretrained weights neither train nor travel."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tideline
from tests.architecture.sources import REPOSITORY
from tests.cli.world import tide
from tideline.nets import registry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's module, and pretrained weights beside it."""
    page = (REPOSITORY / "docs" / "networks.md").read_text()
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Adapted" in each]
    (tmp_path / "my_adapters.py").write_text(code)
    torch.manual_seed(0)
    hidden = torch.nn.Linear(28 * 28, 32)
    save_file({"hidden.weight": hidden.weight.detach(), "hidden.bias": hidden.bias.detach()}, tmp_path / "base.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_they_train_with_fedavg(folder: Path) -> None:
    """Messages and models hold 4 x (784 + 32) numbers of adapters, and a head."""
    data = {n: {"role": "source", "dataset": "digits", "domain": n, "rows": 60} for n in ("mnist", "usps")}
    world = {"inputs": [1, 28, 28], "classes": 10, "model": {"name": "adapted", "options": {"rank": 4}}}
    (folder / "e.json").write_text(json.dumps({"method": "fedavg", "config": {"rounds": 3}, "world": world, "data": data}))
    try:
        told = tide("simulate", "e.json", "--networks", "my_adapters:adapted", "--out", "out")
        assert told.exit_code == 0, told.output
        written = load_file("out/model.safetensors")
        assert sum(w.numel() for w in written.values()) == 4 * (28 * 28 + 32) + 32 * 10 + 10
        assert set(written) == {"1.a", "1.b", "3.weight", "3.bias"} and written["1.b"].abs().max() > 0
        result = json.loads((folder / "out" / "result.json").read_text())
        train = [each["bytes_up"] for each in result["phases"] if each["name"] == "train"]
        assert max(train) < 2 * 20_000
        net = tideline.load("out/model.safetensors")
        assert torch.equal(net.network.state_dict()["features.1.a"], written["1.a"])
        assert torch.isfinite(net.predict(torch.rand(3, 1, 28, 28)).probabilities).all()
    finally:
        registry.use([])
        sys.modules.pop("my_adapters", None)
