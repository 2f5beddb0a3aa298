"""A site's budget of epsilon: whatever is asked in which order, and whatever dies, no more is charged than its owner allows."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tideline.core.asked.private import Charge
from tideline.core.errors import BudgetExceeded, ConfigRefused
from tideline.core.run import RunId
from tideline.engine.audit.log import Tip
from tideline.engine.epsilon.budget import Budgets, Limit, budgets_in, charge, charges_of, cost, plain_budgets, reserve, standing
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline_agent.home.budget.accounting import by_distributions
from tideline_agent.home.ledger import FILE, FileLedger, accept, entries
from tideline_agent.home.ledger_head import KNOWN, REPORTED, remember
from tideline_agent.policy_file import SitePolicy, policy_digest, policy_in

TRAIN, SCORE = Charge(2.0, 0.1, 10), Charge(8.0, 1.0, 1)
PLAN = (Charge(2.0, 0.1, 30), Charge(8.0, 1.0, 3))  # three rounds of both
LIMIT = Limit("rows", 4.0, 1e-5)
ONE, TWO = RunId("one"), RunId("two")


def reserved(ledger: FileLedger, run: str, limit: Limit = LIMIT, plan: tuple[Charge, ...] = PLAN) -> None:
    def decide(budgets: Budgets) -> Any:
        found = reserve(budgets, RunId(run), limit, plan)
        return [] if found is None else [("reserved", found)]

    ledger.account(RunId(run), decide)


def charged(ledger: FileLedger, run: str, place: str, limit: Limit = LIMIT, costs: tuple[Charge, ...] = (TRAIN,)) -> None:
    def decide(budgets: Budgets) -> Any:
        found = charge(budgets, RunId(run), limit, costs, place)
        return [] if found is None else [("charged", found)]

    ledger.account(RunId(run), decide)


def spent(ledger: FileLedger, limit: Limit = LIMIT) -> float:
    budgets = ledger.budgets()
    return cost(budgets, limit, budgets.charged(limit.population))


@pytest.mark.parametrize("charges", [PLAN, (Charge(1.0, 0.01, 1000),), (Charge(4.0, 1.0, 10),), (Charge(3.0, 0.5, 7), SCORE)])
def test_the_accounting_without_a_library_is_an_upper_bound(charges: tuple[Charge, ...]) -> None:
    """It is no less than that of distributions, and no more than a quarter above it."""
    close, own = by_distributions(charges, 1e-5), renyi_epsilon(charges, 1e-5)
    assert close <= own < 1.25 * close


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (2.0, 4), (5.0, 100)])
def test_it_is_the_formula_of_gaussian_noise(noise: float, times: int) -> None:
    """At order a, a / (2 s^2); the best order by hand."""
    from math import log

    rho = times / (2 * noise**2)
    by_hand = min(a * rho + log((a - 1) / a) - (log(1e-5) + log(a)) / (a - 1) for a in range(2, 65))
    assert renyi_epsilon([Charge(noise, 1.0, times)], 1e-5) == pytest.approx(by_hand, rel=1e-6)
    assert renyi_epsilon([Charge(noise, 0.999999, times)], 1e-5) == pytest.approx(by_hand, rel=1e-2)


def test_what_costs_nothing_and_what_nothing_protects() -> None:
    assert renyi_epsilon([], 1e-5) == 0.0 and renyi_epsilon([Charge(1.0, 0.0, 5)], 1e-5) == 0.0
    assert renyi_epsilon([Charge(0.0)], 1e-5) == float("inf")
    with pytest.raises(ValueError, match="between 0 and 1"):
        renyi_epsilon([TRAIN], 1.0)


def test_a_run_reserves_and_the_same_costs_once(tmp_path: Path) -> None:
    """Also after a new start, with the summary of the last one and without; another message at the same place costs again."""
    ledger = FileLedger(tmp_path)
    reserved(ledger, ONE)
    reserved(ledger, ONE)
    for place in ("a", "a", "b"):
        charged(ledger, ONE, place)
    assert [each.kind for each in entries(tmp_path)] == ["reserved", "charged", "charged"]
    for left in (True, False):
        if not left:
            (tmp_path / KNOWN).unlink()
        ledger = FileLedger(tmp_path)
        charged(ledger, ONE, "a")
        assert ledger.budgets().charged("rows") == Counter({(2.0, 0.1): 20})
        assert ledger.budgets().accounts[ONE].rest == Counter({(2.0, 0.1): 10, (8.0, 1.0): 3})
    assert ledger.open_accounts() == (ONE,)


def test_two_runs_add_up_and_the_second_is_told_what_is_left(tmp_path: Path) -> None:
    ledger, whole = FileLedger(tmp_path), renyi_epsilon(PLAN, 1e-5)
    limit = Limit("rows", 1.2 * whole, 1e-5)
    reserved(ledger, ONE, limit)
    with pytest.raises(BudgetExceeded) as refused:
        reserved(ledger, TWO, limit)
    said = refused.value
    assert said.context["left"] == pytest.approx(0.2 * whole) and said.context["asks"] == pytest.approx(whole)
    assert f"{0.2 * whole - 0.0005:.3f} is left" in said.what and said.todo and said.context["population"] == "rows"
    assert [each.kind for each in entries(tmp_path)] == ["reserved"]
    charged(ledger, ONE, "a", limit)
    ledger.release(ONE)
    ledger.release(ONE)
    assert ledger.open_accounts() == () and spent(ledger, limit) == renyi_epsilon([TRAIN], 1e-5)
    reserved(ledger, TWO, limit, (TRAIN, SCORE))
    assert [each.kind for each in entries(tmp_path)] == ["reserved", "charged", "released", "reserved"]


def test_populations_do_not_mix(tmp_path: Path) -> None:
    """Another name is another budget, as the owner says by it that the people are others."""
    ledger = FileLedger(tmp_path)
    tight = renyi_epsilon(PLAN, 1e-5)
    reserved(ledger, ONE, Limit("a", tight, 1e-5))
    reserved(ledger, TWO, Limit("b", tight, 1e-5))
    with pytest.raises(BudgetExceeded):
        reserved(ledger, "three", Limit("a", tight, 1e-5))


def test_a_lower_limit_holds_for_what_was_reserved_under_another(tmp_path: Path) -> None:
    ledger, one = FileLedger(tmp_path), renyi_epsilon([TRAIN], 1e-5)
    reserved(ledger, ONE)
    charged(ledger, ONE, "a")
    lower = Limit("rows", 1.01 * one, 1e-5)
    with pytest.raises(BudgetExceeded, match="is left"):
        charged(ledger, ONE, "b", lower)
    charged(ledger, ONE, "b")


def test_what_was_not_reserved_must_fit(tmp_path: Path) -> None:
    """A step after its run was released, or of another cost than its plan: as far as there is room."""
    ledger, two = FileLedger(tmp_path), renyi_epsilon([Charge(2.0, 0.1, 20)], 1e-5)
    limit = Limit("rows", two, 1e-5)
    charged(ledger, ONE, "a", limit)
    charged(ledger, ONE, "b", limit)
    with pytest.raises(BudgetExceeded):
        charged(ledger, ONE, "c", limit)
    with pytest.raises(BudgetExceeded):
        charged(ledger, ONE, "c", limit, (Charge(0.01, 1.0, 1),))
    assert spent(ledger, limit) <= limit.epsilon


def test_two_runs_race_for_the_last_epsilon(tmp_path: Path) -> None:
    """Of many threads, over two open ledgers as an agent and a command have them, one gets it."""
    limit, refused = Limit("rows", 1.2 * renyi_epsilon(PLAN, 1e-5), 1e-5), list[BudgetExceeded]()
    ledgers = FileLedger(tmp_path), FileLedger(tmp_path)
    start = threading.Barrier(8)

    def ask(number: int) -> None:
        start.wait()
        try:
            reserved(ledgers[number % 2], f"run{number}", limit)
        except BudgetExceeded as error:
            refused.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7 and [each.kind for each in entries(tmp_path)] == ["reserved"]


def test_a_ledger_that_lacks_what_was_reported_spends_nothing(tmp_path: Path) -> None:
    """A restored backup: nothing until the newer home is back, or the owner goes on and says what was spent."""
    ledger = FileLedger(tmp_path)
    reserved(ledger, ONE)
    remember(tmp_path, Tip(9, "f" * 64), REPORTED)
    for ask in (lambda: reserved(ledger, TWO), lambda: charged(ledger, ONE, "a")):
        with pytest.raises(BudgetExceeded, match="lacks entries that the coordinator was told of") as refused:
            ask()
        assert "restore the newest home" in refused.value.todo
    accept(tmp_path, "owner")
    (tmp_path / REPORTED).unlink()
    ledger = FileLedger(tmp_path)
    with pytest.raises(BudgetExceeded, match="nobody knows what private runs have spent") as refused:
        charged(ledger, ONE, "a")
    assert "tideline site spent" in refused.value.todo
    ledger.record("budget_stated", population="rows", epsilon=3.9, delta=1e-6)
    with pytest.raises(BudgetExceeded, match="is left"):
        charged(ledger, ONE, "a")
    charged(ledger, ONE, "a", Limit("rows", 9.0, 1e-5))
    with pytest.raises(BudgetExceeded, match="0 is left"):
        charged(ledger, ONE, "b", Limit("rows", 9.0, 1e-6))


def test_entries_that_cannot_be_read_may_have_spent(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    ledger.record("charged", run=ONE, population="rows", place="p", charges="many")
    with pytest.raises(BudgetExceeded, match="nobody knows"):
        reserved(ledger, TWO)


def test_a_summary_of_an_older_version_is_read_anew(tmp_path: Path) -> None:
    """It knows no budgets, though the entries may tell of some: a version between had written them."""
    ledger = FileLedger(tmp_path)
    reserved(ledger, ONE)
    charged(ledger, ONE, "a")
    FileLedger(tmp_path)
    summary = json.loads((tmp_path / KNOWN).read_text())
    assert summary.pop("budgets")["spent"] == {"rows": [[2.0, 0.1, 10]]}
    (tmp_path / KNOWN).write_text(json.dumps(summary))
    assert FileLedger(tmp_path).budgets().charged("rows") == Counter({(2.0, 0.1): 10})


def test_what_an_owner_sees(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    reserved(ledger, ONE)
    charged(ledger, ONE, "a")
    found = standing(ledger.budgets(), "rows", LIMIT.epsilon, LIMIT.delta)
    assert found.spent == renyi_epsilon([TRAIN], 1e-5) and found.spent + found.reserved == renyi_epsilon(PLAN, 1e-5)
    assert found.left == pytest.approx(LIMIT.epsilon - renyi_epsilon(PLAN, 1e-5)) and not found.lost
    (run,) = found.runs
    assert run.run == ONE and run.spent == found.spent
    close = standing(ledger.budgets(), "rows", None, LIMIT.delta, by_distributions)
    assert close.left is None and close.spent < found.spent


Action = tuple[str, int, int]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["join", "train", "score", "release", "restart", "cut"]), st.integers(0, 2), st.integers(0, 3)),
    max_size=40,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, factor=st.floats(0.3, 2.5))
def test_whatever_happens_answers_never_cost_more_than_was_charged(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Action], factor: float
) -> None:
    """Repeated orders, new starts and half lines: each answered step was charged, and all of it stays within the limit."""
    home = tmp_path_factory.mktemp("home")
    limit = Limit("rows", factor * renyi_epsilon(PLAN, 1e-5), 1e-5)
    ledger, answered = FileLedger(home), dict[tuple[int, str], Charge]()
    for what, run, place in actions:
        try:
            if what == "join":
                reserved(ledger, str(run), limit)
            elif what in ("train", "score"):
                costs = TRAIN if what == "train" else SCORE
                charged(ledger, str(run), f"{what}{place}", limit, (costs,))
                answered[run, f"{what}{place}"] = costs
            elif what == "release":
                ledger.release(RunId(str(run)))
            else:
                if what == "cut":  # what a crash leaves of a line
                    with (home / FILE).open("ab") as file:
                        file.write(b'{"seq":')
                ledger = FileLedger(home)
        except BudgetExceeded as error:
            assert error.context["left"] < error.context["asks"]  # type: ignore[operator]
        found = ledger.budgets()
        charges = charges_of(found.charged("rows"))
        assert renyi_epsilon(charges, 1e-5) <= limit.epsilon
        for kind in (TRAIN, SCORE):
            times = sum(each == kind for each in answered.values()) * kind.times
            assert times <= found.charged("rows")[kind.noise, kind.rate]
        assert budgets_in(json.loads(json.dumps(plain_budgets(found)))) == found
    assert FileLedger(home).budgets() == ledger.budgets()


POLICY = "[privacy]\nepsilon = 4.0\ndelta = 1e-5\n"


@pytest.mark.parametrize(
    ("lines", "path", "said"),
    [
        ("epsilon = 0", "privacy.epsilon", "more than 0, and finite"),
        ("epsilon = -1.0", "privacy.epsilon", "more than 0"),
        ("epsilon = inf", "privacy.epsilon", "finite"),
        ("epsilon = nan", "privacy.epsilon", "epsilon"),
        ("epsilon = true", "privacy.epsilon", "epsilon"),
        ("epsilon = 1.0\ndelta = 0.0", "privacy.delta", "more than 0"),
        ("epsilon = 1.0\ndelta = 1.0", "privacy.delta", "less than 1"),
        ("epsilon = 1.0\ndelta = 0.01\nrows = 200", "privacy.delta", "less than 1 / rows, 0.005"),
        ("epsilon = 1.0\nunit = 'column patient'", "privacy.unit", "cannot name a unit"),
        ("epsilon = 1.0\nunit = ''", "privacy.unit", "cannot name a unit"),
        ("epsilon = -inf", "privacy.epsilon", "finite"),
        ("epsilon = 1.0\ndelta = -1e-5", "privacy.delta", "more than 0"),
        ("epsilon = 1.0\nrows = 1", "privacy.rows", "at least 2"),
        ("epsilon = 1.0\npopulation = ''", "privacy.population", "cannot name a population"),
        ("epsilon = 1.0\npopulation = 'a b'", "privacy.population", "cannot name a population"),
        ("epsilom = 1.0", "privacy.epsilom", "epsilon"),
        ("require = 'all'", "privacy.require", "require"),
    ],
)
def test_lines_that_protect_nothing(lines: str, path: str, said: str) -> None:
    """With their place, and what to do."""
    with pytest.raises(ConfigRefused, match=r"policy\.toml") as refused:
        policy_in(Path("policy.toml"), f"[privacy]\n{lines}\n")
    assert refused.value.context["path"] == path and refused.value.todo and said in str(refused.value)


def test_a_policy_without_a_budget_is_the_one_that_it_was() -> None:
    """Its digest, which stands in ledgers, is that of version 0.2.0; with a budget it is another."""
    assert policy_in(Path("p"), "").rules.privacy.limit is None
    assert policy_digest(SitePolicy()) == "b260779dd03ecb09a52689ed57522bf44c3f079d7f8bde5a95232265d9d81a60"
    assert policy_digest(SitePolicy()) != policy_digest(policy_in(Path("p"), POLICY))
    assert policy_in(Path("p"), POLICY).rules.privacy.limit == LIMIT


def test_a_project_has_a_limit_of_its_own() -> None:
    """Over the same rows unless it names others."""
    policy = policy_in(Path("p"), f"{POLICY}[projects.cardio.privacy]\nepsilon = 1.0\n")
    assert policy.of("cardio").rules.privacy.limit == Limit("rows", 1.0, 1e-5)
    assert policy.of("other").rules.privacy.limit == LIMIT


def test_an_owner_holds_runs_to_their_projects_limit(tmp_path: Path) -> None:
    """Over the same population all is charged together; another population begins at nothing."""
    from dataclasses import replace

    from tests.site.test_admission import ORDER, asking
    from tideline.core.asked.private import Price, Privacy
    from tideline_agent.home.budget.owning import owner_of

    one = renyi_epsilon(PLAN, 1e-5)
    sections = (
        f"[projects.a.privacy]\nepsilon = {1.1 * one}\n[projects.b.privacy]\nepsilon = {1.1 * one}\npopulation = 'others'\n"
    )
    policy = policy_in(Path("p"), f"[privacy]\nepsilon = 50.0\n{sections}")
    ledger = FileLedger(tmp_path)
    owner = owner_of(policy, ledger, (), lambda: ())
    private = Privacy(rows=40, noise=2.0)

    def joins(run: str, project: str) -> None:
        owner.spends(replace(ORDER, run=RunId(run)), asking(project=project, privacy=private), Price((), PLAN), "")

    joins("one", "elsewhere")
    with pytest.raises(BudgetExceeded):
        joins("two", "a")
    joins("three", "b")
    joins("four", "elsewhere")
    assert [each.details["population"] for each in entries(tmp_path)] == ["rows", "others", "rows"]
