"""Migrations lead to the tables of the code, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from journal_wear import four_openings
from sqlalchemy import Connection, Engine, Inspector, inspect, text

from tideline_server.store import SqlJournal, StoreRefused
from tideline_server.store.database.revisions import known, newest
from tideline_server.store.schema import metadata


@pytest.mark.smoke
def test_no_difference_is_left(where: str, engine: Engine) -> None:
    """Alembic finds nothing that another migration would have to do."""
    SqlJournal(where).close()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_keys_and_columns_are_those_of_the_code(where: str, engine: Engine) -> None:
    """Primary keys and collations, which Alembic does not compare, are also those that the tables of the code would have."""
    SqlJournal(where).close()
    with engine.begin() as connection:
        migrated = described(inspect(connection))
        connection.execute(text("DROP TABLE alembic_version"))
        metadata.drop_all(connection)
        metadata.create_all(connection)
        assert described(inspect(connection)) == migrated


def described(inspector: Inspector) -> dict[str, Any]:
    """All that a database tells of its tables."""
    return {
        table: {
            "columns": [column | {"type": repr(column["type"])} for column in inspector.get_columns(table)],
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "unique": [each["column_names"] for each in inspector.get_unique_constraints(table)],
            "references": sorted(
                (key["constrained_columns"], key["referred_table"]) for key in inspector.get_foreign_keys(table)
            ),
            "indexes": sorted((each["name"] or "", each["column_names"]) for each in inspector.get_indexes(table)),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def revision(connection: Connection) -> str:
    """Which revision a database says it has."""
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def test_a_newer_store_is_refused(where: str, engine: Engine) -> None:
    """Both revisions are named, and nothing is written."""
    SqlJournal(where).close()
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0099'"))
    with pytest.raises(StoreRefused, match=f"revision 0099; this Tideline knows revisions up to {newest()}"):
        SqlJournal(where)
    with engine.connect() as connection:
        assert revision(connection) == "0099"


def test_another_programs_database_is_refused(where: str, engine: Engine) -> None:
    """Also one that has migrations of its own."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
    with pytest.raises(StoreRefused, match="a database of something else"):
        SqlJournal(where)


def test_openings_at_once_do_not_race(where: str) -> None:
    """Of four that open an empty database at the same moment one makes the tables."""
    four_openings(where)


@pytest.mark.smoke
def test_a_migration_that_fails_leaves_nothing(where: str, engine: Engine) -> None:
    """What it did before it failed is undone, in SQLite too, and the next opening begins anew."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE audit_tip (id INTEGER)"))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))  # says nothing: from the first on
    with pytest.raises(StoreRefused, match="already exists"):
        SqlJournal(where)
    with engine.begin() as connection:
        assert sorted(inspect(connection).get_table_names()) == ["alembic_version", "audit_tip"]
        connection.execute(text("DROP TABLE audit_tip"))
        connection.execute(text("DROP TABLE alembic_version"))
    SqlJournal(where).close()


def test_revisions_stand_in_one_line() -> None:
    """The oldest is the one that existing stores have; numbers only go up."""
    assert known()[0] == "0001" and list(known()) == sorted(known())
