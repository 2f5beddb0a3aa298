"""`tideline site forget` and `leave`: what an owner frees or takes back, and that nothing goes that was not meant."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.world import assert_refuses, assert_tells, json_of, output_of, refusal_of, tide
from tideline.algorithms import METHODS
from tideline.cli.guard import DONE, REFUSED
from tideline.core.algorithm import resolve
from tideline.core.errors import Refused
from tideline.core.run import OrderId, RunId
from tideline.engine.ports.site import Head
from tideline_agent.home import identity
from tideline_agent.home.identity import Memo, only_one, remember
from tideline_agent.home.ledger import FileLedger, entries
from tideline_agent.home.ledger_head import remembered
from tideline_agent.home.retention.leaving import SECRETS
from tideline_agent.home.runs import FORGOTTEN, WORKING, at_work, forget
from tideline_agent.vault import FolderVault

CONFIG = {"rounds": 2}
LAST = len(resolve(METHODS, "fedavg").plan(resolve(METHODS, "fedavg").configure(CONFIG))) - 1
CONTENT = b"x" * 5000


def site(home: Path, *args: str | Path, answer: str | None = None) -> Result:
    return tide("site", "forget", "--home", home, *args, answer=answer)


def worked(home: Path, run: str, cursor: int | None = LAST, days: float = 0.0, parent: str = "") -> Path:
    """A run whose last answer was this one, so many days ago; None: it was never answered. parent: the run that it belongs to."""
    vault, name = FolderVault(home / "runs"), RunId(run)
    digest = vault.parts(name).put([CONTENT])
    intent = {"intent": {"parent": parent}} if parent else {}
    vault.note(name, {"method": "fedavg", "config": CONFIG, "world": {}, "role": "source", **intent})
    if cursor is not None:
        vault.commit(name, Head(OrderId("o"), cursor, ((digest, len(CONTENT)),), (), {}, {}))
    for file in (home / "runs" / run).rglob("*"):
        os.utime(file, (time.time() - 86400 * days,) * 2)
    return home / "runs" / run


def left(home: Path) -> set[str]:
    """The runs of which there is still something."""
    return {folder.name for folder in (home / "runs").iterdir()}


def test_decoded_rows_are_forgotten(tmp_path: Path) -> None:
    worked(tmp_path, "old")
    folder = tmp_path / "rows"
    folder.mkdir()
    for name in ("used.rows", "idle.rows", "cut.part"):
        (folder / name).write_bytes(CONTENT)
    with (folder / "used.rows").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        done = site(tmp_path, "--rows", "--json")
    assert done.exit_code == DONE and json.loads(done.output) | {"bytes": 0} == {"caches": 2, "bytes": 0, "in_use": 1}
    assert [path.name for path in folder.iterdir()] == ["used.rows"] and left(tmp_path) == {"old"}
    assert site(tmp_path, "old", "--rows").exit_code == REFUSED
    assert "Forgot 1 cache" in site(tmp_path, "--rows").output


def test_a_run_is_forgotten(tmp_path: Path) -> None:
    worked(tmp_path, "old")
    worked(tmp_path, "other")
    asked = site(tmp_path, "old", answer="n\n")
    assert asked.exit_code == REFUSED and "Nothing was forgotten" in asked.output and left(tmp_path) == {"old", "other"}
    assert site(tmp_path, "old", answer="").exit_code == REFUSED and left(tmp_path) == {"old", "other"}
    assert_tells(site(tmp_path, "old", answer="y\n"), "Forgot 1 run, 5.", "You cannot undo this")
    assert left(tmp_path) == {"other"} and not (tmp_path / FORGOTTEN).exists() and not list((tmp_path / WORKING).iterdir())


def test_for_programs(tmp_path: Path) -> None:
    worked(tmp_path, "old")
    done = site(tmp_path, "old", "--json")
    assert done.exit_code == REFUSED and "--yes" in json.loads(done.stdout)["todo"] and left(tmp_path) == {"old"}
    done = site(tmp_path, "old", "--json", "--yes")
    told = json.loads(done.stdout)
    assert done.exit_code == DONE and told["forgotten"] == ["old"] and told["bytes"] > len(CONTENT)
    assert json_of(site(tmp_path, "--older", "1d", "--json", "--yes")) == {"forgotten": [], "bytes": 0}


def test_what_may_go_on_is_kept(tmp_path: Path) -> None:
    """A run whose last exchange the home does not know, or whose method is gone; its owner may know better."""
    worked(tmp_path, "open", LAST - 1)
    worked(tmp_path, "asked", None)
    worked(tmp_path, "strange")
    FolderVault(tmp_path / "runs").note(RunId("strange"), {"method": "gone", "config": {}, "world": {}})
    worked(tmp_path, "over")
    for run in ("open", "asked", "strange"):
        assert_refuses(site(tmp_path, "over", run, "--yes"), f"Run {run} may continue", "--unfinished")
    assert left(tmp_path) == {"open", "asked", "strange", "over"}
    assert site(tmp_path, "open", "asked", "strange", "--yes", "--unfinished").exit_code == DONE and left(tmp_path) == {"over"}


def test_those_of_which_nothing_was_heard_for_long(tmp_path: Path) -> None:
    worked(tmp_path, "new")
    worked(tmp_path, "old", days=40)
    worked(tmp_path, "open", 0, days=40)
    assert site(tmp_path, "--older", "30d", "--yes").exit_code == DONE and left(tmp_path) == {"new", "open"}
    assert site(tmp_path, "--older", "30d", "--yes", "--unfinished").exit_code == DONE and left(tmp_path) == {"new"}


def test_what_another_run_will_read_is_kept(tmp_path: Path) -> None:
    """A rehearsal that compares late reads what its runs predicted here, however long ago; a run never waits for itself."""
    worked(tmp_path, "whole", LAST - 1)
    for run, parent in (("part", "whole"), ("alone", "elsewhere"), ("own", "own")):
        worked(tmp_path, run, days=40, parent=parent)
    assert site(tmp_path, "--older", "30d", "--yes").exit_code == DONE and left(tmp_path) == {"whole", "part"}
    worked(tmp_path, "whole", LAST)
    assert site(tmp_path, "--older", "30d", "--yes").exit_code == DONE and left(tmp_path) == {"whole"}


def test_what_the_agent_works_for_is_kept(tmp_path: Path) -> None:
    """The others go, and it is said; once the work is done the run goes too."""
    worked(tmp_path, "busy")
    worked(tmp_path, "old")
    with at_work(tmp_path, RunId("busy")):
        done = site(tmp_path, "busy", "old", "--yes", "--json")
        told = json.loads(done.stdout)
        assert done.exit_code == REFUSED and told["detail"] == "The agent works for run busy now"
        assert told["context"]["forgotten"] == 1 and left(tmp_path) == {"busy"}
    assert site(tmp_path, "busy", "--yes").exit_code == DONE and left(tmp_path) == set()


def test_refusals(tmp_path: Path) -> None:
    worked(tmp_path, "old")
    refusals = {"": "You named no runs", "old --older 1d": "Give one of the two", "odl": "did you mean old?"}
    for args, said in {**refusals, "../runs/old": "There is no run", "--older soon": "--older is 'soon'"}.items():
        assert said in " ".join(refusal_of(site(tmp_path, *args.split(), "--yes")).split()) and left(tmp_path) == {"old"}


def test_what_a_killed_command_left_is_deleted(tmp_path: Path) -> None:
    worked(tmp_path, "old")
    worked(tmp_path, "older")
    forget(tmp_path, RunId("old"))
    assert list((tmp_path / FORGOTTEN).iterdir())
    assert site(tmp_path, "older", "--yes").exit_code == DONE and not (tmp_path / FORGOTTEN).exists()


def test_a_forgotten_run_can_be_asked_again(tmp_path: Path) -> None:
    worked(tmp_path, "old")
    vault = FolderVault(tmp_path / "runs")
    digest = vault.parts(RunId("old")).put([CONTENT])
    forget(tmp_path, RunId("old"))
    assert vault.head(RunId("old")) is None
    vault.collect(RunId("old"), ())
    assert not vault.parts(RunId("old")).has(digest)
    assert vault.parts(RunId("old")).put([CONTENT]) == digest


def test_work_and_forgetting_exclude_each_other(tmp_path: Path) -> None:
    """Whoever comes second waits, or is refused; nothing that is done in between is lost."""
    (tmp_path / "runs").mkdir()
    run, wrong, over = RunId("run"), list[Any](), threading.Event()

    def work() -> None:
        for _ in range(200):
            with at_work(tmp_path, run):
                folder = tmp_path / "runs" / run
                folder.mkdir(exist_ok=True)
                (folder / "file").write_text("x")
                if (folder / "file").read_text() != "x":
                    wrong.append(folder)
        over.set()

    def clean() -> int:
        gone = 0
        while not over.is_set():
            try:
                forget(tmp_path, run)
                gone += 1
            except (Refused, FileNotFoundError):
                continue
        return gone

    with ThreadPoolExecutor(2) as threads:
        cleaning, working = threads.submit(clean), threads.submit(work)
        try:
            working.result()
        finally:
            over.set()
        cleaning.result()
    assert not wrong


@pytest.mark.parametrize("run", ["../outside", ".hidden", "a/b", "", "x" * 300, "a\0b"])
def test_an_odd_run_is_worked_for_without_a_lock(tmp_path: Path, run: str) -> None:
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    with at_work(home, RunId(run)):
        assert list(tmp_path.rglob("*")) == [home, home / "runs"]


def over(home: Path, run: str, base: str) -> None:
    worked(home, run)
    again(home, run, base)


def again(home: Path, run: str, base: str) -> None:
    """The run's record, with these frozen weights."""
    vault = FolderVault(home / "runs")
    vault.note(RunId(run), {**vault.brief(RunId(run)), "base": base})  # type: ignore[dict-item]


def test_features_go_with_the_last_run_that_needs_them(tmp_path: Path) -> None:
    """They are made of the site's rows. Those of a run that has not answered stay, too; their bytes are told."""
    for run, base in (("old", "b3-" + "a" * 64), ("twin", "b3-" + "a" * 64), ("other", "b3-" + "b" * 64)):
        over(tmp_path, run, base)
    worked(tmp_path, "asked", None)
    again(tmp_path, "asked", "b3-" + "c" * 64)
    folder = tmp_path / "features"
    folder.mkdir()
    for base in "abcd":
        (folder / f"b3-{base * 64}.{'0' * 64}.features").write_bytes(CONTENT)

    def kept() -> set[str]:
        return {each.name[3] for each in folder.iterdir()}

    assert site(tmp_path, "old", "--yes").exit_code == DONE and kept() == {"a", "b", "c"}
    before = json_of(site(tmp_path, "other", "--json", "--yes"))["bytes"]
    assert kept() == {"a", "c"} and before > 2 * len(CONTENT)
    assert site(tmp_path, "twin", "asked", "--unfinished", "--yes").exit_code == DONE and not kept()


def leave(home: Path, *args: str | Path, answer: str | None = None) -> Result:
    return tide("site", "leave", "--home", home, *args, answer=answer)


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
    done = output_of(leave(home, "--out", out, "--yes"))
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["kind"] for each in written] == ["started", "left"] and written[-1]["hash"] in done
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert not any((home / name).exists() for name in SECRETS) and (home / "session").read_text() == "1"
    assert "2 runs" in done and sorted(each.name for each in (home / "runs").iterdir()) == ["one", "two"]
    assert "keys.pem, keys.next.pem, coordinator.json" in done and "tideline clients revoke" in done
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
