"""One suite for every journal: projects, what they have, and lists of one of them."""

from __future__ import annotations

from functools import partial

import pytest
from journal_names import ANN, BOB, OTHER, RUN
from journal_values import answer, client, digest, files, first, invite, joins, order_row, push, run_row, together

from tideline.core.errors import FederationError, Refused
from tideline.core.run import ClientId, RunId
from tideline.engine.model.access.projects import DEFAULT, Project, Quota, Usage
from tideline.engine.model.access.spending import DAY_SECONDS, Month, Spending, Spent, month
from tideline.engine.model.accounts import Standing
from tideline.engine.model.experiment import uploader
from tideline.engine.model.orders import Failure, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal

MADE = Project("cardio", 2.5, "admin", Quota(runs=1, bytes=2**40))


def test_projects_come_back_as_they_were_written(journal: Journal) -> None:
    """The default one first, although nobody made it. A name is given once."""
    assert journal.projects() == (Project(DEFAULT),)
    assert journal.add_project(MADE) and journal.add_project(Project("brain"))
    assert not journal.add_project(Project("cardio")) and not journal.add_project(Project(DEFAULT))
    assert journal.projects() == (Project(DEFAULT), Project("brain"), MADE)


def test_a_quota_is_changed_and_a_project_ends_once(journal: Journal) -> None:
    """Not that of one that is not there; the default one is limited and never ends."""
    journal.add_project(MADE)
    assert journal.limit_project("cardio", Quota(members=3), 4.0, "bob") and not journal.limit_project("nope", Quota(), 4.0)
    assert journal.limit_project(DEFAULT, Quota(runs=7), 4.0)
    assert journal.projects() == (Project(DEFAULT, quota=Quota(runs=7)), Project("cardio", 2.5, "admin", Quota(members=3)))
    assert journal.end_project("cardio", 5.0, "bob")
    assert not any((journal.end_project("cardio", 6.0), journal.end_project(DEFAULT, 6.0), journal.end_project("nope", 6.0)))
    assert journal.projects()[1].ended == 5.0 and not journal.limit_project("cardio", Quota(), 7.0)
    told = [entry.kind for entry in journal.audit() if entry.kind.startswith("project")]
    assert told == ["project_made", "project_limited", "project_limited", "project_ended"]


def test_lists_and_counts_of_one_project(journal: Journal) -> None:
    """Of runs, in their order; who goes on from another project's run finds none."""
    journal.create([run_row(), run_row(OTHER, created=2.5, project="cardio")], [*joins(), *joins(OTHER)])
    journal.add_invite(invite())
    journal.enrol("token", client(projects=("cardio",)))
    assert [line.id for line in journal.headlines(scope="cardio")] == [OTHER] == list(journal.run_ids("cardio"))
    assert [line.project for line in journal.headlines()] == [DEFAULT, "cardio"]
    assert journal.headlines(None, RUN, "cardio") == () and [e.id for e in journal.headlines(None, RUN)] == [OTHER]
    whole, own, none = journal.tally(), journal.tally("cardio"), journal.tally("brain")
    assert (whole.runs["waiting"], own.runs["waiting"], none.runs["waiting"]) == (2, 1, 0)
    assert (whole.orders, own.orders, none.orders) == (6, 3, 0)
    assert (own.clients["approved"], none.clients["approved"]) == (1, 0)
    assert journal.last_seen([ANN], "cardio") == {ANN: 1.0} and journal.last_seen([ANN], DEFAULT) == {}


def test_what_a_project_has(journal: Journal) -> None:
    """Open runs that belong to no other, sites, and the bytes of its runs' parts, each once. Uploads are told apart."""
    child = run_row(OTHER, parent=RUN, project="cardio")
    order = order_row(JOIN, ANN, files("a", "b"))
    journal.create([run_row(project="cardio"), child], [order, order_row(JOIN, BOB, files("a", "b"))])
    assert journal.usage(["cardio"])["cardio"] == Usage(1, 0, 201) and journal.usage([DEFAULT])[DEFAULT] == Usage()
    push(journal, files("c", "d"))
    answer(journal, order.id, files("c", "d"))
    assert journal.usage(["cardio"])["cardio"].bytes == 201 + 201
    journal.add_parts([digest("w")], *uploader("cardio"), 5.0)
    both = journal.usage(["cardio", DEFAULT, "nothing"])
    assert (both["cardio"].bytes, both[DEFAULT], both["nothing"]) == (402, Usage(), Usage()) and journal.usage([]) == {}
    assert journal.uploaded("cardio") == (digest("w"),) and journal.uploaded(DEFAULT) == ()
    assert journal.held(((digest("w"), 1),), *uploader(DEFAULT), 6.0) == frozenset()


def test_a_run_above_the_quota_is_not_written(journal: Journal) -> None:
    """Nor anything that came with it. Those that belong to a run count with it; a run that is over counts no more."""
    journal.add_project(MADE)
    journal.create([run_row(project="cardio"), run_row(OTHER, parent=RUN, project="cardio")], joins())
    late = run_row(RUN.replace("a", "c"), project="cardio")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="Project cardio has 1 open runs, and its quota is 1"):
        journal.create([late], [])
    assert journal.run(late.id) is None
    journal.set_status(RUN, [Status.WAITING], Status.CANCELLED, "", 9.0)
    journal.create([late], [])


def test_of_two_runs_at_once_one_fits(journal: Journal) -> None:
    """A quota holds also where two are counted at the same moment."""
    journal.add_project(MADE)

    def tried(number: int) -> bool:
        try:
            journal.create([run_row(f"run-{number}", project="cardio")], [])  # type: ignore[arg-type]
        except FederationError:
            return False
        return True

    assert sorted(together(*(partial(tried, number) for number in range(4)))) == [False, False, False, True]


def test_sites_are_assigned_as_far_as_quotas_allow(journal: Journal) -> None:
    """At the enrolment too. A revoked site counts no more."""
    journal.add_project(Project("cardio", quota=Quota(members=1)))
    for name in (ANN, BOB):
        journal.add_invite(invite(name))
        journal.enrol(name, client(name))
    assert journal.assign(ANN, (DEFAULT, "cardio"), 5.0, "admin") and not journal.assign(ANN.upper(), (DEFAULT,), 5.0)  # type: ignore[arg-type]
    known = journal.client(ANN)
    assert known is not None and known.projects == (DEFAULT, "cardio")
    with pytest.raises(Refused, match="1 sites"):
        journal.assign(BOB, ("cardio",), 6.0)
    journal.add_invite(invite("third", project="cardio"))
    with pytest.raises(Refused, match="1 sites"):
        journal.enrol("third", client("cyd", projects=("cardio",)))
    assert journal.invite("third").used_by == "" and journal.usage(["cardio"])["cardio"].members == 1  # type: ignore[union-attr]
    journal.revoke(ANN, "left", 7.0)
    assert journal.enrol("third", client("cyd", projects=("cardio",))) and journal.usage(["cardio"])["cardio"].members == 1


def test_what_does_not_reach_a_site_does_not_tell_of_it(journal: Journal) -> None:
    """That a site is revoked is not said in a run of a project that it does not serve: its order stays open."""
    journal.add_invite(invite())
    journal.enrol("token", client())
    foreign, own = order_row(JOIN, ANN, run=OTHER), order_row(JOIN, ANN)
    journal.create([run_row(), run_row(OTHER, project="cardio")], [own, foreign])
    assert [row.id for row in journal.revoke(ANN, "left", 7.0)] == [own.id] and journal.barred(OTHER) == ()
    row = journal.order(foreign.id)
    assert row is not None and row.status is OrderStatus.OPEN
    known = journal.client(ANN)
    assert known is not None and known.standing is Standing.REVOKED


# One suite for every journal: what steps spend, by run, and by day of each project's sites.
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
    assert journal.delete_runs([RUN], "ann", "", 50.0) and journal.spent_by_run(RUN) == {}
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
