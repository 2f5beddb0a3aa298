"""`tideline audit` of a log whose old entries are in an archive: both are followed as one chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Coordinator, json_of, output_of, refusal_of, tide
from tideline.client.audit import Verified, save, verified_logs
from tideline.engine.audit.archived import Span
from tideline.engine.audit.log import Entry, Tip
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.keeping import DAY
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.retention.archive import FolderArchive

MOST = 3  # entries of a file


class Filed:
    """A coordinator with an archive."""

    def __init__(self, there: Coordinator, folder: Path) -> None:
        self.there, self.archive, self.files = there, FolderArchive(folder), list[Span]()
        self.home, self.journal = there.home, there.federation.journal
        self.log = self.journal.audit()
        for _ in range(3):
            self.step()

    def step(self) -> None:
        now, days = self.there.federation.clock.now(), -1000.0
        clock = self.there.federation.clock
        rule = Archiving(self.journal, self.archive, clock, days, self.files.append, most=MOST)
        assert rule._some(now) and days * DAY < 0

    @property
    def base(self) -> Tip:
        return self.journal.audit_base()


@pytest.fixture
def filed(there: Coordinator, tmp_path: Path) -> Filed:
    """A coordinator at which something was done, the first of which is archived."""
    there.complete(world={"inputs": [1, 8, 8], "classes": 10, "model": "linear"})
    return Filed(there, tmp_path / "archive")


def verify(filed: Filed, *more: str | Path) -> Any:
    return tide("audit", "verify", "--home", filed.home, *map(str, more))


def broken(told: Any, words: str) -> None:
    """What a command says of a chain that does not hold."""
    assert told.exit_code == 6 and words in told.stderr, told.output


def test_archive_and_database_are_one_chain(filed: Filed) -> None:
    """With the archive all is verified, without it what the database has, and that is said."""
    assert filed.base.seq == 9
    assert "Entries 1 to 9 were archived and are not verified: --archive DIR verifies" in output_of(verify(filed))
    told = verify(filed, "--archive", filed.archive.folder)
    assert told.exit_code == 0 and "archived" not in told.stdout and "have not changed" in told.stdout
    assert json_of(verify(filed, "--json"))["from"] == 10
    assert json_of(verify(filed, "--archive", filed.archive.folder, "--json"))["from"] == 1


def test_what_is_missing_or_damaged_is_named(filed: Filed) -> None:
    second = filed.archive.folder / filed.files[1].name
    content = second.read_text()
    second.write_text(content.replace('"by":""', '"by":"mallory"', 1))
    broken(verify(filed, "--archive", filed.archive.folder), f"The archive's file {second.name} is damaged. Entry ")
    second.unlink()
    broken(verify(filed, "--archive", filed.archive.folder), f"lacks the entries 4 to 6: there is no {second.name}")
    second.write_text(content)
    (filed.archive.folder / filed.files[2].name).unlink()
    broken(verify(filed, "--archive", filed.archive.folder), "lacks the entries 7 to 9")
    assert "cannot be read" in refusal_of(verify(filed, "--archive", filed.archive.folder / "nowhere"))


def test_what_was_verified_before_is_found_in_the_archive(filed: Filed) -> None:
    """Wherever it lies by now; where only the archive has it, it is asked for."""
    entry = filed.log[4]
    save(filed.there.url, Verified(entry.seq, entry.hash, 1.0))
    assert "The log begins with entry 10, and you verified 5 on" in refusal_of(verify(filed))
    assert verified_logs()[filed.there.url].seq == 5
    assert verify(filed, "--archive", filed.archive.folder).exit_code == 0
    save(filed.there.url, Verified(5, "0" * 64, 1.0), forget=True)
    broken(verify(filed, "--archive", filed.archive.folder), "Entry 5 differs from that of")
    save(filed.there.url, Verified(9, "0" * 64, 1.0), forget=True)
    broken(verify(filed), "Entry 9 differs from that of")
    save(filed.there.url, Verified(9, filed.base.hash, 1.0), forget=True)
    assert verify(filed).exit_code == 0


@pytest.mark.nightly(job="services")
def test_a_log_that_does_not_tell_of_its_archive_is_broken(filed: Filed) -> None:
    """Who cuts the beginning off and moves the base has no entry that says so."""
    journal = filed.journal
    assert isinstance(journal, MemoryJournal)
    first = journal._chain().pop(0)
    journal._base = Tip(first.seq, first.hash)
    broken(verify(filed), "The log begins with entry 11, and its entries say that entry 9 was the last to be archived")


def test_an_export_goes_on_behind_the_archive(filed: Filed, tmp_path: Path) -> None:
    """It is verified alone, as it tells where it begins, or behind the archive; so is the archive alone."""
    out, folder = tmp_path / "log.jsonl", filed.archive.folder
    assert "Those before entry 10 are in the archive" in output_of(tide("audit", "export", "--home", filed.home, "--out", out))
    assert "Entries 1 to 9 were archived" in output_of(tide("audit", "verify", "--file", out))
    assert "archived" not in output_of(tide("audit", "verify", "--file", out, "--archive", folder))
    assert json_of(tide("audit", "verify", "--file", folder, "--json"))["entries"] == 9
    assert tide("audit", "verify", "--file", folder, "--tip", filed.base.hash).exit_code == 0
    middle = folder / filed.files[1].name
    told = tide("audit", "verify", "--file", middle)
    assert told.exit_code == 2 and "begins with entry 4, and none of its entries tells of those before" in told.stderr
    assert tide("audit", "verify", "--file", middle, "--archive", folder).exit_code == 0


def test_a_log_that_is_archived_while_it_is_read(filed: Filed, monkeypatch: pytest.MonkeyPatch) -> None:
    from tideline.client import audit as log

    read, more = log.entries, [filed.step]

    def slow(*given: Any) -> Any:
        for step in more[:]:
            more.remove(step)
            step()
        return read(*given)

    monkeypatch.setattr(log, "entries", slow)
    assert "Entries 1 to 12 were archived" in output_of(verify(filed)) and filed.base.seq == 12
    found: list[Entry] = list(filed.journal.audit())
    assert found[0].seq == 13
