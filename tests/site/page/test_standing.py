"""Decisions that stand for more than one run, and the pause: entries of the ledger, after a new start as before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.site.test_admission import BRIEF, ME, ORDER, asking, rules
from tideline.core.errors import ConfigRefused, NotFound, PolicyRefused, Refused
from tideline.engine.model.orders import Hold
from tideline.engine.site.admission import intent_digest
from tideline.engine.site.owner import Owner
from tideline.engine.site.rules import Approval
from tideline_agent.home.ledger import STANDING, FileLedger, entries
from tideline_agent.home.ledger_head import KNOWN
from tideline_agent.home.words import end_decision, never, pause


def owner(home: Path, asks: Approval = Approval.ALWAYS) -> Owner:
    return Owner(rules=rules(approve=asks), ledger=FileLedger(home))


def decided(home: Path) -> None:
    FileLedger(home).record(STANDING, answer="always", method="fedavg", intent=intent_digest(BRIEF), by="alice", owner="me")


@pytest.mark.parametrize("summary", [True, False])
def test_always_is_for_exactly_the_same(tmp_path: Path, summary: bool) -> None:
    """Other settings, another user and another method are asked about; with the summary of the last start, and without."""
    decided(tmp_path)
    FileLedger(tmp_path)
    if not summary:
        (tmp_path / KNOWN).unlink()
    asked = owner(tmp_path)
    assert asked.holds(ORDER, BRIEF) is None
    for other in (asking(by="bob"), asking(method="fedprox"), replace(BRIEF, config={**BRIEF.config, "rounds": 6})):
        assert asked.holds(ORDER, other) is Hold.APPROVAL
    asked.check(ME, ORDER, BRIEF)


def test_always_outweighs_no_rule_of_the_policy(tmp_path: Path) -> None:
    """What the file forbids stays forbidden."""
    decided(tmp_path)
    with pytest.raises(PolicyRefused, match="the method fedavg"):
        Owner(rules=rules(methods=("fada",)), ledger=FileLedger(tmp_path)).check(ME, ORDER, BRIEF)


@pytest.mark.parametrize("asks", list(Approval))
def test_never_outweighs_all(tmp_path: Path, asks: Approval) -> None:
    """Also an approval of the run itself, and `always`; it does not wait. Taken back, it is as before."""
    decided(tmp_path)
    FileLedger(tmp_path).record("approved", run=ORDER.run)
    never(tmp_path, "fedavg")
    asked = owner(tmp_path, asks)
    assert asked.holds(ORDER, BRIEF) is None
    with pytest.raises(PolicyRefused, match="no run of the method fedavg"):
        asked.check(ME, ORDER, BRIEF)
    asked.check(ME, ORDER, asking(method="fedprox", by="x")) if asks is Approval.NEVER else None
    number = FileLedger(tmp_path).standing()[-1].number
    assert end_decision(tmp_path, number).method == "fedavg"
    asked.check(ME, ORDER, BRIEF)
    with pytest.raises(NotFound):
        end_decision(tmp_path, number)


def test_a_method_that_cannot_be_one(tmp_path: Path) -> None:
    """Names of a terminal's or a page's language are none."""
    FileLedger(tmp_path).record("started")
    for name in ("", "<script>", "a\x1b[2J", "x" * 81):
        with pytest.raises(ConfigRefused):
            never(tmp_path, name)


def test_a_pause_outlasts_the_agent(tmp_path: Path) -> None:
    """It is an entry; twice is refused; what would be refused is refused meanwhile, too."""
    asked = owner(tmp_path, Approval.NEVER)
    asked.ledger.record("started")
    pause(tmp_path, on=True)
    assert asked.holds(ORDER, BRIEF) is Hold.PAUSED and owner(tmp_path, Approval.NEVER).holds(ORDER, BRIEF) is Hold.PAUSED
    with pytest.raises(Refused, match="paused already"):
        pause(tmp_path, on=True)
    pause(tmp_path, on=False)
    assert asked.holds(ORDER, BRIEF) is None
    assert [each.kind for each in entries(tmp_path)] == ["started", "paused", "resumed"]
