"""An owner who wants to be asked, with real agents: a run waits, is approved or declined, and the ledger tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD, write_blobs
from tests.acceptance.harness import Net, net
from tests.acceptance.test_rehearsal import GIVEN as REHEARSAL
from tests.cli.world import tide_process
from tideline_agent.home.held import held_runs

pytestmark = pytest.mark.processes
GIVEN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"anna": "source", "bert": "source"}}
ASKING = "retain_days = 1\n[runs]\napprove = 'new'\n"


def waits(made: Net, run: str, words: str) -> None:
    made.until(lambda: words in made.client().get(f"/runs/{run}")["waits_for"], f"run {run} to wait for {words}")


def test_a_run_waits_for_its_approval(tmp_path: Path) -> None:
    """Users see it, the owner sees what is asked, a restart forgets neither, and what asks for the same needs no second word."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("anna", write_blobs(tmp_path / "anna", 0))
        made.agent("bert", write_blobs(tmp_path / "bert", 1), "source", *made.policy(ASKING))
        run = made.run(GIVEN)
        waits(made, run, "waiting for the approval of bert; gives up in 8 d")
        assert [each["held"] for each in made.client().get(f"/runs/{run}")["awaited"]] == ["approval"]
        (asked,) = made.owner("bert", "pending")
        assert (asked["run"], asked["waits_for"], asked["method"], asked["by"]) == (run, "approval", "fedavg", "admin")
        explained = made.owner("bert", "policy", "explain", run)
        assert "which the agent obeys" in explained["judged_by"] and "built-in" not in explained["judged_by"]
        assert explained["allowed"] and any("sends model (like model) as WEIGHTS" in line for line in explained["is"])
        made.restart("bert")
        waits(made, run, "waiting for the approval of bert")
        made.until(lambda: made.log("bert").count("order_held") == 2, "the run to wait again")
        assert made.owner("bert", "approve", run, "--yes") == {"run": run, "approved": True}
        made.completed(run)
        assert made.owner("bert", "pending") == []
        made.completed(made.run({**GIVEN, "seed": 5}))
        kinds = [entry["kind"] for entry in made.owner("bert", "ledger", "list", "--run", run)]
        assert kinds[:3] == ["approved", "run", "order"] and kinds.count("reply") == kinds.count("order") > 3
        with made.journal() as journal:
            (started,) = [e for e in journal.audit() if e.kind == "run_started" and e.run == run]
        (entry,) = [e for e in made.owner("bert", "ledger", "list", "--run", run) if e["kind"] == "run"]
        assert entry["details"]["experiment"] == started.details["experiment"] and entry["details"]["by"] == started.by == "admin"
        assert made.owner("bert", "ledger", "verify")["entries"] > len(kinds)


def test_an_approval_covers_the_runs_that_belong_to_it(tmp_path: Path) -> None:
    """A reference of another method, whose clauses are shown with the run's own."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("bert", write_blobs(tmp_path / "bert", 1), "source", *made.policy("[runs]\napprove = 'always'\n"))
        given = {"method": "fedprox", "preset": "tiny", "world": WORLD, "roster": {"bert": "source"}}
        run = made.run({**given, "reference": {"method": "fedavg"}})
        waits(made, run, "waiting for the approval of bert")
        together = [[f"{run}-ref"]]
        made.until(lambda: [x["beside"] for x in made.owner("bert", "pending")] == together, "its reference to wait with it")
        made.owner("bert", "approve", run, "--yes")
        result = made.ended(run)
        assert (result["status"], result["reference_status"]) == ("completed", "completed"), result["cause"]


def test_one_word_for_a_rehearsal(tmp_path: Path) -> None:
    with net(tmp_path) as made:
        made.coordinator()
        names = ("anna", "bert", "carl")
        for i, name in enumerate(names):
            role = "target" if name == "carl" else "source"
            made.agent(name, write_blobs(tmp_path / name, i), role, *made.policy("[runs]\napprove = 'always'\nrehearse = true\n"))
        run = made.run({**REHEARSAL, "roster": {**dict.fromkeys(names[:2], "source"), "carl": "target"}})
        for name in names:
            home = made.home / f"home-{name}"
            made.until(lambda home=home: len(held_runs(home)) > 2, "all to wait")  # type: ignore[misc]
            assert tide_process("site", "approve", run, "--yes", "--home", home).returncode == 0
        made.completed(run)


def test_a_run_that_is_declined(tmp_path: Path) -> None:
    """It says by whom; an approval that is taken back ends the site's part, and other settings wait anew."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("anna", write_blobs(tmp_path / "anna", 0))
        made.agent("bert", write_blobs(tmp_path / "bert", 1), "source", *made.policy(ASKING))
        run = made.run(GIVEN)
        waits(made, run, "the approval of bert")
        made.until(lambda: len(made.owner("bert", "pending")) == 1, "the run to be listed")
        made.owner("bert", "decline", run)
        ended = made.ended(run)
        assert ended["status"] == "stalled" and "bert: The owner of this site has declined the run" in ended["cause"]
        other = made.run({**GIVEN, "config": {"rounds": 1}, "reference": None})
        waits(made, other, "the approval of bert")
        assert ended["clients"][1]["declined"].startswith("The owner of this site has declined the run")
        assert any("bert takes no part: The owner of this site has declined the run" in note for note in ended["notes"])
        (refused,) = [e for e in made.owner("bert", "ledger", "list", "--run", run) if e["kind"] == "refused"]
        assert refused["details"]["kind_of_error"] == "PolicyRefused"
        unknown = tide_process("site", "approve", "nothing", "--home", made.home / "home-bert", "--yes")
        assert unknown.returncode == 2 and "There is no run 'nothing' in this home" in unknown.stderr


def test_a_quota_outlives_the_agent(tmp_path: Path) -> None:
    """What was spent of a day is spent, also after the agent was killed and started again."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("bert", write_blobs(tmp_path / "bert", 1), "source", *made.policy("[quotas]\nruns = 1\n"))
        given = {**GIVEN, "roster": {"bert": "source"}, "reference": None}
        made.completed(made.run(given))
        made.restart("bert")
        waits(made, made.run({**given, "seed": 5}), "tomorrow, for bert")
