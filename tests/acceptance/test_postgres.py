"""A coordinator whose journal is in Postgres: the same bytes as on SQLite, killed or not, and silence about the password."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD, start_all
from tests.acceptance.harness import net
from tests.acceptance.test_survival import at_the_gate, begun, undisturbed
from tests.postgres import OTHERS, own_schema, run

pytestmark = pytest.mark.processes
SECRET = "s3cret-word"
METHODS = "tests.acceptance.gated:METHODS"
FEDAVG: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5, "reference": {}}


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of an empty schema. It has a password, which the server does not ask for."""
    with own_schema() as url:
        scheme, _, rest = url.partition("://")
        user, _, place = rest.rpartition("@")
        yield f"{scheme}://{user.partition(':')[0] or 'postgres'}:{SECRET}@{place}"


@pytest.mark.smoke
@pytest.mark.nightly(job="journeys")
def test_both_databases_give_the_same_bytes(tmp_path: Path, data: dict[str, Path], database: str) -> None:
    """Runs of fedavg end with one digest; no log and no file in the home holds the password; nothing lies in SQLite."""
    ends = []
    for name, where in (("sqlite", None), ("postgres", database)):
        (tmp_path / name).mkdir()
        with net(tmp_path / name, database=where) as federation:
            result = start_all(federation, data).completed(federation.run(FEDAVG))
        clients = [{key: value for key, value in client.items() if key != "spent"} for client in result["clients"]]  # seconds
        ends.append((result["state_digest"], clients))
    assert ends[0] == ends[1]
    home = tmp_path / "postgres"
    assert run(database, "SELECT count(*) FROM runs WHERE status = 'completed'") == [(1,)]
    assert not list(home.rglob("*.db"))
    assert not [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.nightly(job="journeys")
def test_a_coordinator_killed_in_mid_round(tmp_path: Path, data: dict[str, Path], database: str) -> None:
    """kill -9 while three steps work; started again with the same command, the run ends with the same digest."""
    with net(tmp_path, METHODS, database) as federation:
        run_id = at_the_gate(start_all(federation, data), tmp_path)
        federation.restart("coordinator")
        (tmp_path / "go").touch()
        federation.completed(run_id, undisturbed(data))
    assert [len(begun(tmp_path, name)) for name in SITES] == [1, 1, 1], "no step was done twice"


def test_a_database_that_goes_away_for_a_while(tmp_path: Path, data: dict[str, Path], database: str) -> None:
    """Every connection is cut, again and again, in mid-run: nobody dies, and the run ends with the same digest."""
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS}"
    with net(tmp_path, METHODS, database) as federation:
        run_id = at_the_gate(start_all(federation, data), tmp_path)
        (tmp_path / "go").touch()
        assert sum(len(run(database, cut)) for _ in range(20)) > 0
        federation.completed(run_id, undisturbed(data))
        assert all(process.poll() is None for process in federation.running.values())


def test_a_database_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """Two lines that say where and what to do, exit code 3, and no password."""
    url = f"postgresql://ann:{SECRET}@127.0.0.1:1/tide"
    ports = ["--grpc-port", "0", "--http-port", "0"]
    command = [sys.executable, "-m", "tideline", "coordinator", "--home", str(tmp_path), "--database", url, "--wait", "1", *ports]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert "The store postgresql://ann@127.0.0.1:1/tide cannot be opened" in ended.stderr
    assert "What to do: See that Postgres runs there" in ended.stderr
    assert SECRET not in ended.stdout + ended.stderr
