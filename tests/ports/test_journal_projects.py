"""One suite for every journal: projects, what they have, and lists of one of them."""

from __future__ import annotations

from functools import partial

import pytest
from journal_values import ANN, BOB, OTHER, RUN, answer, client, digest, files, invite, joins, order_row, push, run_row, together

from tideline.core.errors import FederationError, Refused
from tideline.engine.model.access.projects import DEFAULT, Project, Quota, Usage
from tideline.engine.model.accounts import Standing
from tideline.engine.model.experiment import uploader
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, Status
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
    assert [row.id for row in journal.revoke(ANN, "left", 7.0)] == [own.id]
    assert journal.barred(OTHER) == ()
    row = journal.order(foreign.id)
    assert row is not None and row.status is OrderStatus.OPEN
    known = journal.client(ANN)
    assert known is not None and known.standing is Standing.REVOKED
