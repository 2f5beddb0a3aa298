"""One suite for every journal: a run is deleted with all that is written of it, and others keep theirs."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import run as run_process
from typing import Any

import pytest
from journal_names import ANN, BOB, OTHER, RUN, TEAM
from journal_values import advance, answer, began, client, digest, files, invite, joins, order_row, push, run_row
from sqlalchemy import create_engine, func, select
from test_costs import counted

from tests.dossier.stage import OURS, contents, lines, made, part, verified
from tideline.core.run import ClientId, OrderId, RunId
from tideline.dossier.layout import AUDIT, EGRESS, POLICIES, REPLIES
from tideline.dossier.layout import RUN as OF_RUN
from tideline.dossier.making import Maker
from tideline.engine.audit.entries import signer_introduced
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.deletion import Cutoffs
from tideline.engine.model.orders import Hold
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.store import SqlJournal
from tideline_server.store.schema import metadata

NOW, LATER = 50.0, 1e6
STAYING = {"audit", "audit_base", "audit_tip", "tombstones", "witness", "witness_secret", "meta", "marker", "dropped"}
STAYING |= {"notice_mark", "spent_by_day", "upgrades"}
SHARED = files("shared")


def over(journal: Journal, run: RunId, now: float = NOW) -> None:
    """A run that sent, was answered, kept a state, and has ended."""
    began(journal, run)
    sent, state = files("shared", ("sent", run)), files(("state", run), "common")
    for who in TEAM:
        push(journal, files((run, who)), who, run)
        answer(journal, OrderId(f"{run}/{JOIN}/{who}/1"), files((run, who)))
    journal.advance(advance(JOIN, sent, state, run))
    journal.event(run, "held_up", {"why": "a full disk"}, NOW)
    assert journal.set_status(run, OPEN, Status.CANCELLED, "enough", now)


def gone(journal: Journal) -> set[str]:
    """What collections forget, until nothing is left."""
    found: set[str] = set()
    while some := journal.collect(LATER):
        found |= set(some)
    return found


def test_tombstones_are_found_together(journal: Journal) -> None:
    """Those that are there of the runs that are asked for."""
    over(journal, RUN)
    over(journal, OTHER)
    assert journal.tombstones([RUN, OTHER]) == () == journal.tombstones([])
    made = [*journal.delete_runs([OTHER], "", "", NOW), *journal.delete_runs([RUN], "", "", NOW)]
    assert journal.tombstones([OTHER, RUN, RunId("nobody")]) == tuple(sorted(made, key=lambda each: each.run))


def test_a_deleted_run_leaves_a_tombstone(journal: Journal) -> None:
    """Nothing else of it is found; the audit log has what was done, and by whom."""
    over(journal, RUN)
    before = journal.audit()
    (made,) = journal.delete_runs([RUN], "ann", "", NOW + 1.0)
    assert (made.run, made.name, made.by, made.status, made.deleted) == (RUN, f"name of {RUN}", "ann", "cancelled", NOW + 1.0)
    assert journal.tombstone(RUN) == made and journal.run(RUN) is None
    assert (journal.rounds(RUN), journal.orders(RUN), journal.events(RUN), journal.run_ids()) == ((), (), (), ())
    assert (journal.round_totals(RUN), journal.site_totals(RUN), journal.leases(RUN)) == ({}, {}, ())
    assert journal.order(OrderId(f"{RUN}/{JOIN}/{ANN}/1")) is None
    after = journal.audit()
    assert after[:-1] == before and (after[-1].kind, after[-1].by, after[-1].run) == ("run_deleted", "ann", RUN)


def test_only_runs_that_are_over_are_deleted(journal: Journal) -> None:
    """All or none: with one that is open, or that is not there, nothing goes."""
    over(journal, RUN)
    began(journal, OTHER)
    for chosen in ([RUN, OTHER], [RUN, RunId("nobody")]):
        assert journal.delete_runs(chosen, "", "", NOW) == ()
    assert journal.tombstone(RUN) is None and journal.run(RUN) is not None
    assert [entry.kind for entry in journal.audit()].count("run_deleted") == 0


def test_parts_of_others_stay(journal: Journal) -> None:
    """What another run's state needs is kept; what was the deleted one's own goes."""
    over(journal, RUN)
    over(journal, OTHER)
    gone(journal)
    journal.delete_runs([RUN], "", "", NOW)
    assert gone(journal) == {digest(("state", RUN))} and len(journal.orders(OTHER)) == 2 * len(TEAM)
    assert journal.orders(OTHER, 0)[0].files == files("shared", ("sent", OTHER))
    journal.delete_runs([OTHER], "", "", NOW)
    assert gone(journal) == {digest(("state", OTHER)), digest("common")}


def test_files_that_went_are_written_again(journal: Journal) -> None:
    """A listing that went with its last run is there again for a run that sends the same files."""
    over(journal, RUN)
    journal.delete_runs([RUN], "", "", NOW)
    journal.create([run_row(OTHER)], joins(OTHER))
    journal.advance(advance(JOIN, files("shared", ("sent", RUN)), SHARED, OTHER))
    assert journal.orders(OTHER, 0)[0].files == files("shared", ("sent", RUN))
    assert journal.rounds(OTHER)[0].state == SHARED


def test_an_answer_to_a_deleted_run_changes_nothing(journal: Journal) -> None:
    """Its orders are unknown, and beats on them say that they are over."""
    over(journal, RUN)
    order = journal.orders(RUN, 0)[0].id
    journal.delete_runs([RUN], "", "", NOW)
    with pytest.raises(KeyError):
        answer(journal, order)
    assert journal.beat(ANN, {order: 0.5}, NOW) == (order,)


def test_a_deleted_run_does_not_come_back(journal: Journal) -> None:
    """A call that is sent again under its key does not start it once more."""
    record = IdempotencyRecord("key", "asked", "seed", 1.0, "worker")
    journal.reserve(record)
    journal.create_once("key", "worker", [run_row(RUN)], joins(RUN))
    journal.set_status(RUN, OPEN, Status.CANCELLED, "enough", NOW)
    journal.delete_runs([RUN], "", "", NOW)
    journal.create_once("key", "worker", [run_row(RUN)], joins(RUN))
    assert journal.run(RUN) is None


def test_runs_are_due_by_their_ends(journal: Journal) -> None:
    """Those that were over before, the one that ended first in front; open ones never, nor those that belong to another."""
    for run, ended in (("b", 70.0), ("a", 80.0), ("c", 60.0)):
        over(journal, RunId(run), ended)
    began(journal, RunId("open"))
    journal.create([run_row(RunId("child"), parent=RunId("a"))], [order_row(JOIN, BOB, run=RunId("child"))])
    journal.set_status(RunId("child"), OPEN, Status.CANCELLED, "enough", 55.0)
    assert journal.due_runs(Cutoffs(80.0)) == ("c", "b")
    assert journal.due_runs(Cutoffs(0.0, {"default": 80.0, "other": 90.0})) == ("c", "b")
    assert journal.due_runs(Cutoffs(90.0, {"default": 0.0})) == () == journal.due_runs(Cutoffs(0.0, {"other": 90.0}))
    assert journal.due_runs(Cutoffs(81.0)) == ("c", "b", "a")
    journal.delete_runs([RunId("a")], "", "", NOW)
    assert journal.due_runs(Cutoffs(60.0)) == ("child",)


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> Iterator[tuple[SqlJournal, str]]:
    """A journal in a database, and the database's address."""
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "journal.db"
        where, url = path, f"sqlite:///{path}"
    else:
        where = request.getfixturevalue("address")
        url = where.replace("postgresql://", "postgresql+psycopg://")
    journal = SqlJournal(where)
    yield journal, url
    journal.close()


@pytest.mark.nightly(job="services")
def test_two_hundred_runs_leave_nothing(stored: tuple[SqlJournal, str]) -> None:
    """In no table is a row of a deleted run, but in the audit log and among the tombstones."""
    journal, url = stored
    runs = [RunId(f"run-{at}") for at in range(200)]
    for run in runs:
        over(journal, run)
    for run in runs[:-1]:
        assert journal.delete_runs([run], "", "30 days", NOW)
    gone(journal)
    assert len(journal.orders(runs[-1])) == 2 * len(TEAM)
    assert journal.orders(runs[-1], 0)[0].files == files("shared", ("sent", runs[-1]))
    journal.delete_runs([runs[-1]], "", "30 days", NOW)
    gone(journal)
    engine = create_engine(url)
    with engine.connect() as connection:
        counts = {t.name: connection.scalar(select(func.count()).select_from(t)) for t in metadata.sorted_tables}
    engine.dispose()
    assert counts.pop("tombstones") == len(runs)
    assert {name for name, count in counts.items() if count} <= STAYING


def test_old_events_go_but_for_the_last(stored: tuple[SqlJournal, str]) -> None:
    """A few at a time; how a run ended stays, and what is told later has a later number."""
    journal, _ = stored
    over(journal, RUN)
    over(journal, OTHER, LATER)
    every, others = journal.events(RUN), journal.events(OTHER)
    assert journal.old_events(Cutoffs(NOW)) == 0 == journal.old_events(Cutoffs(NOW + 1.0, {"default": 0.0}))
    assert journal.old_events(Cutoffs(NOW + 1.0)) == len(every) - 1
    assert journal.drop_events(Cutoffs(NOW + 1.0), 2) == 2 and journal.events(RUN) == every[2:]
    assert journal.drop_events(Cutoffs(NOW + 1.0), 1000) == len(every) - 3 and journal.events(RUN) == every[-1:]
    assert journal.drop_events(Cutoffs(NOW + 1.0), 1000) == 0
    journal.event(RUN, "held_up", {}, LATER)
    assert journal.events(RUN)[-1].seq == every[-1].seq + 1 and journal.events(OTHER) == others


# A deletion costs what the run is large, however many others there are; and a kill amid it leaves the run whole.
MOST = 1.5  # times the steps amid few runs
KILLED = """
import os, signal, sys
from pathlib import Path
from tideline_server.store import SqlJournal
from tideline_server.store.retention import runs
runs.bury = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
SqlJournal(Path(sys.argv[1])).delete_runs([sys.argv[2]], "", "", 50.0)
"""


def steps(path: Path, others: int) -> int:
    """The steps of the database for one deletion amid so many other runs."""
    with closing(SqlJournal(path)) as journal:
        for at in range(others):
            over(journal, RunId(f"other-{at}"))
        over(journal, RUN)
    with counted() as work, closing(SqlJournal(path)) as journal:
        journal.run(RUN)
        work.steps = 0
        assert journal.delete_runs([RUN], "", "", NOW)
        return work.steps


@pytest.mark.nightly(job="services")
def test_a_deletion_costs_the_same_amid_many_runs(tmp_path: Path) -> None:
    """The same steps amid 100 runs as amid 5."""
    assert steps(tmp_path / "many.db", 100) <= MOST * steps(tmp_path / "few.db", 5)


def test_a_kill_amid_a_deletion_leaves_the_run_whole(tmp_path: Path) -> None:
    """Killed after its rows are gone and before the tombstone is written: all of it is there, and is deleted the next time."""
    path = tmp_path / "journal.db"
    with closing(SqlJournal(path)) as journal:
        over(journal, RUN)
        before = (journal.run(RUN), journal.orders(RUN), journal.rounds(RUN), journal.events(RUN), journal.audit())
    done = run_process([sys.executable, "-c", KILLED, str(path), RUN], env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    with closing(SqlJournal(path)) as journal:
        after = (journal.run(RUN), journal.orders(RUN), journal.rounds(RUN), journal.events(RUN), journal.audit())
        assert after == before and len(before[1]) == 2 * len(TEAM) and journal.tombstone(RUN) is None
        assert journal.delete_runs([RUN], "", "", NOW) and journal.run(RUN) is None


# One suite for every journal: a dossier of it is good, and says the same of the same history.


def history(journal: Journal) -> None:
    """Two runs side by side; in the one a late reply and a site whose owner was awaited, and it has completed."""
    for name in TEAM:
        journal.add_invite(invite(name))
        assert journal.enrol(name, client(name))
    for run in (RUN, OTHER):
        began(journal, run)
    journal.record([signer_introduced(OURS.fingerprint, OURS.public, "alice", 9.0)])
    for run in (RUN, OTHER):
        for name in TEAM:
            order = order_row(JOIN, name, run=run).id
            if name == TEAM[2]:
                journal.hold(ClientId(name), {order: Hold.APPROVAL}, 9.5)
            answer(journal, order, now=10.0)
        assert journal.advance(advance(JOIN, run=run))
        sent = files("model", "more")
        for name in TEAM:
            push(journal, sent, ClientId(name), run)
            if name != TEAM[1]:
                answer(journal, order_row(0, ClientId(name), run=run).id, sent)
        assert journal.advance(advance(0, run=run, status=Status.COMPLETED, state=files("state")))


def of_any_journal(content: bytes) -> dict[str, Any]:
    """A dossier without what each journal draws: the chain's name, and so every hash."""
    told = {name: json.loads(text) for name, text in contents(content).items() if name.endswith(".json")}
    del told["heads.json"]
    rows = [{key: value for key, value in row.items() if key not in ("hash", "before")} for row in lines(content, AUDIT)]
    return told | {"rows": rows, "replies": lines(content, REPLIES)}


def test_a_dossier_of_any_journal(journal: Journal) -> None:
    """Good by its fingerprint, the same each time, and with each reply that came, late ones too."""
    history(journal)
    content = made(journal, RUN)
    assert made(journal, RUN) == content
    found = verified(content, OURS.fingerprint)
    assert found.heads["whole"] and found.replies == 5 and found.run["status"] == "completed"
    assert found.heads["head"]["hash"] == journal.audit_tip().hash
    assert {row["run"] for row in lines(content, AUDIT)} == {RUN, ""} and part(content, OF_RUN)["finished"]
    outcomes = {site["site"]: site["outcomes"] for site in part(content, EGRESS)["sites"]}
    assert outcomes == {"ann": {"accepted": 2}, "bob": {"accepted": 1}, "cyd": {"late": 2}}
    awaited = {site["site"]: site["approval_awaited"] for site in part(content, POLICIES)["sites"]}
    assert awaited == {"ann": None, "bob": None, "cyd": "1970-01-01T00:00:09Z"}


def test_every_journal_says_the_same(journal: Journal) -> None:
    """As the one in memory."""
    memory = MemoryJournal()
    for each in (journal, memory):
        history(each)
    assert of_any_journal(made(journal, RUN)) == of_any_journal(made(memory, RUN))


def test_a_run_of_another_name(journal: Journal) -> None:
    """A name with every kind of character comes through the store into the file."""
    name = "a\u202eb <b> \\ \" ' é 😀"
    journal.create([run_row(RunId("run-c"), name=name)], ())
    out = io.BytesIO()
    Maker(journal, OURS, "1").make(RunId("run-c"), out)
    assert verified(out.getvalue()).run["name"] == name
