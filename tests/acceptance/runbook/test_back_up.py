"""Back up and restore, on SQLite and on Postgres, while a run on digits is under way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.runbook.book import Book, opened, plays
from tests.services import Postgres

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
BACK_UP, RESTORE = "Back up", "Restore"
REFUSED = 2


@plays("Runbook: back up, move, lose", 0)
@plays(BACK_UP, 0, 1, 3)
@plays(RESTORE, 0, 1, 4, 5)
def test_a_database_is_restored_beside_its_parts(book: Book, undisturbed: str) -> None:
    """What was revoked since stays so, by the witness; the run that went on meanwhile is repeated, to the same bytes."""
    book.coordinator()
    book.agents()
    client = book.client()
    book.shell("tideline keys add --name alice --role operator --ttl 90d")
    run = book.begin(client)
    book.play(BACK_UP, 0)
    book.stop()
    book.play(BACK_UP, 1)
    book.again()
    assert "ok" in book.play(BACK_UP, 3)
    book.shell("tideline keys revoke alice")
    book.past(client, run, 3)
    book.stop()
    book.play(RESTORE, 0)
    book.play(RESTORE, 1)
    book.again()
    said = book.play(RESTORE, 4)
    assert run in said and "hospital-c" in said and "older than its witness" in said
    said = book.play(RESTORE, 5)
    assert "API keys revoked: alice" in said and "Confirmed" in said
    book.completed(book.client(), run, undisturbed)


@plays(BACK_UP, 2, 4)
@plays(RESTORE, 2, 3)
def test_postgres_and_parts_are_restored(emptied: Postgres, tmp_path: Path, digits: Path, undisturbed: str) -> None:
    """Both from the backup, into a database of another name; the run goes on from there, to the same bytes."""
    database = f"postgresql://tideline@127.0.0.1:{emptied.port}"
    with opened(tmp_path, digits, f"{database}/tideline") as book:
        book.names |= {"db.example": f"127.0.0.1:{emptied.port}"}
        book.names |= {"--host=db.example": f"--host=127.0.0.1 --port={emptied.port}"}
        book.coordinator()
        book.agents()
        run = book.begin(book.client())
        book.play(BACK_UP, 0)
        book.stop()
        book.shell("cp -au /srv/tideline/parts /backup/")
        book.play(BACK_UP, 2)
        book.shell("cp -a /srv/tideline/admin.key /srv/tideline/signing.key /backup/")
        assert "TABLE DATA" in book.play(BACK_UP, 4)
        book.again()
        book.past(book.client(), run, 3)
        book.stop()
        book.shell("mv /srv/tideline /srv/tideline.broken; mkdir -m 700 /srv/tideline")
        book.shell("cp -a /backup/admin.key /backup/signing.key /srv/tideline/")
        book.play(RESTORE, 2)
        book.play(RESTORE, 3)
        book.net.database = f"{database}/restored"
        book.again()
        book.completed(book.client(), run, undisturbed)


def test_a_database_without_its_parts(book: Book, undisturbed: str) -> None:
    """Somebody restored the half of it: the coordinator does not start, and says why; nothing is written over."""
    book.coordinator()
    book.agents()
    run = book.begin(book.client())
    book.stop()
    parts = Path(book.spelt("/srv/tideline/parts"))
    shutil.move(parts, parts.with_name("elsewhere"))
    book.net.again("coordinator")
    assert book.net.running["coordinator"].wait(120) == REFUSED
    assert "are not those of this database" in book.net.log("coordinator")
    shutil.rmtree(parts, ignore_errors=True)
    shutil.move(parts.with_name("elsewhere"), parts)
    book.again()
    book.completed(book.client(), run, undisturbed)
