"""The laws that tell of predictions, where targets' are corrected for their own shares of the classes: no method knows of it."""

from __future__ import annotations

import pytest

from tests.laws import laws, results
from tests.laws.case import Case
from tideline.algorithms import METHODS
from tideline.core.algorithm import CLASS_COUNTS
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.around.class_shares import SHARES

AT_NIGHT = pytest.mark.nightly(job="methods")

# A run's model, a site's own from its memory, one in more than a network, one that the coordinator knows, several models at once.
QUICK = ("fedavg", "self_training", "fedprox_pl", "stlf", "feddadil", "fedamp_pl", "hfedf")
CASES = [Case(name, METHODS, prior="em") for name, _ in METHODS]
every = pytest.mark.parametrize(
    "case",
    [case if case.name in QUICK else pytest.param(case, marks=AT_NIGHT) for case in CASES],
    ids=str,
)


@every
def test_models_are_what_they_say(case: Case) -> None:
    """Law 8: a target's own model corrects by itself, and a run's model does for the rows that it is given."""
    results.models_are_what_it_says(case)


@every
def test_targets_learn_the_shares_and_count_nothing(case: Case) -> None:
    """Sources count once, before all else; who is told what comes of it are targets that are scored."""
    stage, run = case.played()
    orders = [order for order in stage.journal.orders(run) if order.cursor >= 0]
    assert {o.client for o in orders if o.cursor == 0} == {"anna", "bert"}
    plan = case.plan
    assert plan[0].name == CLASS_COUNTS
    told = {o.client for o in orders if SHARES.found(laws.order_of(case, stage, o)) is not None}
    scored = {o.client for o in orders if (s := plan[o.cursor].step) is not None and s.view is View.HELD_OUT}
    assert told == {name for name in scored if case.roster[name] == Role.TARGET}


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ("fedavg", "shot")], ids=str)
def test_restarts_change_nothing(case: Case) -> None:
    """Law 4: shares and corrections are there again after a stop."""
    laws.restarts_change_nothing(case)


def test_arrival_does_not_matter() -> None:
    """Law 3: also where states are kept seldom, and the first exchange is computed again."""
    laws.arrival_does_not_matter(Case("fedavg", METHODS, prior="em"))


def test_both_exchanges() -> None:
    """Where rows are normalised by shared statistics too, one comes after the other."""
    results.models_are_what_it_says(case := Case("shot", METHODS, normalise="shared", prior="em"))
    laws.archive_keeps_all(case)


def test_what_is_not_declared_stays() -> None:
    """Law 6: nothing of a target's shares leaves; every clause can be forbidden."""
    laws.site_data_stay(case := Case("shot", METHODS, prior="em"))
    laws.peers_see_what_is_declared(case)
    laws.every_clause_can_be_forbidden(Case("fedavg", METHODS, prior="em"))


def test_a_lost_site() -> None:
    """Law 7: a quorum goes on with those that counted; without one the run stalls, and goes on."""
    laws.a_quorum_goes_on(case := Case("fedavg", METHODS, prior="em"))
    laws.no_quorum_stalls(case)
