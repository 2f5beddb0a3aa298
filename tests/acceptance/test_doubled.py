"""Real agents with one home: a copy that works beside it, and a home that was put back from a backup."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import Net, net
from tests.cli.world import tide_process

pytestmark = pytest.mark.processes
REFUSED = 2
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"a": "source"}, "reference": None}


@pytest.fixture
def federation(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and an agent that has enrolled."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("a", data["a"])
        made.heard("a", "enrolled")
        yield made


def standing(federation: Net) -> str:
    (row,) = federation.client().get("/clients")
    return str(row["standing"])


def session(federation: Net, name: str) -> str:
    """The session that an agent's log named last."""
    return re.findall(r"session=(\d+\.[0-9a-f]{8})", re.sub(r"\x1b\[\d*m", "", federation.log(name)))[-1]


def command(federation: Net, *args: str) -> str:
    done = tide_process(*args, "--home", str(federation.folder))
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


def copied(federation: Net, data: Path, at: str) -> None:
    """Start an agent with a copy of a's home."""
    shutil.copytree(federation.home / "home-a", federation.home / at)
    args = [*federation.agent_command("a", data, "source", ""), "--home", str(federation.home / at)]
    federation.start(at, *args)


def test_a_home_that_was_copied(federation: Net, data: dict[str, Path]) -> None:
    """Both are held, users are told, one goes on as it is with new keys; the other one ends, and comes no more."""
    copied(federation, data["a"], "copy")
    federation.heard("a", "is held: two agents show its keys")
    federation.until(lambda: standing(federation) == "doubled", "the coordinator to notice")
    federation.heard("copy", "is held: two agents show its keys")
    assert "1 agent is held" in federation.client().get("/ready")["warnings"][0]
    assert "client_doubled" in federation.log("coordinator")
    mine, theirs = session(federation, "a"), session(federation, "copy")
    shown = command(federation, "clients", "list")
    assert mine in shown and theirs in shown and "--session" in shown
    done = tide_process("clients", "approve", "a", "--home", str(federation.folder))
    assert done.returncode == REFUSED and f"--session {mine}" in done.stderr
    assert "approved" in command(federation, "clients", "approve", "a", "--session", mine)
    assert federation.running["copy"].wait(60) == REFUSED and "was let go on" in federation.log("copy")
    federation.heard("a", "keys_rotated")
    federation.again("copy")
    assert federation.running["copy"].wait(60) == REFUSED
    federation.completed(federation.run(RUN))
    assert standing(federation) == "approved" and "held" not in " ".join(federation.client().get("/ready")["warnings"])
    kinds = [entry["kind"] for entry in federation.client().get("/audit?client=a")]
    assert kinds.count("doubled") == 1 and "rotated" in kinds


def test_a_home_that_was_put_back(federation: Net, data: dict[str, Path]) -> None:
    """It counts less than it did: its agent says what to do, and goes on once a user has let it."""
    federation.kill("a")
    shutil.copytree(federation.home / "home-a", federation.home / "backup")
    federation.again("a")
    federation.heard("a", "enrolled", 2)
    federation.kill("a")
    shutil.rmtree(federation.home / "home-a")
    shutil.move(federation.home / "backup", federation.home / "home-a")
    federation.again("a")
    federation.heard("a", "session_doubled")
    federation.kill("coordinator")
    federation.again("coordinator")
    federation.ready()
    assert standing(federation) == "doubled"
    command(federation, "clients", "approve", "a", "--session", session(federation, "a"))
    federation.heard("a", "enrolled", 3)
    federation.heard("a", "keys_rotated")
    federation.completed(federation.run(RUN))


def test_kills_are_no_doubles(federation: Net, data: dict[str, Path]) -> None:
    """However often an agent and its coordinator are killed and start again."""
    for turn in range(3):
        federation.kill("a")
        federation.again("a")
        if turn == 1:
            federation.kill("coordinator")
            federation.again("coordinator")
            federation.ready()
        federation.heard("a", "enrolled", turn + 2)
    federation.completed(federation.run(RUN))
    assert standing(federation) == "approved"
