"""One suite for every method: a new one is in it by being registered."""

from __future__ import annotations

import pytest

from tests.laws import laws, results
from tests.laws.case import BARS, Case, cases
from tests.laws.sealed import stays_sealed
from tideline.algorithms import METHODS
from tideline.core.algorithm import contract
from tideline.core.privacy import TO_PEERS

AT_NIGHT = pytest.mark.nightly(job="methods")

every = pytest.mark.parametrize("case", cases(METHODS), ids=str)
# The last one differs in everything from the one that plays the undisturbed run; the others are in the long suite.
OTHER_HOSTS = [pytest.param(host, marks=AT_NIGHT) for host in laws.HOSTS[:-1]]
hosts = pytest.mark.parametrize(
    "host", [*OTHER_HOSTS, laws.HOSTS[-1]], ids=lambda host: "seed {}, {} threads, pace {}".format(*host)
)
FIRST, *OTHERS = cases(METHODS)
# For what costs some half a minute: one method in each suite, all of them in the long one.
every_slowly = pytest.mark.parametrize("case", [FIRST, *(pytest.param(case, marks=AT_NIGHT) for case in OTHERS)], ids=str)


@every
def test_state_memory_and_messages_survive_the_archive(case: Case) -> None:
    """Law 1: state, memory and every message come back from the archive bit for bit."""
    laws.archive_keeps_all(case)


@every
def test_its_functions_are_pure(case: Case) -> None:
    """Law 2: ask, tell and step called again give equal bytes and leave their arguments unchanged."""
    laws.functions_are_pure(case)


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
def test_a_site_whose_reply_is_gone_is_noticed(case: Case) -> None:
    """Law 4: a vault that worked and lost its reply is MemoryAhead, and the run waits for its owner."""
    laws.lost_reply_is_noticed(case)


@every
def test_where_rows_lie_does_not_matter(case: Case) -> None:
    """Law 5: a site whose rows are decoded when they are asked for gives the bytes of one that holds them in memory."""
    laws.where_rows_lie_does_not_matter(case)


@every
def test_what_is_not_declared_stays(case: Case) -> None:
    """Law 6: canaries in data and memory never appear among the bytes that leave."""
    laws.site_data_stay(case)


@every
def test_peers_see_only_what_is_declared_for_them(case: Case) -> None:
    """Law 6: one site's value reaches another site's order only where its clause says PEERS."""
    laws.peers_see_what_is_declared(case)


@every
def test_what_is_for_peers_alone_stays_sealed(case: Case) -> None:
    """Law 6: no link carries a piece of it that could be read; and a method whose contract has none seals nothing."""
    promised = any(clause.audience == TO_PEERS for clause in contract(case.algorithm, case.config))
    assert bool(stays_sealed(case)) == promised


@every
def test_a_lost_site_is_survived_with_a_quorum(case: Case) -> None:
    """Law 7: with a quorum the round closes at the deadline and the reason is recorded."""
    laws.a_quorum_goes_on(case)


@every
def test_a_lost_site_without_a_quorum_stalls_the_run(case: Case) -> None:
    """Law 7: without a quorum the run stalls with the reason, and resumed it ends as if nothing had been."""
    laws.no_quorum_stalls(case)


@every
def test_one_site_works_or_is_refused(case: Case) -> None:
    """Law 7: one site in all works, or is refused with a sentence."""
    laws.one_site_in_all(case)


@every
def test_every_clause_can_be_forbidden(case: Case) -> None:
    """Law 7: a site refuses when its owner forbids any one clause, and the run says which."""
    laws.every_clause_can_be_forbidden(case)


@every
def test_its_models_are_what_it_says(case: Case) -> None:
    """Law 8: the models that a run ends in predict as its result says."""
    results.models_are_what_it_says(case)


@every
def test_its_last_scoring_tells_all_scores(case: Case) -> None:
    """Law 8: every site that is scored has all scores, with rows and intervals."""
    results.scores_are_told(case)


@every
def test_it_learns(case: Case) -> None:
    """Law 8: it clears its bar on held-out rows."""
    assert case.name in BARS, "add a bar for the method to tests/laws/case.py"
    results.learns(case, BARS[case.name])
