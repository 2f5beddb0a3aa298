"""`tideline site clean`: what goes from a home by its owner's policy, what stays, and what the ledger says of it."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.test_forgetting import left, worked
from tests.cli.world import json_of, output_of, tide
from tideline.cli.guard import DONE, REFUSED
from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.engine.model.runs import MOST_STORED
from tideline_agent.home.ledger import entries
from tideline_agent.home.obeyed import obey
from tideline_agent.home.retention.cleaner import Cleaner
from tideline_agent.home.retention.deleted import PAUSE_SECONDS, ROUND_SECONDS, Inquiry, NoInquiry, heard_of
from tideline_agent.home.runs import at_work
from tideline_agent.policy_file import policy_in
from tideline_agent.vault import FolderVault

METHODS = "tideline.algorithms:METHODS"


def clean(home: Path, *args: str | Path, answer: str | None = None) -> Result:
    return tide("site", "clean", "--home", home, *args, answer=answer)


def policy(home: Path, text: str) -> Path:
    path = home / "policy.toml"
    path.write_text(f"[retention]\n{text}\n")
    return path


def deleted(home: Path, *runs: str) -> None:
    """Have the home hear that runs were deleted at the coordinator."""
    Inquiry(home).heard(map(RunId, runs))


def forgotten(home: Path) -> list[tuple[str, Any]]:
    return [(each.run, each.details["why"]) for each in entries(home) if each.kind == "forgotten"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Runs old and young."""
    worked(tmp_path, "old", days=40)
    worked(tmp_path, "young", days=5)
    worked(tmp_path, "unfinished", cursor=0, days=40)
    return tmp_path


def test_without_a_rule_nothing_is_due(home: Path) -> None:
    assert "Nothing is due" in clean(home).output and left(home) == {"old", "young", "unfinished"}
    assert not policy_in(None, "").rules.cleans


def test_old_runs_go_by_the_owners_rule(home: Path) -> None:
    rule = policy(home, "runs_days = 30")
    assert "not written to for 30 days" in output_of(clean(home, "--policy", rule, "--dry-run")) and len(left(home)) == 3
    assert clean(home, "--policy", rule, answer="n\n").exit_code == REFUSED and len(left(home)) == 3
    assert clean(home, "--policy", rule, "--json").exit_code == REFUSED
    done = clean(home, "--policy", rule, "--yes", "--json")
    assert json.loads(done.output)["forgotten"] == ["old"] and left(home) == {"young", "unfinished"}
    assert forgotten(home) == [("old", "not written to for 30 days")]


def test_models_may_stay_longer(home: Path) -> None:
    """A method whose sites share the common model leaves none of their own; of one that is not known, nobody can say."""
    (home / "runs" / "old" / "run.json").unlink()
    worked(home, "average", days=40)
    found = json_of(clean(home, "--policy", policy(home, "runs_days = 30\nmodels_days = 365"), "--dry-run", "--json"))
    assert [row["run"] for row in found["due"]] == ["average"]


@pytest.mark.parametrize(("said", "due", "goes"), [("keep", False, False), ("ask", True, False), ("follow", True, True)])
def test_runs_that_were_deleted_at_the_coordinator(home: Path, said: str, due: bool, goes: bool) -> None:
    """Nothing, a question, or their end, as the owner says; also of runs that may go on, as far as the home knows."""
    rule = policy(home, f'on_delete = "{said}"')
    deleted(home, "young", "unfinished", "unknown")
    assert set(heard_of(home)) == {"young", "unfinished"}
    shown = json_of(clean(home, "--policy", rule, "--dry-run", "--json"))["due"]
    assert sorted(row["run"] for row in shown) == (["unfinished", "young"] if due else [])
    assert clean(home, "--policy", rule, "--by-itself").exit_code == DONE
    assert left(home) == ({"old"} if goes else {"old", "young", "unfinished"})
    if due:
        assert clean(home, "--policy", rule, "--yes").exit_code == DONE and left(home) == {"old"}
        assert sorted(forgotten(home)) == [(run, "deleted at the coordinator") for run in ("unfinished", "young")]
        assert heard_of(home) == {}


def test_what_the_owner_spares_stays(home: Path) -> None:
    """Whatever any rule says, and the home is no younger for it; until the owner takes the word back."""
    rule = policy(home, 'on_delete = "follow"\nruns_days = 30')
    deleted(home, "young")
    for run in ("old", "young"):
        assert tide("site", "spare", run, "--home", home).exit_code == DONE
    assert tide("site", "spare", "nobody", "--home", home).exit_code == REFUSED
    assert "Nothing is due" in clean(home, "--policy", rule).output
    old = tide("site", "forget", "--home", home, "--older", "30d", "--yes")
    assert old.exit_code == DONE and left(home) == {"old", "young", "unfinished"}
    assert tide("site", "spare", "old", "--undo", "--home", home).exit_code == DONE
    assert clean(home, "--policy", rule, "--yes").exit_code == DONE and left(home) == {"young", "unfinished"}


def test_a_projects_runs_go_by_its_section(home: Path) -> None:
    note = {"method": "fedavg", "config": {"rounds": 2}, "world": {}, "role": "source", "intent": {"project": "cardio"}}
    last = (home / "runs" / "old" / "head.json").stat().st_mtime
    FolderVault(home / "runs").note(RunId("old"), note)
    os.utime(home / "runs" / "old" / "run.json", (last, last))
    rule = policy(home, "runs_days = 3\n[projects.cardio.retention]\nruns_days = 100")
    assert [each["run"] for each in json_of(clean(home, "--policy", rule, "--dry-run", "--json"))["due"]] == ["young"]


def test_a_run_that_is_worked_for_stays(home: Path) -> None:
    rule = policy(home, "runs_days = 30")
    with at_work(home, RunId("old")):
        assert "1 run in use stayed" in clean(home, "--policy", rule, "--yes").output
    assert "old" in left(home) and forgotten(home) == []


def test_without_a_ledger_nothing_goes(home: Path) -> None:
    (home / "ledger.jsonl").write_text("no entry\n")
    assert clean(home, "--policy", policy(home, "runs_days = 30"), "--yes").exit_code != DONE
    assert "old" in left(home)


def test_an_agent_cleans_by_itself_as_its_policy_says(home: Path) -> None:
    obey(home, policy(home, "runs_days = 30"), (home / "policy.toml").read_text())
    assert Cleaner(home, METHODS).clean() and left(home) == {"young", "unfinished"}
    assert not Cleaner(home / "nowhere", METHODS).clean()


def test_the_same_is_not_said_twice(tmp_path: Path) -> None:
    assert policy_in(tmp_path, "retain_days = 30").rules.days(model=True) == 30
    assert policy_in(tmp_path, "[retention]\nruns_days = 30\nmodels_days = 90").rules.days(model=True) == 90
    with pytest.raises(ConfigRefused, match=r"retain_days and retention.runs_days say the same"):
        policy_in(tmp_path, "retain_days = 30\n[retention]\nruns_days = 30")
    with pytest.raises(ConfigRefused, match=r"retention.on_delete"):
        policy_in(tmp_path, "[retention]\non_delete = 'obey'")


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0


def test_an_agent_asks_for_some_runs_at_a_time(tmp_path: Path) -> None:
    """In rounds, and not again for what it has heard; of a home without runs it asks nothing."""
    clock, called = Clock(), threading.Event()
    inquiry = Inquiry(tmp_path, called.set, lambda: clock.now)
    assert list(inquiry.due()) == []
    for at in range(MOST_STORED + 5):
        (tmp_path / "runs" / f"run-{at:03d}").mkdir(parents=True)
    clock.now += ROUND_SECONDS
    first = list(inquiry.due())
    assert len(first) == MOST_STORED and list(inquiry.due()) == []
    clock.now += PAUSE_SECONDS
    assert [*first, *inquiry.due()] == sorted(left(tmp_path))
    inquiry.heard([])
    assert not called.is_set()
    inquiry.heard([first[0], RunId("unknown")])
    assert called.wait(60.0) and set(heard_of(tmp_path)) == {first[0]}
    clock.now += ROUND_SECONDS
    assert first[0] not in inquiry.due()
    assert list(NoInquiry(tmp_path).due()) == []
    (tmp_path / "deleted.json").write_text("no JSON")
    assert heard_of(tmp_path) == {} and time.time() > 0
