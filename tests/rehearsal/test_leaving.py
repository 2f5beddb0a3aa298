"""Sites that may not rehearse, that leave in the middle, candidates that fail; and runs that are cancelled and resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.rehearsal.stage import SHORT, Opener, experiment, federation, played, shown, statuses
from tideline.core.errors import Refused
from tideline.core.run import ClientId, RunId
from tideline.engine.model.orders import Order
from tideline.engine.simulation.federation import SimSite
from tideline.engine.site.rules import FREE
from tideline.learning.rehearsal.choosing import whole

AWAY = replace(FREE, runs=replace(FREE.runs, rehearse=False))


def test_a_site_that_forbids_it_is_left_out() -> None:
    """It teaches in the others' rehearsals; the verdict says with how many it was made, and why."""
    on = federation(bert=SimSite(Opener(1), rules=AWAY))
    result = played(on, experiment(SHORT, then="run"))
    verdict = result["verdict"]
    assert verdict["rehearsed_at"] == ["anna", "carl"]
    assert "policy forbids rehearsing" in verdict["left_out"]["bert"]
    assert any(note.startswith("Not rehearsed at bert") for note in result["notes"])
    family = statuses(on, result["run"])
    assert family["-s1-0"] == "cancelled" and "stalled" in on.run_service.find(f"{result['run']}-s1-0").cause


def test_a_site_that_fails_while_it_plays_is_left_out() -> None:
    """What its data raise there ends its rehearsals alone."""
    verdict = played(federation(anna=SimSite(Opener(0, broken=True))), experiment(SHORT))["verdict"]
    assert verdict["rehearsed_at"] == ["bert", "carl"] and list(verdict["left_out"]) == ["anna"]


def test_a_site_that_goes_before_it_counts_is_left_out() -> None:
    """It answers all runs of the rehearsal, and never the one that compares them."""
    on = federation()
    run = on.start(experiment(SHORT, waiting={"deadline": 60.0}))

    def without_bert(orders: list[Order]) -> list[Order]:
        return [o for o in orders if not (o.run == run and o.cursor > 0 and on.agent_of(o).name == ClientId("bert"))]

    result = on.run(run, order_of=without_bert)
    assert result["status"] == "completed", result["cause"]
    assert result["verdict"]["rehearsed_at"] == ["anna", "carl"] and "bert" in result["verdict"]["left_out"]


def test_a_site_that_never_answers_leaves_its_rehearsals() -> None:
    """Its runs stall at their deadlines, the rest goes on without them once all others have ended."""
    on = federation()
    run = on.start(experiment(SHORT, waiting={"deadline": 60.0, "min_replies": 1}))

    def answered(orders: list[Order]) -> list[Order]:
        return [o for o in orders if on.agent_of(o).name != ClientId("carl") or o.cursor < 0]

    result = on.run(run, order_of=answered)
    assert result["status"] == "completed", result["cause"]
    assert "carl" not in result["verdict"]["rehearsed_at"]


def test_cancelled_as_a_whole() -> None:
    """Who cancels a rehearsal cancels all of its runs."""
    on = federation()
    run = on.start(experiment(SHORT))
    on.run_service.cancel(run)
    assert set(statuses(on, run).values()) == {"cancelled"}
    with pytest.raises(Refused):
        on.run_service.cancel(run)


def test_it_waits_for_its_runs() -> None:
    """Before they have ended it says how many it waits for, and asks nobody to compare."""
    on = federation()
    run = on.start(experiment(SHORT))
    on.scheduler.turn(run)
    assert shown(on, run)["waits_for"] == "waiting for 6 runs of the rehearsal"
    for order in list(on.waiting()):
        if order.run == run:
            on.handle(order)
    on.scheduler.turn(run)
    assert on.run_service.find(run).cursor == -1
    on.run(run)
    assert shown(on, run)["status"] == "completed"


def test_all_sites_forbid_it() -> None:
    """Nothing is rehearsed, and the note does not say that labels are few."""
    forbidding = {name: SimSite(Opener(i), rules=AWAY) for i, name in enumerate(("anna", "bert", "carl"))}
    result = played(federation(**forbidding), experiment(SHORT, then="run"))
    assert result["verdict"]["targets"][0]["trust"] == "not rehearsed"
    assert any(note.startswith("Nothing was rehearsed at any site") for note in result["notes"])


def test_what_was_chosen_was_not_run() -> None:
    """Its run at the targets was cancelled: the verdict names it, for there is no model of it."""
    on = federation()
    run = on.start(experiment(SHORT, then="run"))
    on.run_service.cancel(RunId(f"{run}-t0"))
    result = on.run(run)
    assert result["verdict"]["not_run"] == {"no adaptation": "cancelled by a person"}
    assert any(note.startswith("The run of no adaptation at the targets has no model") for note in result["notes"])


def test_a_candidate_that_fails_is_left_out() -> None:
    """Too few rows of a class for it: the verdict says so, and goes by the others."""
    heads = {"label": "heads", "method": "gaussian_heads", "config": {"least_rows": 10_000}}
    result = played(federation(), experiment(heads, SHORT, then="run"))
    assert list(result["verdict"]["candidates_left_out"]) == ["heads"]
    assert list(result["verdict"]["gains"]) == ["no adaptation", "short"]
    assert any("heads is left out" in note for note in result["notes"])


@pytest.mark.parametrize(
    ("there", "sites", "candidates"),
    [
        (["111", "111", "111"], [0, 1, 2], [0, 1, 2]),
        (["111", "011", "111"], [0, 2], [0, 1, 2]),  # without the reference a site has nothing to compare
        (["111", "101", "111"], [0, 2], [0, 1, 2]),  # most have it: the site goes
        (["101", "101", "111"], [0, 1, 2], [0, 2]),  # most lack it: the candidate goes
        (["111", "101", "110"], [0, 1, 2], [0]),  # one site alone would be left: the candidates go
        (["111", "101"], [0, 1], [0, 2]),
        (["011", "011"], [], [0, 1, 2]),
    ],
)
def test_which_sites_and_candidates_count(there: list[str], sites: list[int], candidates: list[int]) -> None:
    assert whole(torch.tensor([[each == "1" for each in row] for row in there])) == (sites, candidates)


def test_a_run_that_is_cancelled_leaves_out_its_site_alone() -> None:
    """Not the candidate, which the two others have rehearsed."""
    on = federation()
    run = on.start(experiment(SHORT))
    on.run_service.cancel(RunId(f"{run}-s1-1"))
    verdict = on.run(run)["verdict"]
    assert statuses(on, run)["-s1-1"] == "cancelled"
    assert verdict["rehearsed_at"] == ["anna", "carl"] and not verdict["candidates_left_out"]
    assert "cancelled by a person" in verdict["left_out"]["bert"]
