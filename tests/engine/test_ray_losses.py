"""A Ray that is not there, goes away, or has too little memory: an error in words, and soon."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.test_pools import ROSTER, federation
from tests.rays import CPUS, free_port
from tests.synthetic import Opener, Rows, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DeviceMissing, Unreachable
from tideline.core.run import Role
from tideline.engine.compute.workers import check_worker, versions
from tideline.engine.process import ray_tasks
from tideline.engine.process.ray_tasks import Cluster, RayTasks, check_options, place_of, room
from tideline.engine.simulation.federation import SimSite
from tideline.engine.simulation.ray_pool import RayPool

HEAD = ("gcs_server", "raylet")


@dataclass(frozen=True)
class Beheading:
    """Data at whose opening the head of this machine's Ray is killed: the worker's own, and nobody else's."""

    head: int
    names: tuple[str, ...]

    def __call__(self, world: World, role: Role) -> Rows:
        for each in psutil.Process(self.head).children(recursive=True):
            if each.name() in self.names:
                each.kill()
        signal.pause()
        return Opener(0, 0)(world, role)


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
@pytest.mark.parametrize("names", [HEAD, HEAD[:1], HEAD[1:]], ids=["all", "gcs", "raylet"])
def test_a_head_that_is_killed_ends_the_run(names: tuple[str, ...]) -> None:
    there = sites() | {"bert": SimSite(Beheading(os.getpid(), names))}
    with federation(METHODS, there, partial(RayPool, cluster=Cluster(cpus=CPUS))) as on:
        run = on.start(experiment("fedavg", ROSTER))
        with pytest.raises(Unreachable, match=r"Ray no longer answers at .*has gone away") as gone:
            on.run(run)
    assert "Start Ray again" in gone.value.todo


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
def test_a_ray_that_is_shut_down_ends_the_run() -> None:
    """And no other is started in its place."""
    with federation(METHODS, sites(), partial(RayPool, cluster=Cluster(cpus=CPUS))) as on:
        run, started = on.start(experiment("fedavg", ROSTER)), on.pool._tasks._ray  # type: ignore[attr-defined]

        def order_of(orders: list[Any]) -> list[Any]:
            started.shutdown()
            return orders

        with pytest.raises(Unreachable, match="Ray was shut down while tasks ran"):
            on.run(run, order_of=order_of)
        assert not started.is_initialized()


@pytest.mark.nightly(job="ray")
@pytest.mark.processes
def test_a_step_without_memory_fails_after_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray kills a worker while too little memory is left on its node: here, whenever there is one."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.0001")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "50")
    there = sites() | {"bert": SimSite(waiting)}
    with federation(METHODS, there, partial(RayPool, cluster=Cluster(cpus=CPUS))) as on:
        result = on.run(on.start(experiment("fedavg", ROSTER, waiting={"deadline": 60.0})))
    assert result["status"] == "stalled" and "was lost 3 times, the last time by OutOfMemoryError" in result["cause"]


def waiting(world: World, role: Role) -> Rows:
    signal.pause()
    return Opener(0, 0)(world, role)


@contextmanager
def listening() -> Iterator[int]:
    """A port where somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        yield mute.getsockname()[1]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_answers(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody, or somebody who is no Ray."""
    monkeypatch.setattr(ray_tasks, "PROBE_SECONDS", 0.2)
    with pytest.raises(Unreachable, match="No Ray cluster answers at") as refused:
        RayTasks(len, Cluster(f"{scheme}127.0.0.1:{free_port()}"))
    assert "ray start --head" in refused.value.todo
    with listening() as port, pytest.raises(Unreachable, match=f"No Ray cluster answers at {scheme}127.0.0.1:{port}"):
        RayTasks(len, Cluster(f"{scheme}127.0.0.1:{port}"))


def test_no_cluster_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`auto` finds none, or one that has ended without a word."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(Unreachable, match="This machine belongs to no Ray cluster"):
        RayTasks(len, Cluster("auto"))
    (tmp_path / "ray").mkdir()
    ended = f"127.0.0.1:{free_port()}"
    (tmp_path / "ray" / "ray_current_cluster").write_text(ended)
    with pytest.raises(Unreachable, match=f"No Ray cluster answers at {ended}"):
        RayTasks(len, Cluster("auto"))


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigRefused, match="needs the package ray") as refused:
        RayTasks(len, Cluster())
    assert refused.value.todo == 'Install it: pip install "tideline[ray]"'


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (("inline", "auto", 0.0, "cpu"), "address"),
        (("processes", None, 0.5, "cuda"), "gpus"),
        (("ray", None, 1.5, "cuda"), "gpus"),
        (("ray", None, -1.0, "cuda"), "gpus"),
        (("ray", None, 0.5, "cpu"), "gpus"),
        (("ray", None, 0.0, "cuda"), "gpus"),
        (("ray", "head", 0.0, "cpu"), "address"),
        (("ray", "http://head:1", 0.0, "cpu"), "address"),
        (("ray", "head:port", 0.0, "cpu"), "address"),
    ],
)
def test_options_that_have_no_meaning_are_refused(given: tuple[Any, ...], path: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        check_options(*given)
    assert refused.value.context["path"] == path and refused.value.todo


def test_addresses() -> None:
    assert place_of("head:6379") == place_of("ray://head:6379") == ("head", 6379)
    assert place_of("[::1]:6379") == ("::1", 6379) and place_of("auto") is None
    check_options("ray", "head:6379", 0.25, "cuda")


@pytest.mark.parametrize(
    ("resources", "gpus", "tasks"),
    [
        ({"CPU": 3.0}, 0.0, 3),
        ({"CPU": 8.0, "GPU": 2.0}, 0.25, 8),
        ({"CPU": 16.0, "GPU": 2.0}, 0.25, 8),
        ({"CPU": 16.0, "GPU": 2.0}, 0.4, 4),
        ({"CPU": 16.0, "GPU": 3.0}, 0.1, 16),
        ({"CPU": 16.0}, 1.0, 0),
        ({"memory": 5.0}, 0.0, 0),
    ],
)
def test_the_room_of_a_node(resources: dict[str, float], gpus: float, tasks: int) -> None:
    """No task has its share on two GPUs."""
    assert room(resources, gpus) == tasks


def test_a_worker_of_another_version_is_refused() -> None:
    check_worker(versions(), "cpu")
    with pytest.raises(ConfigRefused, match="instead of none") as refused:
        check_worker(versions() | {"torch": "none"}, "cpu")
    assert "Install the same versions" in refused.value.todo
    with pytest.raises(DeviceMissing, match="no device cuda:7"):
        check_worker(versions(), "cuda:7")
