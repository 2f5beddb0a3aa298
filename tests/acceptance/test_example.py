"""examples/own-network, exactly as its README says: from `tideline coordinator` to `tideline predict` on unseen rows."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.harness import end
from tests.acceptance.shell import commands
from tests.docs.manual import ROOT, blocks
from tests.services import free_port

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
EXAMPLE = ROOT / "examples" / "own-network"
README = EXAMPLE / "README.md"
SERVES = re.compile(r"(HOSPITAL=\w )?tideline (coordinator|agent) ")
MADE = ("*.db", "*.token", "coordinator", "home-*", "new-*", "clinic-?", "__pycache__", "*.safetensors")
LIMIT = 240


@pytest.fixture(scope="module", params=["forked", pytest.param("started", marks=pytest.mark.nightly(job="journeys"))])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder once every command of the README has run in it. Forked: `tideline` is another script, all else is the same."""
    home = tmp_path_factory.mktemp("example")
    with commands(home) if request.param == "forked" else nullcontext(Path(sys.executable).parent) as first:
        yield from play(home / "own-network", first)


def play(folder: Path, first: Path, example: Path = EXAMPLE) -> Iterator[Path]:
    """An example in a folder, with the commands that come first on the path."""
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns(*MADE))
    ports = {f"TIDELINE_{name}_PORT": str(free_port()) for name in ("GRPC", "HTTP")}
    path = os.pathsep.join((str(first), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**os.environ, **ports, "PATH": path, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    serving: list[subprocess.Popen[bytes]] = []
    try:
        for block in blocks(example / "README.md", "sh"):
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
    return "\n".join(log.read_text(errors="replace")[-1500:] for log in folder.glob("*.log"))


def ran(*words: str, folder: Path) -> str:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    given = {"env": {**os.environ, "PYTHONPATH": path}, "timeout": LIMIT, "capture_output": True, "text": True}
    return str(subprocess.run([sys.executable, "-m", *words], cwd=folder, check=True, **given).stdout)


def probabilities(file: Path) -> np.ndarray[Any, Any]:
    """(n, classes), as `predict` wrote them."""
    with file.open(newline="", encoding="utf-8") as opened:
        return np.array([[float(row[f"p({i})"]) for i in range(10)] for row in csv.DictReader(opened)])


def test_the_adapted_model_is_better_on_new_images(played: Path) -> None:
    """By far, and about as the README says, whose figures are from one processor to another."""
    y = np.load(played / "new-scans" / "c.npz", allow_pickle=False)["y"]
    share = {name: float((probabilities(played / f"{name}.csv").argmax(1) == y).mean()) for name in ("common", "adapted")}
    assert share["adapted"] > share["common"] + 0.15, share
    said = re.findall(r"^\| `(\w+)\.safetensors`.*\| (\d+) to (\d+) % \|$", README.read_text(), flags=re.MULTILINE)
    assert {name for name, *_ in said} == set(share)
    for name, low, high in said:
        assert float(low) - 5 < 100 * share[name] < float(high) + 5, share


def images(played: Path) -> np.ndarray[Any, Any]:
    """The rows that were predicted, (197, 1, 8, 8)."""
    return np.load(played / "new-scans" / "c.npz", allow_pickle=False)["x"][:, None]


def test_plain_torch_gives_the_same(played: Path) -> None:
    (code,) = blocks(README, "python")
    np.save(played / "x.npy", images(played))
    more = "import numpy, torch\nnumpy.save('p.npy', net(torch.from_numpy(numpy.load('x.npy'))).softmax(1).detach().numpy())\n"
    (played / "plain.py").write_text(code + more)
    ran("tests.docs.program", "plain.py", folder=played)
    assert np.abs(np.load(played / "p.npy", allow_pickle=False) - probabilities(played / "adapted.csv")).max() < 1e-4


@pytest.mark.nightly(job="journeys")  # a file that is ONNX predicts as the model: tests/cli/test_models.py, in each suite
def test_onnx_gives_the_same(played: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    run = next(path.name for path in (played / "home-c" / "runs").iterdir() if path.is_dir())
    export = ("site", "export", "--home", "home-c", "--run", run, "model", "--out", "adapted.onnx")
    ran("tideline", *export, "--networks", "network:digits_net", "--methods", "method:METHODS", folder=played)
    session = onnxruntime.InferenceSession(played / "adapted.onnx")
    p = session.run(["probabilities"], {"x": images(played)})[0]
    assert np.abs(p - probabilities(played / "adapted.csv")).max() < 1e-4


def test_a_target_sends_numbers_alone(played: Path) -> None:
    listed = ran("tideline", "contract", "tent", "--methods", "method:METHODS", "--json", folder=played)
    sent = [clause for clause in json.loads(listed)["contract"] if clause["phase"] != "source"]
    assert sent and {clause["exposure"] for clause in sent} <= {"metric", "count"}
