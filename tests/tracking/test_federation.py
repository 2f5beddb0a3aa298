"""A real coordinator with three agents, and the real command, killed whenever it has written something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.conftest import SITES, WORLD, write_blobs
from tests.acceptance.harness import COORDINATOR, Net, net
from tests.tracking.kinds import Kind, Read, kind_of
from tests.tracking.test_trackers import assert_stands

pytestmark = pytest.mark.processes
ROUNDS = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 3}
MOST_KILLS = 8


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Net]:
    """A coordinator and three agents."""
    with net(tmp_path) as federation:
        federation.coordinator("--rate", "0", "--rate-enrol", "0")
        for seed, (name, role) in enumerate(SITES.items()):
            federation.agent(name, write_blobs(tmp_path / "data" / name, seed), role)
        yield federation


@pytest.fixture(params=("mlflow", "tensorboard", "wandb"))
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A tracker that processes share."""
    return kind_of(request.param, request, tmp_path / f"at-{tmp_path.name}")


def tracking(made: Net, kind: Kind, run: str) -> subprocess.Popen[bytes]:
    where = ["--uri", kind.address, "--experiment", kind.experiment] if kind.name == "mlflow" else ["--uri", str(kind.folder)]
    command = [sys.executable, "-m", "tideline", "run", "track", run, "--to", kind.name, *where, "--home", str(made.folder)]
    with (made.home / "track.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=made.environment())


def standing(kind: Kind) -> dict[str, Read]:
    """What can be read there at this moment; nothing where it is half made."""
    try:
        return dict(kind.read())
    except (KeyError, OSError, subprocess.CalledProcessError):
        return {}


def moved(kind: Kind, process: subprocess.Popen[bytes], before: dict[str, Read], kills: int) -> bool:
    """Whether a follower has written something, or has ended; after many kills it may end."""
    return process.poll() is not None or (kills < MOST_KILLS and standing(kind) != before)


@pytest.mark.smoke
def test_killed_whenever_it_wrote(made: Net, kind: Kind) -> None:
    run, kills, code = made.run({**ROUNDS, "config": {"rounds": 6}}), 0, None
    while code is None:
        before, process = standing(kind), tracking(made, kind, run)
        made.until(partial(moved, kind, process, before, kills), "the follower to write, or to end")
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
            kills += 1
    log = (made.home / "track.log").read_text()
    assert code == 0 and kills > 1, log
    assert made.ended(run)["status"] == "completed"
    assert_stands(made.client(), run, kind.read(), kind.done)


def test_events_that_a_rule_of_age_has_deleted(made: Net, kind: Kind) -> None:
    run = made.run({**ROUNDS, "config": {"rounds": 3}})
    assert made.ended(run)["status"] == "completed"
    made.kill(COORDINATOR)
    made._commands[COORDINATOR] += ["--retain-events-days", "0.000001"]
    made.again(COORDINATOR)
    made.ready()
    made.until(lambda: len(made.client().events(run)) == 1, "the events to go")
    process = tracking(made, kind, run)
    assert process.wait(timeout=120) == 0, (made.home / "track.log").read_text()
    assert_stands(made.client(), run, kind.read(), kind.done)
