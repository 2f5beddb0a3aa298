"""What every database beneath the journal has to bear: kills, openings at once, readers beside a writer."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from journal_names import ANN, RUN
from journal_values import advance, began, files, run_row

from tideline.engine.model.runs import JOIN
from tideline_server.store import SqlJournal

WRITER = Path(__file__).with_name("journal_writer.py")


def survive_kills(where: Path | str) -> None:
    """Kill a writer three times amid its rounds."""
    acknowledged = 0
    for until in (5, 40, 43):
        with subprocess.Popen([sys.executable, str(WRITER), str(where)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            while acknowledged < until:
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        check(where, acknowledged)


def check(where: Path | str, acknowledged: int) -> None:
    """The store holds at least the acknowledged rounds, and nothing half."""
    journal = SqlJournal(where)
    run = journal.run(RUN)
    assert run is not None and run.cursor >= acknowledged
    assert [r.cursor for r in journal.rounds(RUN)] == list(range(JOIN, run.cursor))
    assert len(journal.orders(RUN, run.cursor)) == 3
    assert [e.seq for e in journal.events(RUN)] == list(range(1, len(journal.events(RUN)) + 1))
    assert [e.kind for e in journal.events(RUN)].count("closed") == run.cursor + 1
    sent = journal.orders(RUN, run.cursor)[0].files
    assert journal.held(sent, RUN, ANN, 50.0) == {d for d, _ in sent}
    journal.close()


def four_openings(where: Path | str) -> None:
    """Four journals open an empty database at the same moment, and are one store."""
    gate, opened = threading.Barrier(4), list[SqlJournal]()

    def play() -> None:
        gate.wait()
        opened.append(SqlJournal(where))

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    began(opened[0])
    assert [each.run(RUN) for each in opened] == [run_row()] * 4
    assert [each.advance(advance(JOIN)) for each in opened] == [True, False, False, False]
    for each in opened:
        each.close()


def read_beside_a_writer(journal: SqlJournal) -> None:
    """Four readers look while rounds of a run that is two rounds old are closed."""
    done, wrong = threading.Event(), list[tuple[int, int, int]]()

    def read() -> None:
        while not done.is_set():
            before, rounds, after = journal.run(RUN), journal.rounds(RUN), journal.run(RUN)
            assert before is not None and after is not None
            if not before.cursor <= len(rounds) - 1 <= after.cursor or rounds[-1].cursor != len(rounds) - 2:
                wrong.append((before.cursor, len(rounds), after.cursor))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for cursor in range(1, 60):
        assert journal.advance(advance(cursor, files(("m", cursor)), files(("s", cursor))))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
