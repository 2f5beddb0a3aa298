"""The laws that tell of rows, in worlds whose rows are normalised: no method knows of it."""

from __future__ import annotations

import pytest

from tests.laws import laws, results
from tests.laws.case import ON_IMAGES, Case
from tideline.algorithms import METHODS

KINDS = ("site", "site_whiten", "shared")
# A run's model, a site's own from its memory, one in more than a network, one that the coordinator knows.
QUICK = ("fedavg", "fedprox_pl", "local", "feddadil", "hfedf")


def possible(case: Case) -> bool:
    """Whitening is for vectors, and what is pooled is of two labelled sites or more."""
    labelled = sum(role != "target" for role in case.roster.values())
    return not (case.normalise == "site_whiten" and case.name in ON_IMAGES) and (case.normalise != "shared" or labelled > 1)


CASES = [case for name, _ in METHODS for kind in KINDS if possible(case := Case(name, METHODS, normalise=kind))]
MARKED = [case if case.name in QUICK else pytest.param(case, marks=pytest.mark.nightly(job="methods")) for case in CASES]
every = pytest.mark.parametrize("case", MARKED, ids=lambda case: f"{case.name}-{case.normalise}")
one_of_each = pytest.mark.parametrize(
    "case", [case for case in CASES if case.name == "feddadil"], ids=lambda each: each.normalise
)


@every
def test_models_are_what_they_say(case: Case) -> None:
    """Law 8: models normalise by themselves, or by the rows that they are given."""
    results.models_are_what_it_says(case)


@pytest.mark.parametrize("case", [Case("fedavg", METHODS, normalise="shared"), Case("local", METHODS, normalise="site")], ids=str)
def test_restarts_change_nothing(case: Case) -> None:
    """Law 4: what rows are normalised by is there again after a stop."""
    laws.restarts_change_nothing(case)


@one_of_each
def test_where_rows_lie_does_not_matter(case: Case) -> None:
    """Law 5: rows that are decoded when they are asked for are normalised to the same bytes."""
    laws.where_rows_lie_does_not_matter(case)


@one_of_each
def test_what_is_not_declared_stays(case: Case) -> None:
    """Law 6: of a site's own statistics nothing leaves; of shared ones what the contract says."""
    laws.site_data_stay(case)


def test_every_clause_can_be_forbidden() -> None:
    """Law 7: also the moments of rows."""
    laws.every_clause_can_be_forbidden(Case("fedavg", METHODS, normalise="shared"))


def test_arrival_does_not_matter() -> None:
    """Law 3: also where states are kept seldom, and the first exchange is computed again."""
    laws.arrival_does_not_matter(Case("fedavg", METHODS, normalise="shared"))


def test_a_lost_site() -> None:
    """Law 7: a quorum goes on with those that told their moments; without one the run stalls, and goes on."""
    laws.a_quorum_goes_on(case := Case("fedavg", METHODS, normalise="shared"))
    laws.no_quorum_stalls(case)


def test_peers_see_only_what_is_pooled() -> None:
    """Law 6: no site's own moments reach another one."""
    laws.peers_see_what_is_declared(Case("fedavg", METHODS, normalise="shared"))
