"""A process that is forked is the one that would have been started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forking import Forked, Started, fixed, read_command

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="sockets of whole messages")]
TIDELINE = [sys.executable, "-m", "tideline"]
BOTH = pytest.mark.parametrize("kind", [Forked, pytest.param(Started, marks=pytest.mark.nightly(job="services"))])


@BOTH
def test_what_it_says_and_how_it_ends(kind: type[subprocess.Popen[Any]]) -> None:
    process = kind([*TIDELINE, "version", "--no-such"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "") and "No such option" in err
    assert process.poll() == process.wait() == 2


@BOTH
def test_its_surroundings(kind: type[subprocess.Popen[Any]], tmp_path: Path) -> None:
    """Folder, variables and process group: a coordinator writes its files where it was started, and names its process."""
    env = {**os.environ, "TIDELINE_HOME": "here"}
    ports = ("--grpc-port", "0", "--http-port", "0")
    with (tmp_path / "log").open("wb") as log:
        process = kind([*TIDELINE, "coordinator", *ports], stdout=log, stderr=log, env=env, cwd=tmp_path, start_new_session=True)
    until((tmp_path / "here" / "coordinator.json").exists)
    assert os.getpgid(process.pid) == process.pid and process.poll() is None
    children = psutil.Process(process.pid).children()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
    assert psutil.wait_procs(children, 60)[1] == []


@BOTH
def test_a_death(kind: type[subprocess.Popen[Any]], tmp_path: Path) -> None:
    """A process that is killed ends with its signal, and what it had at hand ends with it."""
    ports = ("--grpc-port", "0", "--http-port", "0", "--home", str(tmp_path))
    process = kind([*TIDELINE, "coordinator", *ports], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until((tmp_path / "coordinator.json").exists)
    children = psutil.Process(process.pid).children()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in children))


def test_what_cannot_be_forked_is_started() -> None:
    assert read_command([*TIDELINE, "version"]) == ("tideline", ["version"], False)
    assert read_command([sys.executable, "-W", "error", "-m", "tideline"]) == ("tideline", [], True)
    for command in (["ls"], "tideline", [sys.executable, "-c", "pass"], [sys.executable, "-m", "http.server"], [sys.executable]):
        assert read_command(command) is None
    assert fixed({"PYTHONPATH": "/x", "OMP_NUM_THREADS": "1", "HOME": "/"}) == {"PYTHONPATH": "/x", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*TIDELINE, "version"], env={**os.environ, "OMP_NUM_THREADS": "2"}, capture_output=True, check=True)
    assert done.stdout.startswith(b"tideline ")


def until(true: Callable[[], bool]) -> None:
    """Wait for a process to get somewhere."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
