"""What a site spent of a day stands in its ledger: neither a new start nor another process beside the agent forgets it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.site.test_admission import BRIEF, ORDER
from tideline.core.run import Digest, RunId
from tideline.engine.model.orders import Hold, Order
from tideline.engine.site.owner import Owner
from tideline.engine.site.rules import Quotas, SiteRules
from tideline_agent.home.ledger import FileLedger, entries
from tideline_agent.home.ledger_head import KNOWN

NOON = datetime(2026, 5, 4, 12, 0)
FIRST, SECOND = ORDER, replace(ORDER, run=RunId("another"))
FILES = ((Digest("b3-" + "0" * 64), 600),)


def owner(home: Path, quotas: Quotas, now: datetime = NOON) -> Owner:
    """As an agent that starts now has it."""
    return Owner(rules=SiteRules(quotas=quotas), ledger=FileLedger(home, now.timestamp), now=lambda: now)


def played(asked: Owner, order: Order) -> None:
    """An order that is worked on and answered."""
    asked.begins(order, BRIEF)
    asked.replies(order, BRIEF, FILES)


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("quotas", [Quotas(runs=1), Quotas(replies=1), Quotas(bytes_out="600")])
def test_a_new_start_forgets_nothing_of_the_day(tmp_path: Path, quotas: Quotas, summary: bool) -> None:
    """With the summary of the last start and without; the next day begins anew."""
    asked = owner(tmp_path, quotas)
    assert asked.holds(FIRST, BRIEF) is None
    played(asked, FIRST)
    assert asked.holds(SECOND, BRIEF) is Hold.QUOTA
    for later in (NOON, NOON + timedelta(hours=11)):
        if not summary:
            (tmp_path / KNOWN).unlink()
        assert owner(tmp_path, quotas, later).holds(SECOND, BRIEF) is Hold.QUOTA
    assert owner(tmp_path, quotas, NOON + timedelta(hours=12)).holds(SECOND, BRIEF) is None


@pytest.mark.parametrize("quotas", [Quotas(runs=2), Quotas(replies=2), Quotas(bytes_out="1200")])
def test_two_that_hold_one_ledger_spend_one_quota(tmp_path: Path, quotas: Quotas) -> None:
    """What each spends counts for both."""
    one, other = owner(tmp_path, quotas), owner(tmp_path, quotas)
    played(one, FIRST)
    assert other.holds(SECOND, BRIEF) is None
    played(other, SECOND)
    third = replace(ORDER, run=RunId("third"))
    assert one.holds(third, BRIEF) is other.holds(third, BRIEF) is Hold.QUOTA


def test_a_run_without_a_join_is_a_run(tmp_path: Path) -> None:
    """A coordinator that leaves the join out neither saves a run nor keeps from the ledger who asked for what."""
    asked, quotas = owner(tmp_path, Quotas(runs=1)), Quotas(runs=1)
    played(asked, FIRST)
    joinless = replace(SECOND, cursor=0)
    assert asked.holds(joinless, BRIEF) is Hold.QUOTA
    tomorrow = owner(tmp_path, quotas, NOON + timedelta(days=1))
    assert tomorrow.holds(joinless, BRIEF) is None
    played(tomorrow, joinless)
    played(tomorrow, replace(joinless, cursor=1))
    runs = [each for each in entries(tmp_path) if each.kind == "run"]
    assert [each.run for each in runs] == [FIRST.run, SECOND.run] and runs[-1].details["by"] == "alice"
    assert tomorrow.holds(replace(joinless, cursor=2), BRIEF) is None, "a run that has begun goes on"
    assert tomorrow.holds(replace(ORDER, run=RunId("third"), cursor=0), BRIEF) is Hold.QUOTA
