"""The examples, exactly as their READMEs say: from `tideline coordinator` to `tideline predict` on unseen rows."""

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

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]
EXAMPLE = ROOT / "examples" / "own-network"
README = EXAMPLE / "README.md"
SERVES = re.compile(r"(HOSPITAL=\w )?tideline (coordinator|agent) ")
MADE = ("*.db", "*.token", "coordinator", "home-*", "new-*", "clinic-?", "__pycache__", "*.safetensors")
LIMIT = 240


@pytest.fixture(scope="module", params=["forked", pytest.param("started", marks=pytest.mark.nightly(job="journeys"))])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder once every command of the README has run in it. Forked: `tideline` is another script, all else is the same."""
    yield from play_in(tmp_path_factory.mktemp("example"), "own-network", request.param == "forked")


def play_in(home: Path, name: str, forked: bool = True) -> Iterator[Path]:
    """Play an example of this name in a folder below a home."""
    with commands(home) if forked else nullcontext(Path(sys.executable).parent) as first:
        yield from play(home / name, first, ROOT / "examples" / name)


def play(folder: Path, first: Path, example: Path) -> Iterator[Path]:
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
    share = {name: 100 * float((probabilities(played / f"{name}.csv").argmax(1) == y).mean()) for name in ("common", "adapted")}
    assert share["adapted"] > share["common"] + 15, share
    as_said(README, share, 5)


def as_said(readme: Path, share: dict[str, float], slack: float = 0) -> None:
    """Compare the percentages of two models with the ranges in a README."""
    said = re.findall(r"^\| `(\w+)\.safetensors`.*\| (\d+) to (\d+) % \|$", readme.read_text(), flags=re.MULTILINE)
    assert {name for name, *_ in said} == set(share)
    for name, low, high in said:
        assert float(low) - slack < share[name] < float(high) + slack, share


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


@pytest.fixture(scope="module", params=["forked", pytest.param("started", marks=pytest.mark.nightly(job="journeys"))])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from play_in(tmp_path_factory.mktemp("table"), "table", request.param == "forked")


def accuracy(table: Path, name: str) -> float:
    """Of predictions for new patients, by the labels of their table."""
    with (table / "new-patients" / "patients.csv").open(newline="", encoding="utf-8") as file:
        known = [row["outcome"] for row in csv.DictReader(file)]
    with (table / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        found = [row["class"] for row in csv.DictReader(file)]
    return 100 * sum(a == b for a, b in zip(known, found, strict=True)) / len(known)


def test_the_adapted_model_is_better_on_new_patients(table: Path) -> None:
    """By far, and as the README says; their table has its columns in another order."""
    share = {name: accuracy(table, name) for name in ("common", "adapted")}
    assert share["adapted"] > share["common"] + 10, share
    as_said(ROOT / "examples" / "table" / "README.md", share)


TARGETS = {"volumes": "clinic-d", "sequences": "person-d"}
NEAR = 12.0  # percent that a figure may be off on another processor


@pytest.fixture(scope="module", params=[pytest.param("volumes", marks=pytest.mark.nightly(job="journeys")), "sequences"])
def shaped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from play_in(tmp_path_factory.mktemp("example"), str(request.param))


def test_the_unlabelled_site_gains_what_the_readme_says(shaped: Path) -> None:
    found = {name: accuracy_of(shaped / f"{name}.json", TARGETS[shaped.name]) for name in ("fedavg", "adabn")}
    readme = (ROOT / "examples" / shaped.name / "README.md").read_text()
    said = {name: float(value) for name, value in re.findall(r"^\| `(\w+)\.yaml` \| ([\d.]+) % \|$", readme, flags=re.MULTILINE)}
    assert said.keys() == found.keys() and found["adabn"] > found["fedavg"] + 0.2, found
    assert all(abs(100 * found[name] - said[name]) < NEAR for name in said), (found, said)


def accuracy_of(file: Path, site: str) -> float:
    result = json.loads(file.read_text())
    return float(next(each["accuracy"] for each in result["clients"] if each["name"] == site))
