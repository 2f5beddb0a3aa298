"""Steps on Ray give the bytes of this process, whatever is lost meanwhile; a Ray that goes away ends the run in words."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.engine.test_pools import ROSTER, deadly, ended, federation, pass_values, refusing
from tests.laws.case import WIRES
from tests.rays import CPUS, running
from tests.synthetic import Opener, Rows, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DeviceMissing, StepFailed
from tideline.core.run import Role
from tideline.engine.process.ray_tasks import TRIES, Cluster, RayTasks
from tideline.engine.simulation.federation import SimSite
from tideline.engine.simulation.pools import AHEAD, InlinePool
from tideline.engine.simulation.ray_pool import RayPool

# A Ray starts for them, which takes seconds.
pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("ray"), pytest.mark.nightly(job="ray")]
LARGE = 3000  # some parts of these methods are mapped then, and some go with the task


@pytest.fixture(scope="module")
def ray() -> Iterator[ModuleType]:
    with running() as started:
        yield started


def test_ray_gives_the_bytes_of_this_process() -> None:
    """Of sites that remember. Some parts are mapped, and some go with the task; none is left in the cluster."""
    same_bytes("feddadil", sites(), LARGE)


def same_bytes(method: str, there: dict[str, SimSite], large: int, **more: Any) -> None:
    """A method's run on Ray ends as in this process. more: sections of its experiment."""
    given = experiment(method, ROSTER, **more)
    inline = ended(METHODS, given, sites(), InlinePool)
    pools: list[RayPool] = []

    def opened(*given: Any) -> RayPool:
        pools.append(RayPool(*given, large=large))
        return pools[-1]

    assert inline[0] == "completed" and ended(METHODS, given, there, opened) == inline
    assert not pools[0]._shared and not pools[0]._lent


@pytest.mark.parametrize("method", ["fedavg", "fedwca", "feddadil"])
@pytest.mark.parametrize("large", [1, 1 << 30])
def test_it_does_so_whatever_is_mapped(method: str, large: int) -> None:
    """All parts, or none."""
    same_bytes(method, sites(), large)


@pytest.mark.parametrize("large", [1, 1 << 30])
def test_it_does_so_where_weights_are_packed(large: int) -> None:
    """What rounding left out of one message is mapped by the worker that makes the next, or comes with its task."""
    same_bytes("fedavg", sites(), large, wire=WIRES["topk"])


@pytest.mark.parametrize("method", ["feddadil", "fedwca"])
def test_a_killed_workers_steps_run_again(tmp_path: Path, method: str) -> None:
    """In the middle of a round, and the bytes are the same."""
    same_bytes(method, deadly(tmp_path, 1), LARGE)
    assert len(list(tmp_path.iterdir())) == 1, "one worker was killed"


def test_a_message_is_laid_down_once_for_all_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round three sites read the same model."""
    turns: list[list[str]] = []  # what was laid down in each
    put = RayTasks.put

    def noted(tasks: RayTasks[Any], value: Any) -> Any:
        if isinstance(value, np.ndarray):
            turns[-1].append(hashlib.sha256(value).hexdigest())
        return put(tasks, value)

    def order_of(orders: list[Any]) -> list[Any]:
        assert len(orders) == len(ROSTER)
        turns.append([])
        return orders

    monkeypatch.setattr(RayTasks, "put", noted)
    with federation(METHODS, sites(), partial(RayPool, large=1)) as on:
        run = on.start(experiment("fedavg", dict.fromkeys(ROSTER, "source")))
        assert on.run(run, order_of=order_of)["status"] == "completed"
    assert sum(map(len, turns)) > 3 and all(len(turn) == len(set(turn)) for turn in turns)


def test_values_for_peers() -> None:
    """A step that fetches what its peers sealed reads it on Ray, too."""
    pass_values(RayPool)


def test_a_step_that_kills_its_worker_again_and_again_fails(tmp_path: Path) -> None:
    """The site's order fails with a reason; nothing waits for ever."""
    with federation(METHODS, deadly(tmp_path, 99), RayPool) as on:
        result = on.run(on.start(experiment("fedavg", ROSTER, waiting={"deadline": 60.0})))
    assert result["status"] == "stalled" and "was lost 3 times" in result["cause"], result["cause"]


def test_an_error_of_a_step_comes_back_as_it_is() -> None:
    there = sites() | {"bert": SimSite(refusing)}
    causes = []
    for pool in (InlinePool, RayPool):
        with federation(METHODS, there, pool) as on:
            causes.append(on.run(on.start(experiment("fedavg", ROSTER)))["cause"])
    assert causes[0] == causes[1] and "there is nothing here" in causes[0]


@dataclass(frozen=True)
class Locked:
    """Data with what no other process can have."""

    lock: Any

    def __call__(self, world: World, role: Role) -> Rows:
        return Opener(0, 0)(world, role)


def test_data_that_no_other_process_can_open_are_refused() -> None:
    there = sites() | {"bert": SimSite(Locked(threading.Lock()))}
    with pytest.raises(ConfigRefused, match="cannot be opened by another process"), federation(METHODS, there, RayPool):
        pass


def test_a_device_that_workers_lack_ends_the_run() -> None:
    """In words, and at once: it is no site's fault."""
    with federation(METHODS, sites(), lambda m, s, device: RayPool(m, s, "cuda:7")) as on:
        run = on.start(experiment("fedavg", ROSTER))
        with pytest.raises(DeviceMissing, match="has no device cuda:7"):
            on.run(run)


def test_the_room_is_the_clusters_or_what_was_asked_for() -> None:
    with federation(METHODS, sites(), RayPool) as on:
        assert on.pool.room == CPUS * AHEAD
    with federation(METHODS, sites(), partial(RayPool, jobs=5)) as on:
        assert on.pool.room == 5


def test_a_cluster_without_room_is_refused() -> None:
    """Instead of waiting for a GPU that will not come."""
    with pytest.raises(ConfigRefused, match=r"No node of the Ray cluster has room .* 1 CPU and 0.25 GPUs"):
        RayTasks(doubled, Cluster(gpus=0.25))


def doubled(n: int) -> int:
    if n < 0:
        raise ModuleNotFoundError("No module named 'absent'")
    return 2 * n


def test_a_worker_that_cannot_run_a_task_is_a_refusal() -> None:
    """It says what to install; the same task elsewhere would raise it again."""
    tasks = RayTasks(doubled, Cluster())
    tasks.begin("a", 4)
    assert tasks.finished() == ("a", 8) and tasks.finished() is None
    tasks.begin("b", -1)
    with pytest.raises(ConfigRefused, match="cannot run Tideline's tasks: ModuleNotFoundError: No module named 'absent'"):
        tasks.finished()


def dying(folder: str) -> int:
    Path(folder, str(os.getpid())).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_tries_are_bounded(tmp_path: Path) -> None:
    tasks = RayTasks(dying, Cluster())
    tasks.begin("a", str(tmp_path))
    answer = tasks.finished()
    assert answer is not None and isinstance(answer[1], StepFailed) and "WorkerCrashedError" in answer[1].what
    assert len(list(tmp_path.iterdir())) == TRIES
