"""`tideline site leave`: a site's part ends, its ledger is written out, and nothing lets anybody call in its name any more."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cli.test_forgetting import worked
from tests.cli.world import json_of
from tideline.cli.app import app
from tideline.cli.guard import DONE, REFUSED
from tideline_agent.home import identity
from tideline_agent.home.identity import Memo, only_one, remember
from tideline_agent.home.ledger import FileLedger, entries
from tideline_agent.home.ledger_head import remembered
from tideline_agent.home.retention.leaving import SECRETS


def leave(home: Path, *args: str | Path, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["site", "leave", "--home", str(home), *map(str, args)], input=answer)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A site that has worked for two runs, enrolled, and with keys of a rotation that was cut."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    worked(made, "one", days=2)
    worked(made, "two", cursor=0, days=1)
    identity.keys(made)
    identity.next_keys(made)
    identity.new_session(made)
    remember(made, Memo("hospital-a", ("a:1",), "plain"))
    FileLedger(made).record("started", version="1")
    return made


def test_a_site_leaves(home: Path, tmp_path: Path) -> None:
    """The ledger is written out with its last word; keys and coordinators are forgotten; runs stay unless they are to go."""
    out = tmp_path / "ledger.jsonl"
    done = leave(home, "--out", out, "--yes")
    assert done.exit_code == DONE, done.output
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["kind"] for each in written] == ["started", "left"] and written[-1]["hash"] in done.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert not any((home / name).exists() for name in SECRETS) and (home / "session").read_text() == "1"
    assert "2 runs" in done.output and sorted(each.name for each in (home / "runs").iterdir()) == ["one", "two"]
    assert "keys.pem, keys.next.pem, coordinator.json" in done.output and "tideline clients revoke" in done.output
    assert remembered(home).seq == len(list(entries(home))) == 2
    told = json_of(leave(home, "--out", out, "--runs", "--yes", "--json"))
    assert (told["deleted"], told["forgotten"], told["runs"], told["entries"]) == ([], 2, 0, 3)
    assert list((home / "runs").iterdir()) == [] and (home / "ledger.jsonl").exists()


def test_nothing_goes_without_a_word(home: Path, tmp_path: Path) -> None:
    """No, or no answer, deletes nothing; nor does a place in the home, which may be deleted next, or one that is not there."""
    out = tmp_path / "ledger.jsonl"
    for answer in ("n\n", ""):
        assert leave(home, "--out", out, answer=answer).exit_code == REFUSED
    for wrong in (home / "ledger-2.jsonl", tmp_path / "no" / "ledger.jsonl", tmp_path / "ledger.txt"):
        assert leave(home, "--out", wrong, "--yes").exit_code == REFUSED
    assert leave(home, "--out", out, "--json").exit_code == REFUSED
    assert not out.exists() and (home / "keys.pem").exists()
    assert leave(home, "--out", out, answer="y\n").exit_code == DONE and not (home / "keys.pem").exists()


def test_an_agent_at_work_is_stopped_first(home: Path, tmp_path: Path) -> None:
    with only_one(home):
        done = leave(home, "--out", tmp_path / "ledger.jsonl", "--yes")
    assert done.exit_code == REFUSED and "Another agent runs with the home" in done.stderr and (home / "keys.pem").exists()


def test_a_ledger_that_was_changed(home: Path, tmp_path: Path) -> None:
    path = home / "ledger.jsonl"
    path.write_text(path.read_text().replace('"1"', '"2"'))
    done = leave(home, "--out", tmp_path / "ledger.jsonl", "--yes")
    assert done.exit_code != DONE and (home / "keys.pem").exists() and not (tmp_path / "ledger.jsonl").exists()


def test_a_place_that_cannot_be_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl.tmp").mkdir()
    assert leave(home, "--out", tmp_path / "ledger.jsonl", "--yes").exit_code != DONE
    assert (home / "keys.pem").exists()
