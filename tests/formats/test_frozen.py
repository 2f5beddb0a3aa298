"""The formats of every release are read as they were, and what was released of schema and wire stays as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine

from tests.acceptance.harness import ROOT
from tests.formats import files
from tests.upgrades.trees import environment, needed
from tideline import __version__
from tideline.archive.layout import LAYOUT
from tideline.core.signing import PROTOCOL
from tideline.engine import formats
from tideline.learning.model_file import FORMAT
from tideline_server.store.database.revisions import OLDEST, configured, known
from tools.records import PAGE, Record, read_records

RELEASED = Path(__file__).parent / "released"
RECORDS = {each.version: each for each in read_records((ROOT / PAGE).read_text(encoding="utf-8"))}
EVERY = pytest.mark.parametrize("version", sorted(RECORDS))


def frozen(version: str, what: str) -> str:
    """What a test says that fails."""
    return (
        f"{what} is frozen since {version}: raise the format's number (engine/formats.py, PROTOCOL, or a migration), and "
        f"write a reader for the old one. tests/formats/released/{version} stays as it is. docs/upgrading.md says more"
    )


def test_each_release_has_its_files() -> None:
    """And each folder is of a release: nobody deletes one to have a test pass. The newest has its record a commit later."""
    written = {path.name for path in RELEASED.iterdir() if any(each.is_file() for each in path.rglob("*"))}
    assert written - {__version__} == set(RECORDS) - {__version__}


@EVERY
def test_what_it_wrote_is_read(version: str) -> None:
    """Archive, vault, ledger, audit log, model and database, to the same values."""
    found = json.loads(json.dumps(files.read(RELEASED / version)))
    expected = json.loads((RELEASED / version / "read.json").read_text())
    for name, said in expected.items():
        assert found[name] == said, frozen(version, f"The format {name}")


@EVERY
def test_its_schema_is_that_of_its_revision(version: str, tmp_path: Path) -> None:
    """The migrations up to its revision make the tables that it made, to the letter, on SQLite."""
    engine = create_engine(f"sqlite:///{tmp_path / 'c.db'}")
    with engine.begin() as connection:
        command.upgrade(configured(connection), RECORDS[version].spoken.schema)
    engine.dispose()
    assert files.tables_of(tmp_path / "c.db") == (RELEASED / version / "schema.sql").read_text(), frozen(version, "The schema")


@EVERY
def test_its_migrations_are_as_they_were(version: str) -> None:
    """Databases have been through them: a change would reach new ones alone, and on Postgres nothing else would notice it."""
    released, now = json.loads((RELEASED / version / "migrations.json").read_text()), files.migrations()
    for kind, said in released.items():
        for name, digest in said.items():
            assert now[kind].get(name) == digest, frozen(version, f"The {kind} {name} of the migrations")


@EVERY
def test_its_messages_are_understood(version: str) -> None:
    """As long as its protocol is spoken: fields keep number and type, calls their messages. More of both may come."""
    if RECORDS[version].spoken.protocol != PROTOCOL:
        pytest.skip("its protocol is no longer this one")
    gone = set((RELEASED / version / "wire.txt").read_text().splitlines()) - set(files.wire())
    assert not gone, frozen(version, f"The wire ({', '.join(sorted(gone))})")


def test_revisions_after_the_oldest_can_be_taken_back() -> None:
    """Each says how."""
    for path in files.MIGRATIONS.glob("r*.py"):
        number = path.stem.partition("_")[0].removeprefix("r")
        assert number <= OLDEST or "\ndef downgrade() -> None:" in path.read_text(), f"{path.name} has no downgrade()"
    assert OLDEST in known()


def test_a_frozen_file_that_changes_is_noticed(tmp_path: Path) -> None:
    """The tests above can fail: a file that says something else, or that a reader no longer understands."""
    files.write(tmp_path / "made")
    said = json.loads((tmp_path / "made" / "read.json").read_text())
    assert not [name for name, each in said.items() if isinstance(each, dict) and "refused" in each]
    lines = (tmp_path / "made" / "audit.jsonl").read_text().splitlines()
    (tmp_path / "made" / "audit.jsonl").write_text("\n".join([lines[0], re.sub("ann", "bob", lines[1])]) + "\n")
    found = files.read(tmp_path / "made")
    assert found["audit"] != said["audit"] and found["audit"]["refused"] == "ChainBroken"


@pytest.mark.nightly(job="services")
def test_the_last_release_reads_what_this_tree_writes(tmp_path: Path) -> None:
    """To the same values, or it refuses with words that say what to do: so homes and files can go back."""
    old = needed(tmp_path / "old")
    files.write(tmp_path / "made")
    path = os.pathsep.join((environment(old.tree)["PYTHONPATH"], str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats", "--read", str(tmp_path / "made")],
        env=os.environ | {"PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, said = json.loads(done.stdout), json.loads((tmp_path / "made" / "read.json").read_text())
    other = {name for name in said if found[name] != said[name]}
    assert all(found[name].get("todo") for name in other), found
    assert other <= allowed(old.record), f"{sorted(other)}: {old.record.version} cannot read it, and no number was raised"


def allowed(record: Record) -> set[str]:
    """What the last release need not read: formats whose numbers were raised since."""
    was, now = record.spoken, {"vault": formats.VAULT, "ledger": formats.LEDGER, "audit": formats.AUDIT}
    now |= {"archive": int(LAYOUT), "model": FORMAT}
    raised = {name for name, number in now.items() if getattr(was, name) != number}
    return raised | ({"database"} if was.schema != known()[-1] else set())


@EVERY
def test_reading_changes_nothing(version: str) -> None:
    """What is frozen stays as it is in git, however often the tests run."""
    before = contents(RELEASED / version)
    files.read(RELEASED / version)
    assert contents(RELEASED / version) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
