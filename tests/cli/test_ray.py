"""`simulate` and `bench` on Ray: the same results, whole runs on workers, and what is left after losses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from tests.cli.test_bench import as_json, bench, beside, gated, grid, results, started, until, waiting
from tests.cli.test_simulate import write
from tests.cli.world import json_of, make_data, refusal_of, tide, tide_process
from tests.rays import CPUS, free_port, running
from tideline.bench.ray_cells import Common, play
from tideline.cli.guard import DONE, ENDED_BADLY, REFUSED, UNREACHABLE
from tideline.core.privacy import DEFAULT_POLICY
from tideline.engine.process.ray_tasks import LOCKED, QUIET, answers

RAY = ("--pool", "ray")
LIMIT = 120.0


@pytest.fixture(scope="module")
def ray() -> Iterator[ModuleType]:
    with running() as opened:
        yield opened


@pytest.fixture
def place(place: Path) -> Path:
    """As for `tideline bench` on this machine."""
    (place / "gate").mkdir()
    return place


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
@pytest.mark.usefixtures("ray")
def test_a_simulation_on_ray_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_data(Path("data"), "ab")
    folders = {name: {"role": role, "folder": "sites/" + name} for name, role in (("a", "source"), ("b", "target"))}
    for name in folders:
        Path("sites", name).mkdir(parents=True)
        Path("data", f"{name}.npz").rename(Path("sites", name, f"{name}.npz"))
    named = {"data": folders, "world": {"model": "mlp", "inputs": [4], "classes": 3}}
    for changed in ({}, named):
        file = write(Path(), **changed)
        told = [json_of(tide("simulate", file, "--json", *more)) for more in ((), RAY, (*RAY, "--jobs", 1))]
        assert told[0]["state_digest"] and len({each["state_digest"] for each in told}) == 1


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
@pytest.mark.usefixtures("ray")
def test_a_grid_on_ray(place: Path) -> None:
    """Its results are those of processes; a failed cell has its cause; what is done is not run again."""
    failing = {"label": "failing", "method": "gate", "config": {"fails": True}}
    file = grid(place, "gate", failing)
    here = as_json(tide("bench", file, "--out", place / "here", "--methods", "tests.cli.gate:METHODS", "--json"))
    ended = bench(file, *RAY, "--keep-states", "--json")
    assert ended.exit_code == ENDED_BADLY
    there = as_json(ended)
    assert there.keys() == here.keys()
    for label in there:
        assert {**there[label], "seconds": None} == {**here[label], "seconds": None}
    assert "ValueError" in there["failing"]["cause"] and there["gate"]["status"] == "done"
    (state,) = (place / "out" / "cells").glob("*/state.safetensors")
    assert state.parent.name == there["gate"]["folder"]
    assert sorted(path.name for path in state.parent.iterdir()) == [
        *("experiment.yaml", "lock", "log.txt", "result.json", "state.safetensors")
    ]
    assert "2 cells, 1 done, 1 to run" in bench(file, *RAY).stderr


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
@pytest.mark.usefixtures("ray")
def test_a_cell_whose_worker_is_killed_runs_again(place: Path) -> None:
    def kill() -> None:
        os.kill(until(lambda: waiting(place))[0], signal.SIGKILL)
        (place / "gate" / "go").touch()

    with beside(kill):
        ended = bench(grid(place, gated(place)), *RAY)
    assert ended.exit_code == DONE, ended.output
    assert len(set(waiting(place))) == 2 and list(results(place)) == ["gated"]


@contextmanager
def cluster() -> Iterator[tuple[int, int, dict[str, str]]]:
    """A head that computes nothing and a node that does: ports of the head and of its clients' server, and what has the token."""
    head, clients = free_port(), free_port()
    env = {**QUIET, **LOCKED}
    with ExitStack() as stack:
        ports = (f"--port={head}", f"--ray-client-server-port={clients}")
        begin(stack, env, "--head", "--num-cpus=0", "--include-dashboard=false", *ports)
        until(lambda: answers(("127.0.0.1", head), greeted=True) and answers(("127.0.0.1", clients), greeted=True))
        begin(stack, env, f"--address=127.0.0.1:{head}", f"--num-cpus={CPUS}")
        yield head, clients, env


def begin(stack: ExitStack, env: dict[str, str], *options: str) -> None:
    """A node of a cluster, which ends with the stack."""
    ports = ("--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats")
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options, *ports]
    node = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(node.wait, LIMIT)
    stack.callback(node.terminate)


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
def test_a_cluster_of_two_nodes(tmp_path: Path) -> None:
    file = write(tmp_path)
    here = json_of(tide("simulate", file, "--json"))
    with cluster() as (head, clients, env):
        for address in (f"127.0.0.1:{head}", f"ray://127.0.0.1:{clients}"):
            ended = tide_process("simulate", file, *RAY, "--address", address, "--json", env=env, limit=LIMIT)
            assert ended.returncode == DONE, ended.stderr
            assert json.loads(ended.stdout)["state_digest"] == here["state_digest"]
        env["RAY_ADDRESS"] = f"127.0.0.1:{head}"  # `ray start` notes it in a file that is everybody's
        ended = tide_process("simulate", file, *RAY, "--address", "auto", "--json", env=env, limit=LIMIT)
        assert json.loads(ended.stdout)["state_digest"] == here["state_digest"], ended.stderr
        wrong = env | {"RAY_AUTH_TOKEN": "0" * 64}
        ended = tide_process("simulate", file, *RAY, "--address", f"127.0.0.1:{head}", env=wrong, limit=LIMIT)
        assert ended.returncode == UNREACHABLE and "the token" in ended.stderr


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
def test_a_bench_whose_ray_goes_away(place: Path) -> None:
    """It ends in words; the cell is neither done nor failed, and the next command runs it."""
    file = grid(place, gated(place))
    with started(file, *RAY, "--jobs", "1") as begun:
        until(lambda: waiting(place))
        for each in psutil.Process(begun.pid).children(recursive=True):
            if each.name() in ("gcs_server", "raylet"):
                each.kill()
        assert begun.stderr is not None
        assert "Ray no longer answers at" in begun.stderr.read()
        assert begun.wait(LIMIT) == UNREACHABLE
    assert not results(place) and not list((place / "out" / "cells").glob("*/failed.json"))
    (place / "gate" / "go").touch()
    assert bench(file).exit_code == DONE and list(results(place)) == ["gated"]


def test_a_cell_on_a_node_with_other_data(place: Path) -> None:
    where = {"digest": "0" * 64, "name": "../../data/000", "methods": "tests.cli.gate:METHODS", "device": "cpu"}
    ended = play("", Common(data=place / "data", policy=DEFAULT_POLICY, keep_states=False, **where))
    assert ended.code == ENDED_BADLY and not ended.files and "has other files on this node" in ended.log


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--address", "auto"), "address is auto, which the pool inline has no use for"),
        (("--gpus", 0.5), "gpus is 0.5, which the pool inline has no use for"),
        ((*RAY, "--gpus", 0.5, "--device", "cpu"), "gpus is 0.5, and the device is cpu"),
        ((*RAY, "--device", "cuda"), "gpus is 0, and the device is cuda"),
        ((*RAY, "--address", "head"), "no address of a Ray cluster"),
        ((*RAY, "--jobs", 0), "jobs is 0"),
        ((*RAY, "--jobs", 0, "--address", "head:1"), "jobs is 0"),
        (("--pool", "spark"), "Use one of: inline, processes, ray"),
    ],
)
def test_options_of_a_simulation_that_have_no_meaning(tmp_path: Path, options: tuple[object, ...], words: str) -> None:
    assert words in refusal_of(tide("simulate", write(tmp_path), *options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--address", "auto"), "address is auto, which the pool processes has no use for"),
        ((*RAY, "--device", "cuda"), "gpus is 0, and the device is cuda"),
        (("--pool", "inline"), "Use one of: processes, ray"),
    ],
)
def test_options_of_a_bench_that_have_no_meaning(place: Path, options: tuple[object, ...], words: str) -> None:
    assert words in refusal_of(bench(grid(place, "gate"), *options)) and not results(place)


def test_ray_is_not_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    commands: tuple[Any, ...] = (tide("simulate", write(place), *RAY), bench(grid(place, "gate"), *RAY))
    for ended in commands:
        assert ended.exit_code == REFUSED and 'pip install "tideline[ray]"' in ended.stderr


@pytest.mark.nightly(job="ray")
def test_ray_is_loaded_when_it_is_asked_for() -> None:
    code = (
        "import sys, tideline.cli.app, tideline.experiments.simulation, tideline.bench.ray_cells; sys.exit('ray' in sys.modules)"
    )
    assert psutil.Popen([sys.executable, "-c", code]).wait(LIMIT) == 0
