"""One suite for every journal: what steps spend, by run, and by day of each project's sites."""

from __future__ import annotations

import pytest
from journal_values import ANN, BOB, OTHER, RUN, client, first, invite, joins, order_row, push, run_row, together

from tideline.core.errors import Refused
from tideline.core.run import ClientId, RunId
from tideline.engine.model.access.projects import DEFAULT, Project, Quota
from tideline.engine.model.access.spending import DAY_SECONDS, Month, Spending, Spent, month
from tideline.engine.model.orders import Failure, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal

JANUARY, FEBRUARY = month(1970, 1), month(1970, 2)
HOUR = Spent(3600.0, 7200.0, 1, 8)


def told(journal: Journal, who: ClientId = ANN, spent: Spent | None = HOUR, now: float = 30.0, run: RunId = RUN) -> None:
    """A site's reply to the join."""
    name = order_row(JOIN, who, run=run).id
    journal.answer(name, Reply(name, spent=spent), OrderStatus.ANSWERED, now, 0, 0)


def test_replies_are_summed(journal: Journal) -> None:
    """By run and site, and by day and site of the project. Who does not say what a step took is counted apart."""
    journal.create([run_row(project="cardio"), run_row(OTHER, project="cardio")], [*joins(), *joins(OTHER)])
    told(journal, ANN)
    told(journal, BOB, None)
    told(journal, ANN, Spent(0.5, 0.25, 1, 1), now=3.5 * DAY_SECONDS, run=OTHER)
    both, unsaid, last = Spending(3600.0, 7200.0, 1, 0), Spending(unreported=1), Spending(0.5, 0.25, 1)
    assert journal.spent_by_run(RUN) == {ANN: both, BOB: unsaid} and journal.spent_by_run(OTHER) == {ANN: last}
    assert journal.spent_in(["cardio"], JANUARY)["cardio"] == both + unsaid + last
    assert journal.spent_by_site("cardio", JANUARY) == {ANN: both + last, BOB: unsaid}
    assert journal.spent_by_day("cardio", JANUARY) == {0: both + unsaid, 3: last}
    assert journal.spent_by_run(RunId("nobody")) == {} == journal.spent_by_site(DEFAULT, JANUARY)
    assert journal.spent_in(["cardio"], FEBRUARY)["cardio"] == Spending() == journal.spent_in([DEFAULT], JANUARY)[DEFAULT]
    assert journal.spent_by_day("cardio", Month("", 1, 3)) == {} and journal.spent_by_day("cardio", Month("", 3, 4)) == {3: last}


def test_a_reply_counts_once(journal: Journal) -> None:
    """Also one that comes again, one that comes late, and a failure; one that nobody waits for, and a revocation, do not."""
    journal.add_invite(invite())
    journal.enrol("token", client())
    journal.create([run_row()], [*joins(), order_row(0, ANN)])
    for _ in range(3):
        told(journal, BOB)
    failed = order_row(JOIN, ClientId("cyd")).id
    journal.answer(failed, Reply(failed, failure=Failure("StepFailed", "."), spent=HOUR), OrderStatus.FAILED, 31.0, 0, 0)
    journal.revoke(ANN, "left", 32.0)
    assert journal.spent_in([DEFAULT], JANUARY)[DEFAULT] == Spending(7200.0, 14400.0, 2)
    journal.create([run_row(OTHER)], joins(OTHER))
    journal.set_status(OTHER, OPEN, Status.CANCELLED, "", 33.0)
    told(journal, BOB, run=OTHER)
    assert journal.spent_by_run(OTHER) == {} and journal.spent_in([DEFAULT], JANUARY)[DEFAULT].reported == 2


def test_replies_at_once_are_all_counted(journal: Journal) -> None:
    """Of one site in many runs, which meet in the row of its day."""
    runs = [RunId(f"run-{number}") for number in range(6)]
    for run in runs:
        journal.create([run_row(run)], joins(run))
    together(*(lambda run=run: told(journal, ANN, HOUR, run=run) for run in runs))  # type: ignore[misc]
    assert journal.spent_by_site(DEFAULT, JANUARY) == {ANN: Spending(6 * 3600.0, 6 * 7200.0, 6)}


def test_what_is_not_written_is_not_counted(journal: Journal) -> None:
    """A reply whose parts are not there."""
    journal.create([run_row()], joins())
    lacking = Reply(first(), ((order_row(JOIN, ANN).id, 1),), spent=HOUR)  # type: ignore[arg-type]
    assert journal.answer(first(), lacking, OrderStatus.ANSWERED, 30.0, 0, 0) is None
    assert journal.spent_by_run(RUN) == {} and journal.spent_in([DEFAULT], JANUARY)[DEFAULT] == Spending()


def test_a_deleted_run_stays_counted(journal: Journal) -> None:
    """In its project's days; its own sums go with it."""
    journal.create([run_row()], joins())
    told(journal)
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 40.0)
    assert journal.delete_runs([RUN], "ann", "", 50.0)
    assert journal.spent_by_run(RUN) == {}
    assert journal.spent_in([DEFAULT], JANUARY)[DEFAULT] == Spending(3600.0, 7200.0, 1)


@pytest.mark.parametrize(("kind", "quota"), [("GPU", Quota(gpu_hours=1.0)), ("CPU", Quota(cpu_hours=2.0))])
def test_a_run_above_the_hours_is_not_written(journal: Journal, kind: str, quota: Quota) -> None:
    """It says what is used, what is allowed, and when that is over. One that is open goes on; a new month begins at nothing."""
    journal.add_project(Project("cardio", quota=quota))
    journal.create([run_row(project="cardio")], joins())
    told(journal)
    late = run_row(OTHER, project="cardio", created=60.0)
    with pytest.raises(Refused, match=f"Project cardio has used .*00 {kind} hours in 1970-01, and its quota is") as refused:
        journal.create([late], [])
    assert "1970-02-01 00:00 UTC" in refused.value.todo and refused.value.context["frees"] == FEBRUARY.first * DAY_SECONDS
    push(journal, (), BOB)
    told(journal, BOB)
    assert journal.run(OTHER) is None and journal.spent_in(["cardio"], JANUARY)["cardio"].reported == 2
    journal.create([run_row(OTHER, project="cardio", created=FEBRUARY.first * DAY_SECONDS + 1.0)], [])
    journal.limit_project("cardio", Quota(), 70.0)
    journal.create([run_row(RunId("run-c"), project="cardio", created=71.0)], [])
