"""The page on upgrading: its commands do what it says, tests play its table, and its numbers are those of records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.docs.manual import DOCS, ROOT, blocks, tables, text_of
from tideline_server.store import SqlJournal
from tideline_server.store.database.revisions import OLDEST, known, newest
from tools.records import Spoken, read_records

PAGE = DOCS / "upgrading.md"


def test_every_row_is_played() -> None:
    """By a test of the suite of upgrades."""
    rows = next(table for table in tables(text_of(PAGE)) if table[0][0] == "the new version")
    code = "".join(path.read_text() for path in (ROOT / "tests" / "upgrades").glob("test_*.py"))
    for row in rows:
        name = row[-1].strip("`")
        assert f"def {name}(" in code, row


def test_every_number_is_explained() -> None:
    """Those that records have, and no others."""
    rows = next(table for table in tables(text_of(PAGE)) if table[0][0] == "`protocol`")
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row[0])] == [each.name for each in fields(Spoken)]


def test_the_revision_of_the_way_back_is_known() -> None:
    """The page names the oldest, and the numbers in its examples are those of the first release and the next."""
    said = text_of(PAGE)
    assert f"Behind revision {OLDEST} there is no way" in said
    assert {each.spoken.schema for each in read_records(text_of(DOCS / "releases.md"))} <= set(known())


@pytest.mark.nightly(job="services")
def test_the_way_back_as_it_is_printed(tmp_path: Path) -> None:
    """The page's own block, on a database of this version: it stands where the block leads."""
    (block,) = [each for each in blocks(PAGE, "sh") if "database downgrade" in each]
    SqlJournal(tmp_path / "coordinator.db").close()
    done = subprocess.run(
        ["bash", "-euc", block], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *_, last = [line for line in done.stdout.splitlines() if "stands at revision" in line]
    assert f"stands at revision {newest()}" in first and "stands at revision 0006" in last


def environment(home: Path) -> dict[str, str]:
    """For a shell that finds this Python's tideline, and the coordinator's home."""
    script = home / "bin" / "tideline"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m tideline "$@"\n')
    script.chmod(0o700)
    return os.environ | {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}", "TIDELINE_HOME": str(home)}
