"""The laws for federated averaging with each robust fold, which needs more teachers than the methods' own cases have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.laws import laws
from tests.laws.case import Case
from tests.laws.stage import registered
from tests.laws.test_laws import AT_NIGHT, Law, hosts
from tests.synthetic import NAMES
from tideline.algorithms.averaging import fedavg
from tideline.algorithms.averaging.folds import RULES
from tideline.engine.model.runs import Status


@dataclass(frozen=True)
class Crowd(Case):
    """Five teachers."""

    @property
    def roster(self) -> dict[str, str]:
        return dict.fromkeys(NAMES, "source")


def crowd(rule: str) -> Crowd:
    """Federated averaging with a rule in its preset."""
    given = {"robust": rule} | ({"byzantine": 1} if rule != "clip" else {})
    tiny = {**fedavg.presets["tiny"], "rounds": 2, **given}
    return Crowd("fedavg", registered(replace(fedavg, presets={**fedavg.presets, "tiny": tiny})))


CASES = {rule: crowd(rule) for rule in RULES[1:]}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
# In the quick tier a rule that shortens and one that chooses stand for what sites send, which no rule changes.
few = pytest.mark.parametrize(
    "case", [pytest.param(case, id=rule, marks=() if rule in ("clip", "krum") else AT_NIGHT) for rule, case in CASES.items()]
)


@every
def test_the_folds_are_pure(case: Crowd) -> None:
    """Law 2."""
    laws.functions_are_pure(case)


@few
@hosts
def test_arrival_and_the_host_process_do_not_matter(case: Crowd, host: laws.Host) -> None:
    """Law 3."""
    laws.arrival_does_not_matter(case, [host])


@few
@pytest.mark.parametrize("law", [laws.archive_keeps_all, laws.site_data_stay], ids=lambda law: law.__name__)
def test_what_is_sent_keeps_the_laws(case: Crowd, law: Law) -> None:
    """Laws 1 and 6."""
    law(case)


# Federated averaging itself stands for them in the quick tier: no rule keeps anything between rounds.
@AT_NIGHT
@every
def test_restarts_change_nothing(case: Crowd) -> None:
    """Law 4."""
    laws.restarts_change_nothing(case)


@few
def test_a_lost_site_stalls_the_run_or_is_survived(case: Crowd) -> None:
    """Law 7. Krum for one wrong site needs all five, whatever the run's quorum is; the others go on with four."""
    laws.no_quorum_stalls(case)
    stage = case.stage()
    run = stage.start(case.experiment(waiting={"min_replies": 1}))
    stage.play(run, lambda orders: [o for o in orders if stage.journal.order(o.id).client != "dora" or o.cursor < 0])  # type: ignore[union-attr]
    row = stage.row(run)
    if case.config.robust in ("krum", "multi_krum"):
        assert row.status is Status.STALLED
        assert f"4 of 5 sites answered; {case.config.robust} with byzantine: 1 needs 5. dora: no answer" in row.cause
    else:
        assert row.status is Status.COMPLETED, row.cause
