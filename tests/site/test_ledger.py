"""The site's ledger: every entry stands, none can be changed unseen, and what a crash leaves of a line is no entry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tideline.core.errors import ChainBroken, StorageFull
from tideline.core.run import Digest, RunId
from tideline.engine.ports.ledger import Spent
from tideline_agent.home.ledger import FILE, KNOWN, FileLedger, entries

ONE, TWO = RunId("one"), RunId("two")


def test_what_is_recorded_stands_after_a_new_start(tmp_path: Path) -> None:
    """The owner's words, runs that began and what was spent, as they were; with the summary of the last start, and without."""
    at = [1_000_000.0]
    made = FileLedger(tmp_path, lambda: at[0])
    made.record("run", run=ONE, method="fedavg")
    made.record("run", run=ONE, method="fedavg")
    made.record("reply", run=ONE, order="o", bytes=70)
    at[0] += 100
    made.record("approved", run=TWO, intent="i")
    made.record("reply", run=ONE, order="p", bytes=5)
    for summary in (True, False):
        if not summary:
            (tmp_path / KNOWN).unlink()
        again = FileLedger(tmp_path, lambda: at[0])
        assert (again.word(ONE), again.word(TWO), again.approved(Digest("i"))) == (None, True, True)
        assert (again.began(ONE), again.began(TWO)) == (True, False)
        assert again.spent(0.0) == Spent(1, 2, 75) and again.spent(1_000_050.0) == Spent(0, 1, 5)
    assert [each.seq for each in entries(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_command_writes_beside_the_agent(tmp_path: Path) -> None:
    """Two that hold the file open see each other's entries, and chain them."""
    agent, command = FileLedger(tmp_path), FileLedger(tmp_path)
    agent.record("run", run=ONE)
    command.record("declined", run=ONE, intent="i")
    assert agent.word(ONE) is False and not agent.approved(Digest("i"))
    agent.record("reply", run=ONE, bytes=1)
    assert [each.kind for each in entries(tmp_path)] == ["run", "declined", "reply"]


@pytest.mark.parametrize("left", [1, 30, -1])
def test_what_a_crash_leaves_is_cut_off(tmp_path: Path, left: int) -> None:
    """All whole lines stand, and the next entry follows them."""
    made = FileLedger(tmp_path)
    made.record("run", run=ONE)
    whole = (tmp_path / FILE).read_bytes()
    made.record("reply", run=ONE, bytes=1)
    (tmp_path / FILE).write_bytes(whole + (tmp_path / FILE).read_bytes()[len(whole) :][:left])
    FileLedger(tmp_path).record("reply", run=ONE, bytes=2)
    assert [each.kind for each in entries(tmp_path)] == ["run", "cut_off", "reply"]


def test_what_is_changed_taken_out_or_put_in_shows(tmp_path: Path) -> None:
    """By the number of the first entry that does not follow; a ledger that is cut while an agent holds it, too."""
    made = FileLedger(tmp_path)
    for i in range(4):
        made.record("reply", run=ONE, order=str(i), bytes=i)
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b'"bytes":1', b'"bytes":9')
    assert changed != lines[1]
    for broken, number in (
        ([lines[0], changed, *lines[2:]], 2),
        ([lines[0], *lines[2:]], 2),
        ([*lines[:2], lines[1], *lines[2:]], 3),
        ([lines[0], b"{}\n", *lines[2:]], 2),
        ([lines[0], b"no json\n", *lines[2:]], 2),
    ):
        (tmp_path / FILE).write_bytes(b"".join(broken))
        with pytest.raises(ChainBroken) as error:
            list(entries(tmp_path))
        assert error.value.context["entry"] == number and FILE in error.value.what and error.value.todo
        (tmp_path / KNOWN).unlink(missing_ok=True)
        with pytest.raises(ChainBroken):
            FileLedger(tmp_path)
    (tmp_path / FILE).write_bytes(lines[0])
    with pytest.raises(ChainBroken, match="shorter than it was"):
        made.record("reply", run=ONE, bytes=1)


def test_a_summary_of_another_file_is_not_believed(tmp_path: Path) -> None:
    """Whoever puts an older ledger back has it read from its beginning."""
    made = FileLedger(tmp_path)
    made.record("approved", run=ONE, intent="i")
    FileLedger(tmp_path)
    summary = json.loads((tmp_path / KNOWN).read_text())
    assert summary["words"] == {"one": True}
    (tmp_path / FILE).unlink()
    again = FileLedger(tmp_path)
    assert again.word(ONE) is None and list(entries(tmp_path)) == []


def test_a_ledger_that_was_taken_away_is_said(tmp_path: Path) -> None:
    """So that an order fails with its reason, and the agent works again once the file is back."""
    made, elsewhere = FileLedger(tmp_path), tmp_path / "elsewhere"
    made.record("declined", run=ONE)
    (tmp_path / FILE).rename(elsewhere)
    with pytest.raises(StorageFull, match="cannot be written: No such file"):
        made.word(ONE)
    (tmp_path / FILE).mkdir()
    with pytest.raises(StorageFull, match="cannot be written"):
        made.record("reply", run=ONE, bytes=1)
    (tmp_path / FILE).rmdir()
    elsewhere.rename(tmp_path / FILE)
    assert made.word(ONE) is False
