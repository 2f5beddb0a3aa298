"""One suite for every method: a new one is in it by being registered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.laws import laws, results
from tests.laws.case import BARS, Case, cases
from tideline.algorithms import METHODS
from tideline.core.algorithm import contract
from tideline.core.privacy import TO_PEERS

AT_NIGHT = pytest.mark.nightly(job="methods")

Law = Callable[[Case], None]
every = pytest.mark.parametrize("case", cases(METHODS), ids=str)
# The last one differs in everything from the one that plays the undisturbed run; the others are in the long suite.
OTHER_HOSTS = [pytest.param(host, marks=AT_NIGHT) for host in laws.HOSTS[:-1]]
hosts = pytest.mark.parametrize(
    "host", [*OTHER_HOSTS, laws.HOSTS[-1]], ids=lambda host: "seed {}, {} threads, pace {}".format(*host)
)
FIRST, *OTHERS = cases(METHODS)
# For what costs some half a minute: one method in each suite, all of them in the long one.
every_slowly = pytest.mark.parametrize("case", [FIRST, *(pytest.param(case, marks=AT_NIGHT) for case in OTHERS)], ids=str)
LAWS: tuple[Law, ...] = (
    laws.archive_keeps_all,  # 1
    laws.functions_are_pure,  # 2
    laws.lost_reply_is_noticed,  # 4
    laws.where_rows_lie_does_not_matter,  # 5
    *(laws.site_data_stay, laws.peers_see_what_is_declared),  # 6
    *(laws.a_quorum_goes_on, laws.no_quorum_stalls, laws.one_site_in_all, laws.every_clause_can_be_forbidden),  # 7
    *(results.models_are_what_it_says, results.scores_are_told),  # 8
)


@every
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_it_keeps_the_law(case: Case, law: Law) -> None:
    """The law's own docstring says what it asks of a method."""
    law(case)


@every
@hosts
def test_arrival_duplicates_and_the_host_process_do_not_matter(case: Case, host: laws.Host) -> None:
    """Law 3: any arrival, duplicate, global seed, number of threads and pace of checkpoints gives the same ending."""
    laws.arrival_does_not_matter(case, [host])


@every_slowly
def test_restarts_change_nothing(case: Case) -> None:
    """Law 4: a stop at any moment and a restart end where the uninterrupted run ends."""
    laws.restarts_change_nothing(case)


@every_slowly
def test_a_site_restored_from_an_old_copy_is_noticed(case: Case) -> None:
    """Law 4: a vault that lacks its last commit is MemoryLost, and the run waits for its owner."""
    laws.old_memory_is_noticed(case)


@every
def test_what_is_for_peers_alone_stays_sealed(case: Case) -> None:
    """Law 6: no link carries a piece of it that could be read; and a method whose contract has none seals nothing."""
    promised = any(clause.audience == TO_PEERS for clause in contract(case.algorithm, case.config))
    assert bool(laws.stays_sealed(case)) == promised


@every
def test_it_learns(case: Case) -> None:
    """Law 8: it clears its bar on held-out rows."""
    assert case.name in BARS, "add a bar for the method to tests/laws/case.py"
    results.learns(case, BARS[case.name])
