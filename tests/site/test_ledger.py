"""The site's ledger: every entry stands, none can be changed unseen, and what a crash leaves of a line is no entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.site.test_admission import BRIEF, ORDER
from tideline.core.errors import ChainBroken, Refused, StorageFull
from tideline.core.run import Digest, RunId
from tideline.engine.audit.witness import Seen
from tideline.engine.model.orders import Hold
from tideline.engine.ports.ledger import Spent
from tideline.engine.site.owner import Owner
from tideline.engine.site.rules import Quotas, SiteRules
from tideline_agent.home import seen
from tideline_agent.home.ledger import FILE, FileLedger, accept, entries
from tideline_agent.home.ledger_head import HEAD, KNOWN
from tideline_agent.home.seen import SeenFile

ONE, TWO, ANY = RunId("one"), RunId("two"), Digest("any")


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
        assert (again.word(ONE, ANY), again.word(TWO, ANY), again.approved(Digest("i"))) == (None, True, True)
        assert (again.began(ONE), again.began(TWO)) == (True, False)
        assert again.spent(0.0) == Spent(1, 2, 75) and again.spent(1_000_050.0) == Spent(0, 1, 5)
    assert [each.seq for each in entries(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_command_writes_beside_the_agent(tmp_path: Path) -> None:
    """Two that hold the file open see each other's entries, and chain them."""
    agent, command = FileLedger(tmp_path), FileLedger(tmp_path)
    agent.record("run", run=ONE)
    command.record("declined", run=ONE, intent="i")
    assert agent.word(ONE, ANY) is False and not agent.approved(Digest("i"))
    agent.record("reply", run=ONE, bytes=1)
    assert [each.kind for each in entries(tmp_path)] == ["run", "declined", "reply"]


@pytest.mark.parametrize("left", [1, 30, -1])
def test_what_a_crash_leaves_is_cut_off(tmp_path: Path, left: int) -> None:
    """All whole lines stand, and the next entry follows them."""
    made = FileLedger(tmp_path)
    made.record("run", run=ONE)
    whole, head = (tmp_path / FILE).read_bytes(), (tmp_path / HEAD).read_bytes()
    made.record("reply", run=ONE, bytes=1)
    (tmp_path / HEAD).write_bytes(head)  # it is written once the line is on the disk
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
    accept(tmp_path, "owner")
    again = FileLedger(tmp_path)
    assert again.word(ONE, ANY) is None and [each.kind for each in entries(tmp_path)] == ["cut_accepted"]


def test_a_ledger_that_was_taken_away_is_said(tmp_path: Path) -> None:
    """So that an order fails with its reason, and the agent works again once the file is back."""
    made, elsewhere = FileLedger(tmp_path), tmp_path / "elsewhere"
    made.record("declined", run=ONE)
    (tmp_path / FILE).rename(elsewhere)
    with pytest.raises(StorageFull, match="cannot be written: No such file"):
        made.word(ONE, ANY)
    (tmp_path / FILE).mkdir()
    with pytest.raises(StorageFull, match="cannot be written"):
        made.record("reply", run=ONE, bytes=1)
    (tmp_path / FILE).rmdir()
    elsewhere.rename(tmp_path / FILE)
    assert made.word(ONE, ANY) is False


def cut_off(home: Path) -> None:
    """Two of five entries."""
    lines = (home / FILE).read_bytes().splitlines(keepends=True)
    (home / FILE).write_bytes(b"".join(lines[:3]))


def cut_within(home: Path) -> None:
    """In the middle of the last line, as a crash may leave it."""
    (home / FILE).write_bytes((home / FILE).read_bytes()[:-10])


def replaced(home: Path) -> None:
    """By another chain that is as long."""
    (home / "other").mkdir()
    other = FileLedger(home / "other", lambda: 7.0)
    for i in range(5):
        other.record("reply", run=TWO, order=str(i), bytes=i)
    (home / "other" / FILE).replace(home / FILE)


def gone(home: Path) -> None:
    """All of it."""
    (home / FILE).unlink()


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (cut_off, "was cut: it ends with entry 3, and it had 5"),
        (cut_within, "was cut: it ends with entry 4, and it had 5"),
        (replaced, "is not the one that was written here: its entry 5 is another"),
        (gone, "was cut: it ends with entry 0, and it had 5"),
    ],
)
def test_a_ledger_that_was_cut_while_no_agent_ran(
    tmp_path: Path, harm: Callable[[Path], None], words: str, summary: bool
) -> None:
    """No agent starts with it, however often, and what is left of it stays as it is, until the owner goes on."""
    made = FileLedger(tmp_path)
    for i in range(5):
        made.record("reply", run=ONE, order=str(i), bytes=i)
    if summary:
        FileLedger(tmp_path)
        (tmp_path / HEAD).unlink()  # the summary of the last start remembers it as well
    harm(tmp_path)
    left = (tmp_path / FILE).read_bytes() if (tmp_path / FILE).exists() else b""
    for _ in range(2):
        with pytest.raises(ChainBroken, match=words) as error:
            FileLedger(tmp_path)
        assert "tideline site ledger accept" in error.value.todo
    assert (tmp_path / FILE).read_bytes() == left
    accepted = accept(tmp_path, "ann")
    assert accepted.before.seq == 5
    FileLedger(tmp_path).record("reply", run=ONE, bytes=9)
    (said,) = [each for each in entries(tmp_path) if each.kind == "cut_accepted"]
    assert (said.details["owner"], said.details["entries"]) == ("ann", 5)
    with pytest.raises(Refused, match="Nothing is missing"):
        accept(tmp_path, "ann")


@pytest.mark.parametrize("left", [b"", b"{", b'{"seq": 2, "hash": "', b"[]"])
def test_what_a_power_cut_leaves_of_a_head_says_nothing(tmp_path: Path, left: bytes) -> None:
    """It is not flushed: an older one, or none, fits a ledger as well."""
    made = FileLedger(tmp_path)
    made.record("run", run=ONE)
    older = (tmp_path / HEAD).read_bytes()
    made.record("reply", run=ONE, bytes=1)
    for content in (left, older):
        (tmp_path / HEAD).write_bytes(content)
        FileLedger(tmp_path).record("reply", run=ONE, bytes=2)
    assert [each.seq for each in entries(tmp_path)] == [1, 2, 3, 4]


def test_quotas_of_a_day_outlive_a_restart(tmp_path: Path) -> None:
    """They are counted from the entries: of every process that has the home open, with the summary of a start and without."""
    noon = datetime(2026, 5, 4, 12, 0)
    rules = SiteRules(quotas=Quotas(runs=1, replies=3, bytes_out="1 kB"))

    def held(run: RunId, at: datetime, made: FileLedger | None = None) -> Hold | None:
        known = made or FileLedger(tmp_path, at.timestamp)
        return Owner(rules=rules, ledger=known, now=lambda: at).holds(replace(ORDER, run=run), BRIEF)

    first, second = FileLedger(tmp_path, noon.timestamp), FileLedger(tmp_path, noon.timestamp)
    assert held(ONE, noon, first) is None
    first.record("run", run=ONE)
    assert held(TWO, noon, second) is held(TWO, noon) is Hold.QUOTA and held(ONE, noon) is None
    second.record("reply", run=ONE, bytes=999)
    assert held(ONE, noon, first) is held(ONE, noon) is None
    first.record("reply", run=ONE, bytes=1)
    (tmp_path / KNOWN).unlink()
    later = noon + timedelta(hours=11)
    assert held(ONE, later, second) is held(ONE, later) is Hold.QUOTA
    assert held(ONE, noon + timedelta(days=1)) is held(TWO, noon + timedelta(days=1)) is None


# What an agent remembers of its coordinators' witness.


def test_a_newer_tip_outlives_the_agent(tmp_path: Path) -> None:
    """And an older one replaces nothing."""
    file = SeenFile(tmp_path)
    file.note(Seen(7, "seven", "proof"))
    file.note(Seen(5, "five", "proof"))
    assert SeenFile(tmp_path).seen == file.seen == Seen(7, "seven", "proof")


def test_a_full_disk_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tip is shown meanwhile; it is said once, and written once there is room."""

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    file, real = SeenFile(tmp_path), seen.write
    monkeypatch.setattr(seen, "write", full)
    with capture_logs() as lines:
        for number in (1, 2, 3):
            file.note(Seen(number, "hash", "proof"))
    assert file.seen.seq == 3 and SeenFile(tmp_path).seen == Seen()
    assert [(line["event"], line["reason"]) for line in lines] == [("witness_not_written", "No space left on device")]
    monkeypatch.setattr(seen, "write", real)
    file.note(Seen(4, "hash", "proof"))
    assert SeenFile(tmp_path).seen.seq == 4
