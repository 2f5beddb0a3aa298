"""examples/own-network, exactly as its README says: from `tideline coordinator` to `tideline predict` on unseen rows."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.acceptance.harness import end
from tests.docs.manual import ROOT, blocks
from tests.services import free_port

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
EXAMPLE = ROOT / "examples" / "own-network"
README = EXAMPLE / "README.md"
SERVES = re.compile(r"(HOSPITAL=\w )?tideline (coordinator|agent) ")
LIMIT = 240


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder once every command of the README has run in it."""
    folder = tmp_path_factory.mktemp("example") / "own-network"
    made = shutil.ignore_patterns("*.db", "*.token", "coordinator", "home-*", "new-scans", "__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=made)
    ports = {f"TIDELINE_{name}_PORT": str(free_port()) for name in ("GRPC", "HTTP")}
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
    env = {**os.environ, **ports, **path, "OMP_NUM_THREADS": "1"}
    serving: list[subprocess.Popen[bytes]] = []
    try:
        for block in blocks(README, "sh"):
            if SERVES.match(block):
                serving.append(started(block, folder, env))
            else:
                given = {"cwd": folder, "env": env, "timeout": LIMIT, "capture_output": True, "text": True}
                ended = subprocess.run(["bash", "-ec", block], check=False, **given)
                assert ended.returncode == 0, f"{block}\n{ended.stdout}\n{ended.stderr}\n{logs(folder)}"
        yield folder
    finally:
        end(serving)


def started(block: str, folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """A terminal of its own; a coordinator's until its home says where it is."""
    with (folder / f"{abs(hash(block))}.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-ec", block], cwd=folder, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    until = time.monotonic() + LIMIT
    while not (folder / "coordinator" / "coordinator.json").exists():
        assert process.poll() is None and time.monotonic() < until, logs(folder)
        time.sleep(0.05)
    return process


def logs(folder: Path) -> str:
    """What the processes said last."""
    return "\n".join(log.read_text(errors="replace")[-1500:] for log in folder.glob("*.log"))


def probabilities(file: Path) -> np.ndarray[Any, Any]:
    """(n, classes), as `predict` wrote them."""
    with file.open(newline="", encoding="utf-8") as opened:
        return np.array([[float(row[f"p({i})"]) for i in range(10)] for row in csv.DictReader(opened)])


def test_the_adapted_model_is_better_on_new_images(played: Path) -> None:
    """By far, and about as the README says."""
    y = np.load(played / "new-scans" / "c.npz", allow_pickle=False)["y"]
    share = {name: float((probabilities(played / f"{name}.csv").argmax(1) == y).mean()) for name in ("common", "adapted")}
    assert share["adapted"] > share["common"] + 0.15, share
    said = re.findall(r"^\| `(\w+)\.safetensors`.*\| ([\d.]+) % \|$", README.read_text(), flags=re.MULTILINE)
    assert {name: pytest.approx(float(percent) / 100, abs=0.08) for name, percent in said} == share


def test_plain_torch_and_onnx_give_the_same(played: Path) -> None:
    """The README's lines, and the exported graph, to 1e-4."""
    (code,) = blocks(README, "python")
    x = np.load(played / "new-scans" / "c.npz", allow_pickle=False)["x"][:, None]
    np.save(played / "x.npy", x)
    more = "import numpy, torch\nnumpy.save('p.npy', net(torch.from_numpy(numpy.load('x.npy'))).softmax(1).detach().numpy())\n"
    subprocess.run([sys.executable, "-c", code + more], cwd=played, check=True, timeout=LIMIT)
    assert np.abs(np.load(played / "p.npy", allow_pickle=False) - probabilities(played / "adapted.csv")).max() < 1e-4
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnxscript"):
        run = next(path.name for path in (played / "home-c" / "runs").iterdir() if path.is_dir())
        words = ("--networks", "network:digits_net", "--methods", "method:METHODS")
        export = ("site", "export", "--home", "home-c", "--run", run, "model", "--out", "adapted.onnx", *words)
        subprocess.run([sys.executable, "-m", "tideline", *export], cwd=played, check=True, timeout=LIMIT)
        import onnxruntime

        session = onnxruntime.InferenceSession(played / "adapted.onnx")
        p = session.run(["probabilities"], {"x": torch.from_numpy(x).numpy()})[0]
        assert np.abs(p - probabilities(played / "adapted.csv")).max() < 1e-4


def test_a_target_sends_numbers_alone(played: Path) -> None:
    """As the contract of the method says that it derives."""
    listed = subprocess.run(
        [sys.executable, "-m", "tideline", "contract", "tent", "--methods", "method:METHODS", "--json"],
        cwd=played, capture_output=True, text=True, check=True, timeout=LIMIT,
    )  # fmt: skip
    sent = [clause for clause in json.loads(listed.stdout)["contract"] if clause["phase"] != "source"]
    assert sent and {clause["exposure"] for clause in sent} <= {"metric", "count"}
