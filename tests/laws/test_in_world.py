"""The laws that tell of rows and predictions, where the run normalises rows or corrects predictions: no method knows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.laws import laws, results
from tests.laws.case import ON_IMAGES, Case
from tideline.algorithms import METHODS
from tideline.core.algorithm import CLASS_COUNTS
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.around.class_shares import SHARES

AT_NIGHT = pytest.mark.nightly(job="methods")
KINDS = ("site", "site_whiten", "shared")
# Federated averaging in a world where both exchanges come before all else; each of them alone at night.
SHARED, CORRECTED = Case("fedavg", METHODS, normalise="shared"), Case("fedavg", METHODS, prior="em")
BOTH = Case("fedavg", METHODS, normalise="shared", prior="em")
averaging = pytest.mark.parametrize(
    "case", [BOTH, *(pytest.param(case, marks=AT_NIGHT) for case in (SHARED, CORRECTED))], ids=["both", "shared", "corrected"]
)


def possible(case: Case) -> bool:
    """Return True unless images would be whitened, or statistics pooled of fewer than two labelled sites."""
    labelled = sum(role != "target" for role in case.roster.values())
    return not (case.normalise == "site_whiten" and case.name in ON_IMAGES) and (case.normalise != "shared" or labelled > 1)


def tier_params(cases: Iterable[Case], quick: Callable[[Case], bool]) -> list[object]:
    """Return cases as parameters, those that are not quick marked for the night."""
    return [
        pytest.param(case, id=f"{case.name}-{case.normalise}-{case.prior}", marks=() if quick(case) else AT_NIGHT)
        for case in cases
    ]


NORMALISED = [case for name, _ in METHODS for kind in KINDS if possible(case := Case(name, METHODS, normalise=kind))]
PRIOR = [Case(name, METHODS, prior="em") for name, _ in METHODS]
# A run's model in all kinds of worlds; one in more than a network, and one that the coordinator knows, in one kind each.
QUICK = {*(("fedavg", kind) for kind in KINDS), ("feddadil", "site"), ("hfedf", "shared")}
of_one_method = pytest.mark.parametrize(
    "case", tier_params((case for case in NORMALISED if case.name == "feddadil"), lambda case: case.normalise == "shared")
)


@pytest.mark.parametrize(
    "case", [*tier_params(NORMALISED, lambda case: (case.name, case.normalise) in QUICK), *tier_params(PRIOR, lambda _: True)]
)
def test_models_are_what_they_say(case: Case) -> None:
    """Law 8: models normalise and correct by themselves, or by the rows that they are given."""
    results.models_are_what_it_says(case)


@pytest.mark.parametrize("case", PRIOR, ids=str)
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


@pytest.mark.parametrize(
    ("case", "rounds"),
    [
        (BOTH, 1),
        *(
            pytest.param(case, 2, marks=AT_NIGHT)
            for case in (SHARED, CORRECTED, Case("local", METHODS, normalise="site"), Case("shot", METHODS, prior="em"))
        ),
    ],
)
def test_restarts_change_nothing(case: Case, rounds: int) -> None:
    """Law 4: what rows are normalised by, and predictions corrected by, is there again after a stop."""
    laws.restarts_change_nothing(case, config={"rounds": rounds})


@of_one_method
def test_where_rows_lie_does_not_matter(case: Case) -> None:
    """Law 5: rows that are decoded when they are asked for are normalised to the same bytes."""
    laws.where_rows_lie_does_not_matter(case)


@of_one_method
def test_what_is_not_declared_stays(case: Case) -> None:
    """Law 6: of a site's own statistics nothing leaves; of shared ones what the contract says."""
    laws.site_data_stay(case)


@averaging
def test_every_clause_can_be_forbidden(case: Case) -> None:
    """Law 7: also the moments of rows, and the counts of classes."""
    laws.every_clause_can_be_forbidden(case)


@averaging
def test_arrival_does_not_matter(case: Case) -> None:
    """Law 3: also where states are kept seldom, and the first exchange is computed again."""
    laws.arrival_does_not_matter(case)


@averaging
def test_a_lost_site(case: Case) -> None:
    """Law 7: a quorum goes on with those that told their part; without one the run stalls, and goes on."""
    laws.a_quorum_goes_on(case)
    laws.no_quorum_stalls(case)


def test_peers_see_only_what_is_pooled() -> None:
    """Law 6: no site's own moments reach another one."""
    laws.peers_see_what_is_declared(SHARED)


def test_nothing_of_a_targets_shares_leaves() -> None:
    """Law 6: neither to the coordinator nor to peers."""
    laws.site_data_stay(case := Case("shot", METHODS, prior="em"))
    laws.peers_see_what_is_declared(case)


def test_both_exchanges() -> None:
    """Where rows are normalised by shared statistics too, one comes after the other."""
    results.models_are_what_it_says(case := Case("shot", METHODS, normalise="shared", prior="em"))
    laws.archive_keeps_all(case)
