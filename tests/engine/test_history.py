"""What a journal in memory remembers: how much of it stays as rows, and that it is read as it was written."""

from __future__ import annotations

import pytest

from tests.synthetic import NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.disk.spill import Spill
from tideline.core.run import RunId
from tideline.engine.audit.log import Tip, follow
from tideline.engine.simulation import history
from tideline.engine.simulation.adapters import MOST_RUNG, QuietBell
from tideline.engine.simulation.federation import Federation
from tideline.engine.simulation.history import BLOCK, History
from tideline.engine.simulation.homes import Scratch
from tideline.engine.simulation.journal import MemoryJournal


@pytest.mark.parametrize("number", [0, 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 5 * BLOCK + 7])
def test_rows_are_read_from_any_place(number: int) -> None:
    rows: History[int] = History(Spill(), lambda row: row, lambda row: int(str(row)))
    for row in range(number):
        rows.append(row)
    assert len(rows) == number
    for first in {0, 1, BLOCK - 1, BLOCK, BLOCK + 1, number - 1, number, number + 1} - {-1}:
        assert list(rows.since(first)) == list(range(first, number))


def test_what_many_rows_take_is_little() -> None:
    """Packed, an event of a reply takes a tenth of what it takes as objects; but for the newest, all are packed."""
    spill, run = Spill(), RunId("run")
    journal = MemoryJournal(spill)
    for i in range(20 * BLOCK):
        journal.event(run, "answered", {"client": f"site-{i % 1000:05d}", "cursor": i // 1000, "metrics": {"loss": i / 7}}, 0.0)
    assert spill.in_memory < 40 * 20 * BLOCK
    assert [event.seq for event in journal.events(run)] == list(range(1, 20 * BLOCK + 1))
    assert journal.events(run, 3 * BLOCK, 2) == tuple(journal.events(run)[3 * BLOCK : 3 * BLOCK + 2])


def test_a_run_whose_history_is_packed_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for block in (BLOCK, 2):
        monkeypatch.setattr(history, "BLOCK", block)
        federation = Federation(METHODS, sites(), Scratch())
        run = federation.start(experiment("fedavg", dict.fromkeys(NAMES[:3], "source")))
        federation.run(run)
        follow(Tip(), federation.journal.audit())
        events = [(e.seq, e.at, e.kind, e.data) for e in federation.journal.events(run)]
        told.append((events, [(e.kind, e.client, e.details.get("cursor")) for e in federation.journal.audit()]))
    assert told[0] == told[1]


def test_a_bell_forgets_what_was_rung_long_ago() -> None:
    bell = QuietBell()
    for i in range(10 * MOST_RUNG):
        bell.ring(f"run:{i}")
    assert len(bell.rung) <= 2 * MOST_RUNG and bell.rung[-1] == f"run:{10 * MOST_RUNG - 1}"
