"""A database of a newer version is refused by name, taken back completely or not at all, and goes on with the older one."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from journal_names import RUN
from journal_values import began
from migrating import DIE, LATER, later
from sqlalchemy import create_engine, inspect

from tests.postgres import own_schema
from tideline_server.store import SqlJournal, StoreRefused
from tideline_server.store.database.address import read_address
from tideline_server.store.database.revisions import OLDEST, newest
from tideline_server.store.database.standing import downgrade, standing


@pytest.fixture
def where(migrated_where: str) -> str:
    """The URL of a database with a run in it."""
    with closing(SqlJournal(migrated_where)) as journal:
        began(journal)
    return migrated_where


def process(migrations: Path, where: str, *target: str) -> int:
    """How a process with other migrations ends that opens the database, or takes it back."""
    command = [sys.executable, str(Path(__file__).with_name("migrating.py")), str(migrations), where, *target]
    return subprocess.run(command, capture_output=True, check=False).returncode


def shape(where: str) -> dict[str, list[str]]:
    """Tables and their columns."""
    engine = create_engine(read_address(where))
    found = inspect(engine)
    made = {table: sorted(each["name"] for each in found.get_columns(table)) for table in found.get_table_names()}
    engine.dispose()
    return made


def has_its_run(where: str) -> bool:
    """Whether this version opens it and finds what it wrote."""
    with closing(SqlJournal(where)) as journal:
        return journal.run(RUN) is not None


@pytest.mark.nightly(job="services")
def test_a_newer_one_says_who_wrote_it_and_how_to_go_back(where: str, tmp_path: Path) -> None:
    """The older version names the newer one and its command; after that command it goes on, and nothing is lost that it wrote."""
    before = shape(where)
    assert process(later(tmp_path / "later"), where) == 0
    with pytest.raises(StoreRefused, match=f"schema revision {LATER} of tideline 99.0.0; this Tideline knows") as refusal:
        SqlJournal(where)
    assert f"with 99.0.0 run `tideline database downgrade {newest()}`" in refusal.value.todo
    with pytest.raises(StoreRefused, match=f"schema revision {LATER} of tideline 99.0.0"):
        downgrade(where, newest())
    assert process(tmp_path / "later", where, newest()) == 0 and shape(where) == before and has_its_run(where)
    assert [each.revision for each in standing(where).upgrades] == [newest()]


@pytest.mark.nightly(job="services")
def test_a_migration_that_is_killed_leaves_nothing(where: str, tmp_path: Path) -> None:
    """Of its first half neither, on either database: the old version goes on, and the new one begins anew."""
    before = shape(where)
    assert process(later(tmp_path / "dies", DIE), where) == 9
    assert shape(where) == before and standing(where).revision == newest() and has_its_run(where)
    assert process(later(tmp_path / "later"), where) == 0
    assert "colours" in shape(where) and "colour" in shape(where)["runs"]


@pytest.mark.nightly(job="services")
def test_a_way_back_that_is_killed_leaves_nothing(where: str, tmp_path: Path) -> None:
    """The newer version still opens it, and takes it back the next time."""
    assert process(later(tmp_path / "later"), where) == 0
    after = shape(where)
    assert process(later(tmp_path / "dies", DIE), where, newest()) == 9
    assert shape(where) == after and standing(where).revision == LATER
    assert process(tmp_path / "later", where, newest()) == 0 and has_its_run(where)


def test_back_to_the_oldest_and_forth(where: str) -> None:
    """Each revision since the first release can be undone and done again, with what stands in the tables."""
    before = shape(where)
    assert downgrade(where, OLDEST).revision == OLDEST and "upgrades" not in shape(where)
    assert has_its_run(where) and shape(where) == before and standing(where).revision == newest()
    assert downgrade(where, newest()).revision == newest(), "where it stands already, nothing is done"


@pytest.mark.parametrize(
    ("target", "what"),
    [("0001", f"not taken back behind revision {OLDEST}"), ("9999", "'9999' is no revision before"), ("x", "'x' is no revision")],
)
def test_revisions_that_there_is_no_way_to(where: str, target: str, what: str) -> None:
    """They are refused, and nothing changes."""
    with pytest.raises(StoreRefused, match=what):
        downgrade(where, target)
    assert standing(where).revision == newest()


@pytest.mark.nightly(job="postgres")
def test_not_beneath_a_coordinator() -> None:
    """On Postgres the others' connections are seen."""
    with own_schema() as url:
        journal = SqlJournal(url)
        with pytest.raises(StoreRefused, match=r"connections of coordinators to .* are open"):
            downgrade(url, OLDEST)
        journal.close()
        assert downgrade(url, OLDEST).revision == OLDEST


def test_a_database_that_is_none(tmp_path: Path) -> None:
    """It is refused, and no file is made."""
    with pytest.raises(StoreRefused, match="There is no database"):
        standing(tmp_path / "nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()


@pytest.mark.nightly(job="postgres")
def test_an_empty_database_has_no_revision() -> None:
    with own_schema() as url:
        assert standing(url).revision is None
        with pytest.raises(StoreRefused, match="is empty"):
            downgrade(url, OLDEST)
