"""`tideline bench` as it runs: whole grids, and what is left of them after failures, kills and interruptions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.test_bench_grid import written
from tests.cli.world import assert_tells, json_of, output_of, refusal_of, tide
from tideline.bench.cells import locked
from tideline.cli.guard import DONE, ENDED_BADLY, INTERRUPTED, REFUSED

REGISTRY = ("--methods", "tests.cli.gate:METHODS")
LIMIT = 60.0


@pytest.fixture
def place(place: Path) -> Path:
    """A place with three domains of few features, and a gate."""
    (place / "gate").mkdir()
    return place


def grid(place: Path, *methods: Any, **changed: Any) -> Path:
    """A grid of one left-out domain, d and seed, unless something else is said."""
    one = {"domains": 1, "seeds": 1, "leave_out": ["a"], "base": None}
    return written(place, **{**one, "methods": list(methods), **changed})


def gated(place: Path, label: str = "gated", **more: Any) -> dict[str, Any]:
    return {"label": label, "method": "gate", "config": {"gate": str(place / "gate"), **more}}


def bench(file: Path, *more: object) -> Any:
    """The command in this process, its children in theirs."""
    return tide("bench", file, "--out", file.parent / "out", *REGISTRY, *more)


def started(file: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tideline", "bench", str(file), "--out", str(file.parent / "out"), *REGISTRY, *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)


def until(true: Callable[[], Any]) -> Any:
    end = time.monotonic() + LIMIT
    while not (seen := true()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return seen


def waiting(place: Path) -> list[int]:
    """The processes that have come to the gate."""
    begun = place / "gate" / "begun"
    return [int(pid) for pid in begun.read_text().split()] if begun.exists() else []


def results(place: Path) -> dict[str, Path]:
    """The results that are there, by the label of their cell."""
    return {path.parent.name.partition("-")[0]: path for path in (place / "out" / "cells").glob("*/result.json")}


def as_json(ended: Any) -> dict[str, Any]:
    """What the command has told programs, by label."""
    return {each["label"]: each for each in json.loads(ended.stdout)["cells"]}


@contextlib.contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Something that is done while the command runs."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_grid_runs_once(place: Path) -> None:
    """To its end, with files of all results; done again nothing runs, and a larger grid runs what is new."""
    file = grid(place, "gate")
    ended = bench(file, "--jobs", 1)
    assert ended.exit_code == DONE, ended.output
    assert (
        "1 cells, 0 done, 1 to run, 1 at once" in ended.stderr and "[1/1] gate, a left out, d = 1, seed 0: id 0." in ended.stderr
    )
    (cell,) = (place / "out" / "cells").iterdir()
    assert sorted(path.name for path in cell.iterdir()) == ["experiment.yaml", "lock", "log.txt", "result.json"]
    assert sorted(path.name for path in (place / "out").iterdir()) == [
        *("cells", "curves.csv", "data", "data.json", "figures", "lock", "results.csv", "table.md")
    ]
    told = json.loads((cell / "result.json").read_text())
    again = tide("simulate", cell / "experiment.yaml", *REGISTRY, "--json")
    assert json.loads(again.stdout)["state_digest"] == told["state_digest"], "a number of the table can be had again"
    before = (cell / "result.json").stat().st_mtime_ns
    ended = bench(file)
    assert ended.exit_code == DONE and "1 cells, 1 done, 0 to run" in ended.stderr
    assert (cell / "result.json").stat().st_mtime_ns == before
    told = json_of(bench(grid(place, "gate", seeds=2), "--dry-run", "--json"))
    assert [each["status"] for each in told["cells"]] == ["done", "waiting"]


def test_a_failed_run_does_not_stop_the_others(place: Path) -> None:
    """Its cause is told, the command ends with 1, and what is done is not run again. States are kept if asked for."""
    failing = {"label": "failing", "method": "gate", "config": {"fails": True}}
    file = grid(place, failing, {"label": "good", "method": "gate"})
    ended = bench(file, "--jobs", 2, "--keep-states", "--json")
    assert ended.exit_code == ENDED_BADLY
    cells = as_json(ended)
    assert (cells["good"]["status"], cells["failing"]["status"]) == ("done", "failed")
    assert cells["failing"]["cause"].startswith("stalled: ") and "ValueError" in cells["failing"]["cause"]
    assert cells["failing"]["id"] is None and "failed, stalled: " in ended.stderr
    (state,) = (place / "out" / "cells").glob("*/state.safetensors")
    assert state.parent.name == cells["good"]["folder"]
    assert_tells(bench(file, "--dry-run"), "2 cells, 1 done, 1 to run", "seed 0 (failed before)")


def test_a_refused_run_says_why(place: Path) -> None:
    ended = bench(grid(place, "gate", world={"inputs": [5], "classes": 3, "model": "mlp"}), "--json")
    assert ended.exit_code == ENDED_BADLY
    assert "0 of 3 sites answered" in as_json(ended)["gate"]["cause"] and "expects 5 features" in as_json(ended)["gate"]["cause"]


@pytest.mark.nightly(job="services")
def test_policy_and_device_are_those_of_every_run(place: Path) -> None:
    """A method that needs the owners' word runs with it; a file or a device that is not there is refused before anything runs."""
    (place / "policy.toml").write_text('[allow]\nsamples = ["coordinator"]\n')
    one = {"label": "central", "method": "central", "config": {"rounds": 1}}
    asked = ("bench", grid(place, one), "--out", place / "out", "--json")
    for wrong in (("--policy", place / "absent.toml"), ("--device", "cuda:9")):
        assert str(wrong[1]) in refusal_of(tide(*asked, *wrong)) and not results(place)
    assert "forbids" in as_json(tide(*asked))["central"]["cause"]
    ended = tide(*asked, "--policy", place / "policy.toml", "--device", "cpu")
    assert ended.exit_code == DONE and as_json(ended)["central"]["ood"] is not None, ended.output


def test_a_killed_run_is_run_again(place: Path) -> None:
    file = grid(place, gated(place))

    def kill() -> None:
        os.kill(until(lambda: waiting(place))[0], signal.SIGKILL)

    with beside(kill):
        ended = bench(file, "--json")
    assert ended.exit_code == ENDED_BADLY and as_json(ended)["gated"]["cause"] == "killed by SIGKILL"
    assert not results(place)
    (place / "gate" / "go").touch()
    ended = bench(file, "--json")
    assert ended.exit_code == DONE and as_json(ended)["gated"]["status"] == "done"
    assert len(waiting(place)) == 2 and not list((place / "out" / "cells").glob("*/failed.json"))


@pytest.mark.nightly(job="services")
def test_data_that_change_meanwhile(place: Path) -> None:
    """A result of other data than its experiment names is thrown away; the next command has cells of the new data."""
    file = grid(place, gated(place))

    def change() -> None:
        until(lambda: waiting(place))
        (place / "data" / "transforms.toml").write_text("[a]\nmean = [1]\n")
        (place / "gate" / "go").touch()

    with beside(change):
        ended = bench(file, "--json")
    assert ended.exit_code == ENDED_BADLY and not results(place)
    assert as_json(ended)["gated"]["cause"].startswith("the data have changed")
    told = json_of(bench(file, "--dry-run", "--json"))
    assert [each["status"] for each in told["cells"]] == ["waiting"]


@pytest.mark.nightly(job="services")
@pytest.mark.processes
def test_a_run_goes_on_without_its_parent(place: Path) -> None:
    """kill -9 of the command: its run goes on, the next command waits for that and takes its result; nothing runs twice."""
    file = grid(place, gated(place))
    with started(file) as first:
        until(lambda: waiting(place))
        first.kill()
    assert not results(place)
    (link,) = (place / "out" / "data").iterdir()
    before = link.lstat().st_mtime_ns

    def open_when_begun() -> None:
        until(lambda: link.lstat().st_mtime_ns != before)
        (place / "gate" / "go").touch()

    with beside(open_when_begun):
        ended = bench(file)
    assert ended.exit_code == DONE, ended.output
    assert len(waiting(place)) == 1 and list(results(place)) == ["gated"]


@pytest.mark.nightly(job="services")
def test_a_cell_that_another_process_works_on_is_waited_for(place: Path) -> None:
    """While its lock is held nothing is started; its result is taken, or the cell run where there is none."""
    file = grid(place, "gate")
    assert bench(file).exit_code == DONE
    (home,) = (place / "out" / "cells").iterdir()
    whole = (home / "result.json").read_text()
    for name in ("result.json", "log.txt"):
        (home / name).unlink()
    lock = locked(home / "lock")
    assert lock is not None
    (link,) = (place / "out" / "data").iterdir()
    before = link.lstat().st_mtime_ns

    def finish() -> None:
        until(lambda: link.lstat().st_mtime_ns != before)
        (home / "result.json").write_text(whole)
        os.close(lock)

    with beside(finish):
        ended = bench(file)
    assert ended.exit_code == DONE and not (home / "log.txt").exists(), ended.output


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly(job="services"))])
def test_an_interrupted_bench(place: Path, number: signal.Signals) -> None:
    """Its children end, what is done stays, what ran is neither done nor failed, and the next command goes on."""
    file = grid(place, {"label": "first", "method": "gate"}, gated(place))
    with started(file, "--jobs", "2") as begun:
        (pid,) = until(lambda: results(place) and waiting(place))
        begun.send_signal(number)
        assert begun.wait(LIMIT) == INTERRUPTED
    until(lambda: not psutil.pid_exists(pid))
    assert list(results(place)) == ["first"] and not list((place / "out" / "cells").glob("*/failed.json"))
    told = json_of(bench(file, "--dry-run", "--json"))
    assert [each["status"] for each in told["cells"]] == ["done", "waiting"]


def test_two_commands_do_not_work_in_one_folder(place: Path) -> None:
    file = grid(place, "gate")
    lock = locked(place / "out" / "lock")
    assert lock is not None
    refused, table = bench(file), bench(file, "--table")
    os.close(lock)
    assert refused.exit_code == REFUSED and "Another bench runs in" in refused.stderr and "--table" in refused.stderr
    assert table.exit_code == DONE and not results(place)


@pytest.mark.nightly(job="services")
def test_real_methods(place: Path) -> None:
    """Federated averaging and local training, side by side, as many at once as there are cores; the same numbers one by one."""
    methods = ["fedavg", {"label": "prox", "method": "fedprox", "config": {"mu": 0.1}}, "local"]
    file = written(place, methods=methods, seeds=1, domains=1, leave_out=["a", "b"], base={"config": {"rounds": 1}})
    found = []
    for out, jobs in (("one", 1), ("many", 3)):
        ended = output_of(tide("bench", file, "--out", place / out, "--jobs", jobs, "--json"))
        found.append([{key: each[key] for key in each if key != "seconds"} for each in json.loads(ended)["cells"]])
    assert found[0] == found[1]
    assert all((each["ood"] is None) == (each["label"] == "local") for each in found[0])
