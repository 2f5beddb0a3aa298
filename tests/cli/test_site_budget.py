"""`tideline site budget`, `spent` and `release`, and the budget on the owner's page: what an owner sees, and says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.world import assert_refuses, json_of, output_of, tide
from tests.site.page.test_http import entered
from tests.site.test_budget import LIMIT, ONE, PLAN, TRAIN, charged, reserved
from tideline.cli.guard import DONE, REFUSED
from tideline.core.errors import BudgetExceeded
from tideline.core.run import RunId
from tideline.engine.epsilon.budget import Limit, standing
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline.engine.site.rules import PrivacyRules
from tideline_agent.home.budget.accounting import by_distributions
from tideline_agent.home.ledger import FILE, FileLedger, accept
from tideline_agent.home.ledger_head import KNOWN
from tideline_agent.home.obeyed import obey
from tideline_agent.page.link import ADDRESS
from tideline_agent.page.policy_words import privacy_in_words

POLICY = "[privacy]\nepsilon = 4.0\ndelta = 1e-5\n[projects.cardio.privacy]\nepsilon = 1.0\n"


def site(*args: str | Path) -> Result:
    return tide("site", *args, env={"COLUMNS": "200"})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose agent obeys a policy with a budget, and another for a project."""
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    made = tmp_path / "home"
    made.mkdir()
    ledger = FileLedger(made)
    obey(made, file, POLICY)
    ledger.record("run", run="before", method="fedavg")
    reserved(ledger, ONE)
    charged(ledger, ONE, "a")
    return made


def budgets(home: Path) -> list[dict[str, Any]]:
    return list(json_of(site("budget", "--home", home, "--json"))["budgets"])


def test_what_is_spent_reserved_and_left(home: Path) -> None:
    """A line for each limit, as closely as the package counts; spent rounded up, left rounded down."""
    most, own = budgets(home)
    assert most["spent"] == own["spent"] == by_distributions((TRAIN,), 1e-5) < renyi_epsilon((TRAIN,), 1e-5)
    both = by_distributions(PLAN, 1e-5)
    assert most["spent"] + most["reserved"] == pytest.approx(both) and most["left"] == pytest.approx(4.0 - both)
    assert own["epsilon"] == 1.0 and own["left"] == 0.0
    shown = " ".join(output_of(site("budget", "--home", home)).split())
    for words in ("population", "rows", f"{4.0 - both - 0.0005:.3f}", ONE, "spent alone", "the policy"):
        assert words in shown
    assert "Charged to no budget: 1 run" in shown
    assert json_of(site("budget", "--home", home, "--json"))["uncharged"] == 1


def test_a_home_without_a_budget(tmp_path: Path) -> None:
    FileLedger(tmp_path)
    assert "No budget is set" in site("budget", "--home", tmp_path).output and budgets(tmp_path) == []
    assert site("budget", "--home", tmp_path / "nowhere").exit_code == REFUSED


def test_a_limit_that_is_gone_leaves_what_was_spent(home: Path) -> None:
    obey(home, None, "")
    (found,) = budgets(home)
    assert found["epsilon"] is None and found["left"] is None and found["spent"] > 0


def test_what_an_owner_states(home: Path) -> None:
    """It adds up with what the ledger tells, asks first, and is taken back by another word."""
    before = budgets(home)[0]
    assert site("spent", "1.5", "1e-6", "--home", home, "--json").exit_code == REFUSED
    assert tide("site", "spent", "1.5", "1e-6", "--home", home, answer="n\n").exit_code == REFUSED
    assert site("spent", "1.5", "1e-6", "--home", home, "--yes").exit_code == DONE
    after = budgets(home)[0]
    assert after["stated"] == 1.5 and after["spent"] > before["spent"] + 1.5 and after["left"] < before["left"] - 1.5
    assert "you stated 1.5 of rows" in site("budget", "--home", home).output
    assert site("spent", "1", "1e-5", "--home", home, "--yes").exit_code == DONE
    assert budgets(home)[0]["spent"] is None and "unbounded" in site("budget", "--home", home).output
    assert site("spent", "0", "0", "--home", home, "--yes").exit_code == DONE
    assert budgets(home)[0] == before


@pytest.mark.parametrize(
    "words", [("nan", "0"), ("inf", "0"), ("--", "-1", "0"), ("1", "1"), ("1", "nan"), ("1", "0", "--population", "a b")]
)
def test_what_cannot_have_been_spent(home: Path, words: tuple[str, ...]) -> None:
    assert_refuses(site("spent", "--home", home, "--yes", *words), "What to do: ")


def test_a_reservation_is_freed(home: Path) -> None:
    assert site("release", "two", "--home", home).exit_code == REFUSED
    assert site("release", ONE, "--home", home).exit_code == DONE
    assert budgets(home)[0]["reserved"] == 0.0 and FileLedger(home).open_accounts() == ()


def test_a_ledger_that_was_lost(home: Path) -> None:
    (home / FILE).unlink()
    accept(home, "owner")
    (found, _) = budgets(home)
    assert found["lost"] and found["left"] == 0.0
    shown = " ".join(site("budget", "--home", home).output.split())
    assert "unknown" in shown and "until you say what was spent" in shown
    assert site("spent", "0.5", "1e-6", "--home", home, "--yes").exit_code == DONE
    assert not budgets(home)[0]["lost"]
    charged(FileLedger(home), RunId("next"), "a", LIMIT)


def test_the_owners_page_shows_it(home: Path) -> None:
    """The same numbers as the command, to whoever came by the link."""
    (home / ADDRESS).write_text("127.0.0.1:7890")
    client, _ = entered(home)
    found = client.get("/api/budget").json()
    most, own = found["rows"]
    wanted = ("population", "spent", "reserved", "left", "epsilon", "delta", "lost")
    assert {name: most[name] for name in wanted} == {name: budgets(home)[0][name] for name in wanted}
    assert own["epsilon"] == 1.0 and found["uncharged"] == 1 and not found["behind"]
    assert any("private runs together cost each row" in line for line in client.get("/api/policy").json()["lines"])


def test_names_that_are_required_and_that_nothing_has(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[privacy]\nrequire = ['fedav', 'all']\n")
    told = site("policy", "check", file)
    assert told.exit_code == DONE and told.output.count("Without effect") == 1
    assert "[privacy] require names fedav, and there is no such method here (did you mean fedavg?)" in told.output


def test_a_policy_of_patients_in_words() -> None:
    said = list(privacy_in_words(PrivacyRules(epsilon=2.0, unit="patient")))
    assert said == ["private runs together cost each patient of rows at most: epsilon 2 at delta 1e-05"]
    assert list(privacy_in_words(PrivacyRules(unit="patient"))) == ["private runs protect each patient"]
    assert not list(privacy_in_words(PrivacyRules()))


def test_budgets_of_patients_are_shown_as_such(tmp_path: Path) -> None:
    """By what the policy says, and of what no policy limits by what was charged; over both, neither can be charged."""
    limit = Limit("people", 4.0, 1e-5, "patient")
    ledger = FileLedger(tmp_path)
    charged(ledger, RunId("one"), "a", limit)
    found = standing(FileLedger(tmp_path).budgets(), "people", None, 1e-5)
    assert found.unit == "patient" and standing(ledger.budgets(), "people", 4.0, 1e-5, unit="patient").spent == found.spent
    for other in (Limit("people", 100.0, 1e-5), Limit("people", 100.0, 1e-5, "household")):
        with pytest.raises(BudgetExceeded, match="was charged for each patient before") as refused:
            charged(ledger, RunId("two"), "a", other)
        assert "another [privacy] population" in refused.value.todo
    charged(ledger, RunId("two"), "a", replace(limit, population="others", unit="row"))
    (tmp_path / KNOWN).unlink()
    assert FileLedger(tmp_path).budgets().charged_for("people") == {"patient"}
