"""Agents whose homes were changed between two starts: the ledger cut with its head, the home copied or put back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import Net, net
from tests.cli.world import tide_process
from tideline_agent.home.ledger import FILE, entries
from tideline_agent.home.ledger_head import HEAD, KNOWN, REPORTED

pytestmark = pytest.mark.processes
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"a": "source"}, "reference": None}


@pytest.fixture
def federation(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator, and an agent that has played a run."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("a", data["a"])
        made.completed(made.run(RUN))
        yield made


def row(federation: Net) -> dict[str, object]:
    (found,) = federation.client().get("/clients")
    return dict(found)


def kinds(federation: Net) -> list[str]:
    return [str(each["kind"]) for each in federation.client().get("/audit?client=a") if "ledger" in each["kind"]]


def restarted(federation: Net) -> None:
    """The agent, with a home that somebody has changed meanwhile."""
    federation.kill("a")
    enrolled = federation.log("a").count("enrolled")
    federation.again("a")
    federation.until(lambda: federation.log("a").count("enrolled") > enrolled, "a to enrol")


def cut(home: Path, left: int) -> None:
    """The end of the ledger, and all that the home remembers of it."""
    lines = (home / FILE).read_bytes().splitlines(keepends=True)
    (home / FILE).write_bytes(b"".join(lines[:left]))
    for name in (HEAD, KNOWN):
        (home / name).unlink()


def test_a_ledger_that_was_cut_with_its_head(federation: Net) -> None:
    """Users and owner are reported, the agent works on, and the owner's word ends it."""
    home = federation.home / "home-a"
    replies = [each for each in entries(home) if each.kind == "reply"]
    federation.until(lambda: row(federation)["ledger_entries"] == replies[-1].seq, "the end to be reported")
    assert row(federation)["ledger_hash"] == replies[-1].hash
    restarted(federation)
    federation.until(lambda: row(federation)["ledger_entries"] == len(list(entries(home))), "the next end to be reported")
    assert row(federation)["ledger_now"] is None and kinds(federation) == []

    federation.kill("a")
    cut(home, 3)
    restarted(federation)
    federation.until(lambda: row(federation)["ledger_now"] == 4, "the coordinator to notice")
    reported = row(federation)["ledger_entries"]  # the agent's last beats before its end may have told of more
    federation.until(lambda: "ledger_differs" in federation.log("a"), "the agent to say so")
    assert "1 agent's ledger was cut" in federation.client().get("/ready")["warnings"][0]
    assert "ledger_differs" in federation.log("coordinator") and kinds(federation) == ["ledger_differs"]
    shown = tide_process("clients", "list", "--home", str(federation.folder)).stdout
    assert f"has 4 entries, and had {reported}" in " ".join(shown.split())
    federation.completed(federation.run(RUN))
    assert row(federation)["ledger_entries"] == reported and (home / REPORTED).exists()
    verified = tide_process("site", "ledger", "verify", "--home", str(home))
    assert verified.returncode and "as it was reported to the coordinator" in " ".join(verified.stderr.split())

    accepted = tide_process("site", "ledger", "accept", "--yes", "--home", str(home))
    assert accepted.returncode == 0, accepted.stderr
    restarted(federation)
    federation.until(lambda: row(federation)["ledger_now"] is None, "the coordinator to go on")
    assert kinds(federation) == ["ledger_differs", "ledger_accepted"] and not (home / REPORTED).exists()
    assert federation.client().get("/ready")["warnings"] == []
    assert tide_process("site", "ledger", "verify", "--home", str(home)).returncode == 0


REFUSED = 2


@pytest.fixture
def enrolled(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and an agent that has enrolled."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("a", data["a"])
        made.heard("a", "enrolled")
        yield made


def standing(enrolled: Net) -> str:
    (row,) = enrolled.client().get("/clients")
    return str(row["standing"])


def session(enrolled: Net, name: str) -> str:
    """The session that an agent's log named last."""
    return re.findall(r"session=(\d+\.[0-9a-f]{8})", re.sub(r"\x1b\[\d*m", "", enrolled.log(name)))[-1]


def command(enrolled: Net, *args: str) -> str:
    done = tide_process(*args, "--home", str(enrolled.folder))
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


def copied(enrolled: Net, data: Path, at: str) -> None:
    """Start an agent with a copy of a's home."""
    shutil.copytree(enrolled.home / "home-a", enrolled.home / at)
    args = [*enrolled.agent_command("a", data, "source", ""), "--home", str(enrolled.home / at)]
    enrolled.start(at, *args)


def test_a_home_that_was_copied(enrolled: Net, data: dict[str, Path]) -> None:
    """Both are held, users are told, one goes on as it is with new keys; the other one ends, and comes no more."""
    copied(enrolled, data["a"], "copy")
    enrolled.heard("a", "is held: two agents show its keys")
    enrolled.until(lambda: standing(enrolled) == "doubled", "the coordinator to notice")
    enrolled.heard("copy", "is held: two agents show its keys")
    assert "1 agent is held" in enrolled.client().get("/ready")["warnings"][0]
    assert "client_doubled" in enrolled.log("coordinator")
    mine, theirs = session(enrolled, "a"), session(enrolled, "copy")
    shown = command(enrolled, "clients", "list")
    assert mine in shown and theirs in shown and "--session" in shown
    done = tide_process("clients", "approve", "a", "--home", str(enrolled.folder))
    assert done.returncode == REFUSED and f"--session {mine}" in done.stderr
    assert "approved" in command(enrolled, "clients", "approve", "a", "--session", mine)
    assert enrolled.running["copy"].wait(60) == REFUSED and "was let go on" in enrolled.log("copy")
    enrolled.heard("a", "keys_rotated")
    enrolled.again("copy")
    assert enrolled.running["copy"].wait(60) == REFUSED
    enrolled.completed(enrolled.run(RUN))
    assert standing(enrolled) == "approved" and "held" not in " ".join(enrolled.client().get("/ready")["warnings"])
    kinds = [entry["kind"] for entry in enrolled.client().get("/audit?client=a")]
    assert kinds.count("doubled") == 1 and "rotated" in kinds


def test_a_home_that_was_put_back(enrolled: Net, data: dict[str, Path]) -> None:
    """It counts less than it did: its agent says what to do, and goes on once a user has let it."""
    enrolled.kill("a")
    shutil.copytree(enrolled.home / "home-a", enrolled.home / "backup")
    enrolled.again("a")
    enrolled.heard("a", "enrolled", 2)
    enrolled.kill("a")
    shutil.rmtree(enrolled.home / "home-a")
    shutil.move(enrolled.home / "backup", enrolled.home / "home-a")
    enrolled.again("a")
    enrolled.heard("a", "session_doubled")
    enrolled.restart("coordinator")
    assert standing(enrolled) == "doubled"
    command(enrolled, "clients", "approve", "a", "--session", session(enrolled, "a"))
    enrolled.heard("a", "enrolled", 3)
    enrolled.heard("a", "keys_rotated")
    enrolled.completed(enrolled.run(RUN))


def test_kills_are_no_doubles(enrolled: Net, data: dict[str, Path]) -> None:
    """However often an agent and its coordinator are killed and start again."""
    for turn in range(3):
        enrolled.restart("a")
        if turn == 1:
            enrolled.restart("coordinator")
        enrolled.heard("a", "enrolled", turn + 2)
    enrolled.completed(enrolled.run(RUN))
    assert standing(enrolled) == "approved"
