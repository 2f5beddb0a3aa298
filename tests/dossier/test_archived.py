"""Entries of a run that have left the log's database: read from the archive, whose chain is verified; or it is said why not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dossier.stage import OURS, VERSION, contents, lines, part, played, verified
from tests.synthetic import experiment
from tideline.core.errors import ChainBroken, Unreachable
from tideline.core.run import RunId
from tideline.dossier.layout import AUDIT, HEADS, PAGE
from tideline.dossier.making import Maker
from tideline.engine.audit.log import AuditEvent, Tip
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.simulation.federation import Federation
from tideline_server.retention.archive import FolderArchive

MOST = 5  # entries of a file
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}


@dataclass
class Filed:
    """A federation, an ended run, and an archive that has all of its entries but the last ones."""

    federation: Federation
    run: RunId
    archive: FolderArchive

    def dossier(self, files: FolderArchive | None) -> bytes:
        out = io.BytesIO()
        Maker(self.federation.journal, OURS, VERSION, files).make(self.run, out)
        return out.getvalue()

    def archive_entries(self, files: int) -> None:
        """Move so many files' entries from the log to the archive."""
        rule = Archiving(self.federation.journal, self.archive, self.federation.clock, -1000.0, lambda span: None, most=MOST)
        for _ in range(files):
            assert rule._some(self.federation.clock.now())

    @property
    def paths(self) -> list[Path]:
        return sorted(self.archive.folder.glob("audit-*.jsonl"))


def file_entries(folder: Path) -> Filed:
    """Run twice, the second time some days later, and archive all but some entries of both."""
    federation, run = played()
    made = Filed(federation, run, FolderArchive(folder))
    federation.clock.advance(5 * 86400.0)
    federation.run(federation.start(experiment("fedavg", ROSTER)))
    made.archive_entries(4)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Filed:
    """A federation whose files no test changes: that is what `filed` is for."""
    return file_entries(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def filed(whole: Filed) -> Iterator[Filed]:
    """The same federation; its files are put back after the test."""
    contents_before = {path: path.read_bytes() for path in whole.paths}
    yield whole
    for path, content in contents_before.items():
        path.write_bytes(content)


def test_it_has_what_it_had_before(tmp_path: Path) -> None:
    """The same entries, the same replies, and it verifies; the page says where the entries came from."""
    federation, run = played()
    made = Filed(federation, run, FolderArchive(tmp_path / "archive"))
    before = made.dossier(made.archive)
    made.archive_entries(3)
    content = made.dossier(made.archive)
    assert lines(content, AUDIT) == lines(before, AUDIT)[1:], "the first one tells of the key, and is not about the run"
    assert verified(content).heads["whole"] and part(content, HEADS)["archived"]["read"]
    assert "were read from the archive" in contents(content)[PAGE].decode()
    assert made.dossier(made.archive) == content


def test_where_nobody_knows_the_archive(filed: Filed) -> None:
    """The excerpt has what is left, and says what is missing, up to which entry, and whom to ask."""
    content = filed.dossier(None)
    base = filed.federation.journal.audit_base()
    heads = part(content, HEADS)
    assert not heads["whole"] and heads["archived"]["seq"] == base.seq and not heads["archived"]["read"]
    assert f"up to entry {base.seq}" in heads["archived"]["why"] and "--audit-archive" in contents(content)[PAGE].decode()
    verified(content)


def test_where_a_file_is_elsewhere(filed: Filed) -> None:
    gone = filed.paths[1]
    gone.unlink()
    heads = part(filed.dossier(filed.archive), HEADS)
    assert not heads["whole"] and f"there is no {gone.name}" in heads["archived"]["why"]
    for path in filed.paths:
        path.unlink()
    assert "lacks the entries 1 to" in part(filed.dossier(filed.archive), HEADS)["archived"]["why"]


def test_a_damaged_file_is_not_signed(filed: Filed) -> None:
    path = next(path for path in filed.paths if b"anna" in (text := path.read_bytes()) and filed.run.encode() in text)
    content = path.read_bytes()
    without_a_line = b"".join(content.splitlines(keepends=True)[1:])
    for damaged in (content.replace(b"anna", b"anne", 1), without_a_line, content[:-20], b"nonsense\n" + content, b""):
        path.write_bytes(damaged)
        with pytest.raises(ChainBroken, match=path.name) as broken:
            filed.dossier(filed.archive)
        assert "backup" in broken.value.todo


def test_an_archive_of_another_log(filed: Filed, tmp_path: Path) -> None:
    other = Filed(*played(experiment("fedavg", ROSTER, seed=5)), FolderArchive(tmp_path / "other"))
    other.federation.clock.advance(5 * 86400.0)
    other.federation.journal.record([AuditEvent("test", other.federation.clock.now()) for _ in range(20)])
    other.archive_entries(4)
    with pytest.raises(ChainBroken, match="not the one that left the database"):
        filed.dossier(other.archive)


def test_a_file_that_cannot_be_read(filed: Filed) -> None:
    class Shut(FolderArchive):
        def read(self, span: object) -> bytes:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(Unreachable, match="Permission denied"):
        filed.dossier(Shut(filed.archive.folder))


def test_a_late_run_reads_no_early_files(tmp_path: Path) -> None:
    """A chain that ends in the database's base is as it was written wherever the reading began: an archive grows for years."""
    filed = file_entries(tmp_path / "archive")
    journal, clock = filed.federation.journal, filed.federation.clock
    clock.advance(5 * 86400.0)
    late = filed.federation.start(experiment("fedavg", ROSTER, seed=3))
    filed.federation.run(late)
    started = next(entry for entry in journal.audit() if entry.run == late)
    while journal.audit_base().seq < started.seq + MOST:
        filed.archive_entries(1)
    read = list[str]()

    class Watched(FolderArchive):
        def read(self, span: object) -> bytes:
            read.append(span.name)  # type: ignore[attr-defined]
            return super().read(span)  # type: ignore[arg-type]

    out = io.BytesIO()
    Maker(journal, OURS, VERSION, Watched(filed.archive.folder)).make(late, out)
    assert verified(out.getvalue()).heads["whole"]
    assert 0 < len(set(read)) < len(filed.paths)
    assert journal.audit_base() != Tip()
