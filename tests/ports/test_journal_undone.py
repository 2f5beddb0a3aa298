"""What a transaction wrote that was undone is remembered by nobody, though others have read it amid the transaction."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text

from tests.ports.journal_values import ANN, BOB, RUN, advance, began, files
from tideline.core.errors import StorageFull
from tideline.core.run import Member, Role
from tideline.engine.model.runs import JOIN, Status
from tideline_server.store.journal import SqlJournal

LONG = 30.0


def test_members_of_a_commit_that_failed(tmp_path: Path) -> None:
    """A join that closes shares its transaction with a change of status, and the disk is full. It closes with others later."""
    journal = SqlJournal(tmp_path / "journal.db")
    began(journal)
    store, full = journal._store, [True]
    group, goes, may = store._group, threading.Event(), threading.Event()
    assert group is not None

    def first(connection: Connection) -> None:
        goes.set()
        assert may.wait(LONG)

    def refuse(connection: Connection) -> None:
        if full[0] and connection.scalar(text("select count(*) from rosters")):
            raise StorageFull("No room in the store", "Free disk space")

    def behind(number: int) -> None:
        while len(group._waiting) < number:
            threading.Event().wait(0.001)

    one, both = (tuple(Member(name, Role.SOURCE, True) for name in names) for names in ((ANN,), (ANN, BOB)))
    event.listen(store._engine, "commit", refuse)
    with ThreadPoolExecutor(3) as threads:
        before = threads.submit(store.write, first)
        assert goes.wait(LONG)
        closing = threads.submit(journal.advance, advance(JOIN, files("m"), files("s"), members=one))
        behind(1)
        beside = threads.submit(journal.set_status, RUN, (Status.STALLED,), Status.FAILED, "", 9.0)
        behind(2)
        may.set()
        before.result()
        for each in (closing, beside):
            with pytest.raises(StorageFull):
                each.result()
    full[0] = False
    assert journal.advance(advance(JOIN, files("m"), files("s"), members=both))
    run = journal.run(RUN)
    assert run is not None and run.members == both
    journal.close()
