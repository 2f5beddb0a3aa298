"""What `wandb sync` sends of a run's folders, and what goes to a server at once: to a small one that speaks what wandb needs."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tracking.kinds import WandbKind
from tests.tracking.lives import DEAD, RUN
from tests.tracking.test_wandb import lives
from tests.tracking.wandb_server import Server, wandb_server

pytest.importorskip("wandb", reason="wandb is not installed here: pip install 'tideline[wandb]'")
WHOLE = [(step, step + 1, (step + 1) / 8) for step in range(6)]  # wandb's step, round, accuracy
KEY = "local-" + "0123456789" * 4


@pytest.fixture
def server() -> Iterator[Server]:
    """A server."""
    with wandb_server() as made:
        yield made


def at(server: Server, **more: str) -> dict[str, str]:
    return {"WANDB_BASE_URL": f"http://127.0.0.1:{server.port}", "WANDB_API_KEY": KEY, **more}


def sync(kind: WandbKind, server: Server) -> None:
    command = [sys.executable, "-m", "wandb", "sync", "--yes", str(kind.folder / "wandb")]
    env = os.environ | at(server, WANDB_DIR=str(kind.folder), WANDB_ERROR_REPORTING="false")
    told = subprocess.run(command, check=False, env=env, capture_output=True, text=True, cwd=kind.folder)
    assert told.returncode == 0, told.stderr


def rows(server: Server) -> list[tuple[int, int, float]]:
    return [(row["_step"], row["round"], row["accuracy"]) for row in server.rows(RUN)]


@pytest.fixture
def kind(tmp_path: Path) -> WandbKind:
    (tmp_path / "place").mkdir()
    return WandbKind(tmp_path / "place")


def test_folders_of_several_starts_are_one_run(kind: WandbKind, server: Server) -> None:
    """Sent in their order and behind each other, also when the first was sent before the second was there; then nothing more."""
    offline = {"WANDB_MODE": "offline"}
    assert lives(kind.folder, 2, "killed", **offline) == (DEAD, "")
    assert lives(kind.folder, 4, "on", **offline) == (0, "")
    sync(kind, server)
    assert rows(server) == WHOLE[:4]
    assert lives(kind.folder, 6, "over", **offline) == (0, "")
    sync(kind, server)
    assert rows(server) == WHOLE and server.states[RUN] == 0
    count = len(server.bodies)
    sync(kind, server)
    assert len(server.bodies) == count
    assert server.configs[RUN]["config.rounds"] == {"value": "6"}
    assert server.configs[RUN]["tideline.status"] == {"value": "completed"}
    assert {name for name, _ in server.artifacts} == {"digits", f"{RUN}-files"}
    (lineage,) = [json.loads(each["metadata"]) for (name, _), each in server.artifacts.items() if name == "digits"]
    assert lineage == {"tideline.epsilon": "2"}


def test_online_it_is_the_same_run(kind: WandbKind, server: Server) -> None:
    """A follower that was killed with lines on their way sends them again, from the log; none stands twice."""
    server.keeps = 1
    assert lives(kind.folder, 3, "killed", **at(server)) == (DEAD, "")
    assert len(rows(server)) <= 1
    server.keeps = 10**9
    assert lives(kind.folder, 6, "over", **at(server)) == (0, "")
    assert rows(server) == WHOLE and server.states[RUN] == 0
    assert lives(kind.folder, 1, "on", **at(server)) == (0, "")
    assert rows(server) == WHOLE
    assert {name for name, _ in server.artifacts} == {"digits", f"{RUN}-files"}


def test_nothing_of_the_machine_is_sent(kind: WandbKind, server: Server, tmp_path: Path) -> None:
    """Neither its name, its user nor their home; nor anything to other addresses than runs need, such as a crash report's."""
    home = tmp_path / "home-of-somebody"
    home.mkdir()
    somebody = {"HOME": str(home), "USER": "somebody-here", "LOGNAME": "somebody-here"}
    assert lives(kind.folder, 6, "over", **at(server, **somebody)) == (0, "")
    assert rows(server) == WHOLE
    sent = "".join(server.bodies)
    names = (socket.gethostname(), "somebody-here", "home-of-somebody", str(kind.folder), platform.node())
    assert [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", sent)] == []
    assert {path.split("/")[1] for path in server.paths} == {"graphql", "files", "up"}


def test_a_folder_that_is_not_its(kind: WandbKind, server: Server, tmp_path: Path) -> None:
    """The server has more than the folder says, or would get what waits in it twice: refused, with what to do."""
    assert lives(kind.folder, 2, "on", **at(server)) == (0, "")
    other = WandbKind(tmp_path / "other")
    for folder, first, words in ((other, "", "has 2 steps of run"), (kind, "offline", "was written offline and is not sent")):
        if first:
            assert lives(folder.folder, 4, "on", WANDB_MODE=first) == (0, "")
        assert words in said(folder, at(server))
    assert rows(server) == WHOLE[:2]


def test_a_key_that_is_refused_and_a_server_that_is_away(kind: WandbKind, server: Server) -> None:
    """The first is a refusal, the other may pass; nothing is written meanwhile, and the key is in no words."""
    server.refuses = True
    refused = said(kind, at(server))
    assert refused.startswith("Refused") and "WANDB_API_KEY" in refused and KEY not in refused
    away = said(kind, {**at(server), "WANDB_BASE_URL": "http://127.0.0.1:9"})
    assert away.startswith("Unreachable") and KEY not in away


def said(kind: WandbKind, env: dict[str, str]) -> str:
    code, words = lives(kind.folder, 6, "on", **env, WANDB_INIT_TIMEOUT="5")
    assert code == 1
    return words
