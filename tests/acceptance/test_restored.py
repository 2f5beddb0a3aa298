"""Old dumps of a real coordinator's database: what was revoked since stays so, and an admin is told."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import Net, net
from tests.cli.world import tide_process
from tideline.client.http import Client, Endpoint
from tideline.core.errors import IdentityRefused, Unreachable

pytestmark = pytest.mark.processes
REFUSED = 2
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"b": "source"}, "reference": None}


@pytest.fixture
def federation(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator with an API key and two agents."""
    with net(tmp_path) as made:
        made.coordinator()
        for name in ("a", "b"):
            made.agent(name, data["a"])
            made.heard(name, "enrolled")
        yield made


def back_up(federation: Net, *more: str) -> None:
    """The database as the book says, and what else is named of the coordinator's home."""
    with (
        closing(sqlite3.connect(federation.folder / "coordinator.db")) as source,
        closing(sqlite3.connect(federation.home / "backup.db")) as target,
    ):
        source.backup(target)
    for name in more:
        shutil.copytree(federation.folder / name, federation.home / f"backup-{name}")


def restore(federation: Net, *more: str) -> None:
    """Stop, put the backup in place, and start with the command that there was."""
    federation.running["coordinator"].terminate()
    federation.running["coordinator"].wait(30)
    for left in federation.folder.glob("coordinator.db*"):
        left.unlink()
    shutil.copy(federation.home / "backup.db", federation.folder / "coordinator.db")
    for name in more:
        shutil.rmtree(federation.folder / name)
        shutil.copytree(federation.home / f"backup-{name}", federation.folder / name)
    federation.again("coordinator")
    federation.ready()


def keyed(federation: Net, key: str) -> Client:
    """A user with a key of the database."""
    return Client.of(Endpoint(url=f"http://127.0.0.1:{federation.http}", api_key=key))


def made_key(federation: Net, name: str) -> str:
    return str(federation.client().post("/keys", {"name": name, "role": "admin"})["key"])


def ready(federation: Net) -> dict[str, Any]:
    return dict(federation.client().get("/ready"))


def command(federation: Net, *args: str) -> str:
    done = tide_process(*args, "--home", str(federation.folder))
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_revocations_outlive_a_restore(federation: Net, data: dict[str, Path]) -> None:
    """A key, an agent and a token that ended after the backup have ended after the restore; new keys are known."""
    alice, carl = made_key(federation, "alice"), made_key(federation, "carl")
    token = federation.client().post("/invites", {"name": "c", "ttl_seconds": 600})["token"]
    back_up(federation)
    federation.client().delete("/keys/alice")
    federation.client().post("/clients/a/revoke", {"reason": "stolen"})
    assert federation.running["a"].wait(60) == REFUSED
    federation.start("c", *federation.agent_command("c", data["a"], "source", token))
    federation.heard("c", "enrolled")
    federation.client().post("/clients/b/rotate")
    federation.heard("b", "keys_rotated")
    restore(federation)
    with pytest.raises(IdentityRefused, match="'alice' was revoked"):
        keyed(federation, alice).get("/runs")
    assert keyed(federation, carl).get("/runs") == []
    federation.again("a")
    assert federation.running["a"].wait(60) == REFUSED and "stolen" in federation.log("a")
    assert federation.running["c"].wait(60) == REFUSED, "its enrolment is forgotten, and its token used up"
    assert "database_restored" in federation.log("coordinator")
    assert "older than its witness" in ready(federation)["warnings"][0]
    federation.completed(federation.run(RUN))
    assert "older than its witness" in command(federation, "clients", "list")
    assert "older than its witness" in command(federation, "audit", "verify")
    shown = command(federation, "restored", "--confirm")
    assert "agents revoked: a" in shown and "API keys revoked: alice" in shown and "agents rekeyed: b" in shown
    assert ready(federation)["warnings"] == []
    with pytest.raises(IdentityRefused, match="'alice' was revoked"):
        keyed(federation, alice).get("/runs")


def test_a_restore_of_the_witness_too(federation: Net) -> None:
    """Agents remember that there was more: nobody is let in, and it is said, until an admin confirms."""
    alice = made_key(federation, "alice")
    back_up(federation, "parts")
    federation.client().delete("/keys/alice")
    federation.client().post("/clients/a/revoke", {"reason": "stolen"})
    assert federation.running["a"].wait(60) == REFUSED
    restored = federation.home / "home-b" / "witness.json"
    before = federation.client().get("/audit/tip")
    assert before["seq"] > 1
    federation.until(lambda: '"seq": 4' in restored.read_text(), "b to remember the two revocations")
    restore(federation, "parts")
    federation.heard("b", "nobody knows who was revoked since")
    assert "older than what agents remember" in ready(federation)["warnings"][0]
    with pytest.raises(Unreachable, match="nobody knows who was revoked"):
        keyed(federation, alice).get("/runs")
    federation.again("a")
    federation.heard("a", "approval_awaited")
    federation.client().post("/clients/a/revoke", {"reason": "stolen"})
    federation.client().delete("/keys/alice")
    assert "Confirmed" in command(federation, "restored", "--confirm")
    assert federation.running["a"].wait(60) == REFUSED and "stolen" in federation.log("a")
    federation.completed(federation.run(RUN))
    assert ready(federation)["warnings"] == []
    with pytest.raises(IdentityRefused):
        keyed(federation, alice).get("/runs")
