"""The commands for a database whose coordinator does not run."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from tests.cli.world import output_of, refusal_of, tide
from tests.postgres import own_schema
from tests.services import free_port
from tideline import __version__
from tideline_server.store import SqlJournal
from tideline_server.store.database.revisions import OLDEST, known, newest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A coordinator's home with a database in it."""
    SqlJournal(tmp_path / "coordinator.db").close()
    return tmp_path


def test_it_shows_and_takes_back(home: Path) -> None:
    told = tide("database", "show", "--home", str(home))
    assert told.exit_code == 0 and f"stands at revision {newest()}" in told.output and f"by tideline {__version__}" in told.output
    assert json.loads(output_of(tide("database", "downgrade", OLDEST, "--home", str(home), "--json")))["revision"] == OLDEST
    assert json.loads(tide("database", "show", "--home", str(home), "--json").stdout)["upgrades"] == []


def test_not_while_its_coordinator_runs(home: Path) -> None:
    with (home / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f"Another coordinator uses {home}" in refusal_of(tide("database", "downgrade", OLDEST, "--home", str(home)))
        assert tide("database", "show", "--home", str(home)).exit_code == 0


def test_a_database_elsewhere() -> None:
    with own_schema() as url:
        SqlJournal(url).close()
        secret = url.replace("postgres@", "postgres:hush@")
        told = tide("database", "show", "--database", secret)
        assert told.exit_code == 0 and newest() in told.output and "hush" not in told.output


@pytest.mark.parametrize("words", [("show",), ("downgrade", OLDEST)])
def test_what_is_not_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No home, and no server: nothing is made, and the codes are those of the manual."""
    told = tide("database", *words, "--home", str(tmp_path / "nowhere"))
    assert told.exit_code == 2 and "There is no database" in told.stderr and not (tmp_path / "nowhere").exists()
    told = tide("database", *words, "--database", f"postgresql://postgres@127.0.0.1:{free_port()}/test")
    assert told.exit_code == 3, told.output


def test_a_revision_that_is_none(home: Path) -> None:
    told = tide("database", "downgrade", "12", "--home", str(home))
    assert told.exit_code == 2 and f"Choose one of: {', '.join(each for each in known() if each >= OLDEST)}\n" in told.stderr
