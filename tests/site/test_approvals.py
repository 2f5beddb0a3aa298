"""An approval is of what the owner was shown: nothing else works under the run's name, and what came later waits by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.site.test_admission import BRIEF, ME, ORDER, asking, rules
from tideline.core.asked.world import plain_world
from tideline.core.errors import PolicyRefused, Refused
from tideline.core.privacy import to_json
from tideline.core.run import OrderId, RunId
from tideline.core.settings import plain
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Hold, Order
from tideline.engine.site.admission import intent_digest
from tideline.engine.site.owner import Owner
from tideline.engine.site.rules import Approval
from tideline_agent.home import words
from tideline_agent.home.held import HeldOrders
from tideline_agent.home.ledger import FileLedger, entries
from tideline_agent.home.ledger_head import KNOWN

OTHER = replace(BRIEF, config={**BRIEF.config, "rounds": 600})
CHILD = asking(method="fedprox", parent=ORDER.run)


def order_of(brief: Brief, run: str = ORDER.run) -> Order:
    said = {
        "method": brief.method,
        "world": plain_world(brief.world),
        "threads": 1,
        "keeps": False,
        "config": plain(brief.config),
        "contract": to_json(brief.contract),
        "role": brief.role.value,
        "version": "",
        "intent": brief.intent.plain(),
    }
    return replace(ORDER, id=OrderId(f"{run}-{intent_digest(brief)[:8]}"), run=RunId(run), brief=said)


def waits(home: Path, *asked: tuple[str, Brief]) -> None:
    """Runs are held at a home."""
    FileLedger(home)
    held = HeldOrders(lambda order: Hold.APPROVAL, home)
    for run, brief in asked:
        assert held.holds(order_of(brief, run))


def owner(home: Path, asks: Approval = Approval.ALWAYS) -> Owner:
    return Owner(rules=rules(approve=asks), ledger=FileLedger(home))


@pytest.mark.parametrize("say", [words.approve, words.approve_once, words.approve_always])
def test_a_run_that_asks_for_something_else_after_its_approval(tmp_path: Path, say: Any) -> None:
    """Other settings, another method and another user under the same id wait, and are refused if they come as orders."""
    waits(tmp_path, (ORDER.run, BRIEF))
    say(tmp_path, words.question(tmp_path, ORDER.run))
    asked = owner(tmp_path)
    assert asked.holds(ORDER, BRIEF) is None
    asked.check(ME, ORDER, BRIEF)
    for other in (OTHER, asking(method="fedprox"), asking(by="mallory")):
        assert asked.holds(ORDER, other) is Hold.APPROVAL
        with pytest.raises(PolicyRefused, match="has not approved the run"):
            asked.check(ME, ORDER, other)
    assert owner(tmp_path, Approval.NEVER).holds(ORDER, OTHER) is None  # who is never asked is not asked here either


def test_what_is_new_says_so(tmp_path: Path) -> None:
    """The owner reads that the run was approved for something else, and may approve that, too; no word for it: it waits."""
    waits(tmp_path, (ORDER.run, BRIEF))
    words.approve(tmp_path, words.question(tmp_path, ORDER.run))
    waits(tmp_path, (ORDER.run, OTHER))
    (found,) = words.waiting(tmp_path)
    assert next(found.words(FileLedger(tmp_path))) == words.CHANGED
    words.approve(tmp_path, words.question(tmp_path, ORDER.run))
    assert owner(tmp_path).holds(ORDER, OTHER) is None


def test_a_run_that_is_none_of_those_beside_it(tmp_path: Path) -> None:
    """One that says that it belongs to an approved run works only as it was shown with it."""
    waits(tmp_path, (ORDER.run, BRIEF), ("ref", CHILD))
    asked = words.question(tmp_path, ORDER.run)
    assert asked.beside == words.covered(tmp_path, ORDER.run) != ()
    words.approve(tmp_path, asked)
    reads, child = owner(tmp_path), order_of(CHILD, "ref")
    assert reads.holds(child, CHILD) is None
    late = replace(CHILD, config={"rounds": 600})
    assert reads.holds(replace(child, run=RunId("late")), late) is Hold.APPROVAL
    assert reads.holds(child, late) is Hold.APPROVAL


def test_a_no_is_a_no_to_all(tmp_path: Path) -> None:
    """To the run, whatever it asks for, and to what belongs to it."""
    waits(tmp_path, (ORDER.run, BRIEF))
    words.decline(tmp_path, words.question(tmp_path, ORDER.run))
    for other in (BRIEF, OTHER, asking(parent=ORDER.run)):
        with pytest.raises(PolicyRefused, match="has declined the run"):
            owner(tmp_path).check(ME, ORDER, other)


def test_what_came_after_the_page_was_shown(tmp_path: Path) -> None:
    """A run that has changed is to be read again; one that came beside it is left out."""
    waits(tmp_path, (ORDER.run, BRIEF))
    shown = words.question(tmp_path, ORDER.run).intents
    waits(tmp_path, (ORDER.run, BRIEF), ("ref", CHILD))
    assert words.question(tmp_path, ORDER.run, shown).beside == ()
    assert words.question(tmp_path, ORDER.run, [*shown, intent_digest(CHILD)]).beside == words.covered(tmp_path, ORDER.run)
    waits(tmp_path, (ORDER.run, OTHER))
    with pytest.raises(Refused, match="has changed since it was shown"):
        words.question(tmp_path, ORDER.run, shown)
    assert [each.kind for each in entries(tmp_path)] == []


def test_declined_work_is_asked_about_again(tmp_path: Path) -> None:
    """A run that asks for what was approved once and declined since then waits for the owner's word."""
    waits(tmp_path, (ORDER.run, BRIEF))
    words.approve(tmp_path, words.question(tmp_path, ORDER.run))
    again = replace(ORDER, run=RunId("again"))
    assert owner(tmp_path, Approval.NEW).holds(again, BRIEF) is None
    words.decline(tmp_path, words.question(tmp_path, ORDER.run))
    assert owner(tmp_path, Approval.NEW).holds(again, BRIEF) is Hold.APPROVAL


@pytest.mark.parametrize("summary", [True, False])
def test_it_holds_after_a_new_start(tmp_path: Path, summary: bool) -> None:
    """With the summary of the last start, and without; an approval of an older version holds for the run, as it did then."""
    waits(tmp_path, (ORDER.run, BRIEF))
    words.approve(tmp_path, words.question(tmp_path, ORDER.run))
    FileLedger(tmp_path).record("approved", run="older", owner="me")
    FileLedger(tmp_path)
    if not summary:
        (tmp_path / KNOWN).unlink()
    again = owner(tmp_path)
    assert (again.holds(ORDER, BRIEF), again.holds(ORDER, OTHER)) == (None, Hold.APPROVAL)
    assert again.holds(replace(ORDER, run=RunId("older")), OTHER) is None


@pytest.mark.parametrize("covers", ["all", 3, None, {}])
def test_an_approval_whose_extent_cannot_be_read(tmp_path: Path, covers: Any) -> None:
    """It covers nothing."""
    FileLedger(tmp_path).record("approved", run=ORDER.run, owner="me", covers=covers)
    assert owner(tmp_path).holds(ORDER, BRIEF) is Hold.APPROVAL
