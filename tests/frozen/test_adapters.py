"""The adapters of the manual: they train with fedavg by patterns, and the pretrained layer neither trains nor travels."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import tideline
from tests.architecture.sources import REPOSITORY
from tests.cli.world import tide
from tideline.nets import registry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's module, and pretrained weights beside it."""
    (code,) = [each for each in blocks("python") if "class Adapted" in each]
    (tmp_path / "my_adapters.py").write_text(code)
    torch.manual_seed(0)
    hidden = torch.nn.Linear(28 * 28, 32)
    save_file({f"hidden.{name}": w.detach() for name, w in hidden.named_parameters()}, tmp_path / "pretrained.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (REPOSITORY / "docs" / "networks.md").read_text(), re.DOTALL)


def test_they_train_with_fedavg(folder: Path) -> None:
    """Messages hold 4 x (784 + 32) numbers of adapters, and a head; the model is whole."""
    (page,) = [each for each in blocks("yaml") if "lora" in each]
    asked: dict[str, Any] = yaml.safe_load(page)
    asked["data"] = {n: {"role": "source", "dataset": "digits", "domain": n, "rows": 60} for n in ("mnist", "usps")}
    (folder / "e.json").write_text(json.dumps({name: value for name, value in asked.items() if name != "roster"}))
    try:
        told = tide("simulate", "e.json", "--networks", "my_adapters:adapted", "--out", "out")
        assert told.exit_code == 0, told.output
        written, given = load_file("out/model.safetensors"), load_file("pretrained.safetensors")
        assert all(torch.equal(written[name], w) for name, w in given.items()) and written["hidden.lora_b"].abs().max() > 0
        assert sum(w.numel() for w in written.values()) == 28_714
        result = json.loads((folder / "out" / "result.json").read_text())
        assert result["notes"][0].startswith("4 of 6 tensors of adapted train, 3,594 numbers; the rest is frozen, 25,120 numbers")
        train = [each["bytes_up"] for each in result["phases"] if each["name"] == "train"]
        assert max(train) < 2 * (4 * 3594 + 2000)
        net = tideline.load("out/model.safetensors")
        assert torch.isfinite(net.predict(torch.rand(3, 1, 28, 28)).probabilities).all()
    finally:
        registry.use([])
        sys.modules.pop("my_adapters", None)
