"""One suite for every journal: a dossier of it is good, and says the same of the same history."""

from __future__ import annotations

import io
import json
from typing import Any

from journal_values import OTHER, RUN, TEAM, advance, answer, began, client, files, invite, order_row, push, run_row

from tests.dossier.stage import OURS, contents, lines, made, part, verified
from tideline.core.run import ClientId, RunId
from tideline.dossier.layout import AUDIT, EGRESS, POLICIES, REPLIES
from tideline.dossier.layout import RUN as OF_RUN
from tideline.dossier.making import Maker
from tideline.engine.audit.entries import signer_introduced
from tideline.engine.model.orders import Hold
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal


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
