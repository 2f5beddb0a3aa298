"""`tideline site policy` and `ledger`: what an owner reads before an agent starts, and after it has worked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.world import assert_refuses, json_of, output_of, tide
from tideline.cli.guard import DONE, REFUSED, TAMPERED
from tideline.core.run import RunId
from tideline_agent.home.ledger import FILE, FileLedger
from tideline_agent.home.obeyed import obey
from tideline_agent.policy_file import policy_text
from tideline_agent.vault import FolderVault


def site(*args: str | Path) -> Result:
    return tide("site", *args)


def test_a_policy_in_words(tmp_path: Path) -> None:
    """Each rule has a line; names that nothing has are told, with the one that was meant."""
    file = tmp_path / "policy.toml"
    file.write_text("[runs]\nmethods = ['fedavg', 'fedpro']\nhours = '20:00-06:00'\n[bounds]\nrouds = 3\n'*rate' = 1\n")
    told = output_of(site("policy", "check", file))
    for words in (
        "weights: to coordinator and peers",
        "features: never leaves",
        "methods: fedavg, fedpro; users: all; hours: 20:00-06:00",
        "at least: 20 rows, 1 site, 5 of each class",
        "Without effect: [runs] methods names fedpro, and there is no such method here (did you mean fedprox?)",
        "Without effect: [bounds] rouds: no method here has such a setting (did you mean rounds?)",
    ):
        assert words in told, told
    assert told.count("Without effect") == 2
    whole = json_of(site("policy", "check", file, "--json"))
    assert whole["runs"]["hours"] == "20:00-06:00" and len(whole["without_effect"]) == 2
    assert json_of(site("policy", "check", "--json"))["without_effect"] == []


def test_what_holds_for_a_project(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[runs]\napprove = 'new'\n[projects.cardio.runs]\nmethods = ['fedavg']\n[projects.retina.runs]\nclip = 10\n")
    told = site("policy", "check", file).output
    assert "in the project cardio, methods: fedavg; users: all; hours: all" in told
    assert told.count("in the project cardio") == 1 and "in the project retina, all as above" in told
    own = site("policy", "check", file, "--project", "cardio").output
    assert "methods: fedavg" in own and "approval: new" in own and "in the project" not in own
    assert "methods: all" in site("policy", "check", file, "--project", "another").output
    assert json_of(site("policy", "check", file, "--json"))["projects"]["cardio"]["runs"]["methods"] == ["fedavg"]


@pytest.mark.parametrize("text", ["[runs]\napprove = 'often'\n", "[run]\n", "runs = 3\n"])
def test_a_policy_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    assert_refuses(site("policy", "check", tmp_path / "policy.toml"), "policy.toml: ", "What to do: ")


def test_a_ledger_is_listed_verified_and_exported(tmp_path: Path) -> None:
    """The newest last; by run and kind; a changed one is refused with the number of the entry."""
    made = FileLedger(tmp_path)
    for i in range(3):
        made.record("reply", run="abc", order=str(i), bytes=i)
    made.record("run", run="def", method="fedavg")
    listed = json_of(site("ledger", "list", "--home", tmp_path, "--json", "--run", "abc", "--last", "2"))
    assert [each["seq"] for each in listed] == [2, 3]
    assert [each["run"] for each in json_of(site("ledger", "list", "--home", tmp_path, "--json", "--kind", "run"))] == ["def"]
    assert "method=fedavg" in site("ledger", "list", "--home", tmp_path).output
    facts = json_of(site("ledger", "verify", "--home", tmp_path, "--json"))
    assert facts["entries"] == 4 and facts["hash"] in site("ledger", "verify", "--home", tmp_path).output
    assert site("ledger", "export", "--home", tmp_path, "--out", tmp_path / "out.jsonl").exit_code == DONE
    assert [json.loads(line)["seq"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [1, 2, 3, 4]
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes().replace(b'"bytes":1', b'"bytes":7'))
    told = site("ledger", "verify", "--home", tmp_path)
    assert told.exit_code == TAMPERED and "entry 2" in told.output.lower()


def test_a_ledger_that_was_cut_is_told_and_the_owner_decides(tmp_path: Path) -> None:
    """`verify` finds what a chain alone cannot show; to go on takes the owner's word."""
    made = FileLedger(tmp_path)
    for i in range(3):
        made.record("reply", run="abc", order=str(i), bytes=i)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    told = site("ledger", "verify", "--home", tmp_path)
    assert told.exit_code == TAMPERED and "was cut: it ends with entry 2, and it had 3" in told.output, told.output
    assert site("ledger", "list", "--home", tmp_path).exit_code == DONE  # an owner looks at what is left
    (tmp_path / FILE).write_bytes(whole)
    assert site("ledger", "verify", "--home", tmp_path).exit_code == DONE
    (tmp_path / FILE).unlink()
    for more in ((), ("--json",)):
        assert site("ledger", "accept", "--home", tmp_path, *more).exit_code == REFUSED
    facts = json_of(site("ledger", "accept", "--home", tmp_path, "--yes", "--json"))
    assert (facts["entries"], facts["entries_before"]) == (0, 3)
    assert json_of(site("ledger", "verify", "--home", tmp_path, "--json"))["entries"] == 1
    assert site("ledger", "accept", "--home", tmp_path, "--yes").exit_code == REFUSED
    assert site("ledger", "accept", "--home", tmp_path / "nowhere", "--yes").exit_code == REFUSED


def test_a_folder_that_is_no_home(tmp_path: Path) -> None:
    for words in ("pending", "forget abc --yes", "approve abc --yes", "decline abc", "ledger list", "policy explain abc"):
        assert_refuses(site(*words.split(), "--home", tmp_path), "is not an agent's home")


BRIEF: dict[str, Any] = {"method": "fedavg", "config": {"rounds": 3, "rate": 0.1}, "threads": 1, "keeps": False, "contract": []}
BRIEF |= {"role": "source", "world": {"inputs": [4], "classes": 3, "model": "mlp"}}
BRIEF |= {"intent": {"by": "alice", "experiment": "", "sites": 2}}


def home_of(folder: Path, policy: Path | None) -> Path:
    """A home in which a run has worked, of an agent that started with a policy."""
    folder.mkdir()
    FileLedger(folder).record("started")
    vault = FolderVault(folder / "runs")
    vault.parts(RunId("abc")).put([b"a part"])
    vault.note(RunId("abc"), BRIEF)
    obey(folder, policy, policy_text(policy))
    return folder


def explained(home: Path, *more: str | Path) -> tuple[int, dict[str, Any]]:
    told = site("policy", "explain", "abc", "--home", home, "--json", *more)
    return told.exit_code, json.loads(told.stdout)


def test_a_run_is_judged_by_the_policy_that_the_agent_obeys(tmp_path: Path) -> None:
    """As it was when the agent started: what has changed since is told, and holds later. Another can be tried."""
    file = tmp_path / "policy.toml"
    file.write_text("[bounds]\nrounds = 2\n")
    home = home_of(tmp_path / "home", file)
    code, facts = explained(home)
    assert (code, facts["allowed"]) == (REFUSED, False) and "config.rounds of 3, which is bound to 2" in facts["against"][0]
    assert facts["judged_by"] == f"the policy {file}, which the agent obeys"
    file.write_text("[bounds]\nrounds = 9\n")
    code, facts = explained(home)
    assert code == REFUSED and "the file has changed since" in facts["judged_by"]
    assert "Judged by the policy" in site("policy", "explain", "abc", "--home", home).output
    code, facts = explained(home, "--policy", file)
    assert (code, facts["judged_by"]) == (DONE, f"the policy {file}")
    file.unlink()
    assert "the file is gone" in explained(home)[1]["judged_by"]


def test_what_a_run_is_judged_by_without_a_policy_file(tmp_path: Path) -> None:
    """The built-in policy: as the agent said, or because none has said anything. A damaged note is refused, not passed over."""
    home = home_of(tmp_path / "home", None)
    assert explained(home)[1]["judged_by"] == "the built-in policy, which the agent obeys"
    (home / "policy.json").unlink()
    assert "no agent has noted" in explained(home)[1]["judged_by"]
    (home / "policy.json").write_text("{}")
    assert_refuses(site("policy", "explain", "abc", "--home", home), "policy.json cannot be read", "--policy FILE")
