"""Migrations lead to the tables of the code, on both databases, from nothing and from older stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from journal_values import RUN, advance, began, digest, files, run_row, two_rounds_old
from journal_wear import four_openings
from sqlalchemy import Connection, Engine, Inspector, create_engine, inspect, text

from tests.postgres import own_schema
from tideline.core.handle import Handle
from tideline.core.run import ClientId
from tideline.engine.model.accounts import Client, Invite, Keys, Standing
from tideline.engine.model.orders import Envelope
from tideline.engine.model.runs import Lease
from tideline_server.store import SqlJournal, StoreRefused
from tideline_server.store.database.address import read_address
from tideline_server.store.database.versions import configured, known, newest
from tideline_server.store.schema import metadata


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'journal.db'}"
        return
    with own_schema() as url:
        yield url


@pytest.fixture
def engine(where: str) -> Iterator[Engine]:
    """The database behind the store's back."""
    made = create_engine(read_address(where))
    yield made
    made.dispose()


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


def test_a_store_from_before_migrations_goes_on(where: str, engine: Engine) -> None:
    """It gets its revision written down, and all that was in it is there; the next opening finds it up to date."""
    with engine.begin() as connection:
        command.upgrade(configured(connection), "0001")
        first = set(inspect(connection).get_table_names()) - {"alembic_version"}
        indexed = indexes(connection)
    journal = SqlJournal(where)
    began(journal)
    journal.close()
    with engine.begin() as connection:
        for later in set(inspect(connection).get_table_names()) - first:
            connection.execute(text(f"DROP TABLE {later}"))
        for later in indexes(connection) - indexed:
            connection.execute(text(f"DROP INDEX {later}"))
        without_later_columns(connection)
    for _ in range(2):
        journal = SqlJournal(where)
        assert journal.run(RUN) == run_row()
        assert journal.leases() == (Lease(RUN),)
        journal.close()
        with engine.connect() as connection:
            assert revision(connection) == newest()


def test_values_that_were_sealed_before_have_no_signatures(where: str, engine: Engine) -> None:
    """They were signed once each; who reads them is told so, and nothing is lost."""
    journal = SqlJournal(where)
    began(journal)
    journal.close()
    handle = Handle[Any](digest("value"), 9, ClientId("ann"), "train", 1)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE sealed DROP COLUMN signatures"))
        connection.execute(text("ALTER TABLE sealed ADD COLUMN signature VARCHAR NOT NULL DEFAULT ''"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0012'"))
        row = {"run": RUN, "digest": handle.digest, "keys": '{"bob": "ab"}', "cipher": digest("cipher")}
        values = "(:run, 'ann', 'train', 1, :digest, 9, 0, :cipher, 57, :keys, 'ef')"
        connection.execute(text(f"INSERT INTO sealed VALUES {values}"), row)
    journal = SqlJournal(where)
    assert journal.envelopes(RUN, [handle]) == (Envelope(handle, digest("cipher"), 57, {ClientId("bob"): "ab"}, {}),)
    journal.close()


def without_later_columns(connection: Connection) -> None:
    """Take out the columns of revisions 5, 8, 11 and 12."""
    inspector = inspect(connection)
    before = {"invites": 5, "clients": 7, "rounds": 10, "orders": 19}
    for table, columns in before.items():
        for column in inspector.get_columns(table)[columns:]:
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column['name']}"))


def test_clients_from_before_keys_remain(where: str, engine: Engine) -> None:
    """They are approved, speak protocol 1 and prove themselves by their credential, until their keys are bound to it."""
    with engine.begin() as connection:
        command.upgrade(configured(connection), "0004")
        for name in ("ann", "bob"):
            row = f"'{name}', 'hash of {name}', '[\"source\"]', '{{}}', '0.1', 1.0, 2.0"
            connection.execute(text(f"INSERT INTO clients VALUES ({row})".replace(":", "\\:")))
        connection.execute(text("INSERT INTO invites VALUES ('token', '', '{}', 99.0, '')"))
    journal = SqlJournal(where)
    ann = journal.client("ann")
    assert ann == Client(ClientId("ann"), "hash of ann", ("source",), {}, "0.1", 1.0, 2.0)
    assert (ann.protocol, ann.keys, ann.standing, ann.rotate) == (1, None, Standing.APPROVED, False)
    assert journal.invite("token") == Invite("token", "", {}, 99.0)
    assert journal.rekey(ann.name, "", Keys("aa", "bb"), 2)
    assert [(c.name, c.protocol, c.credential_hash) for c in journal.clients()] == [("ann", 2, ""), ("bob", 1, "hash of bob")]
    journal.close()


def indexes(connection: Connection) -> set[str]:
    """The names of all indexes."""
    inspector = inspect(connection)
    return {str(each["name"]) for table in inspector.get_table_names() for each in inspector.get_indexes(table)}


def test_parts_of_an_older_store_are_collected(where: str, engine: Engine) -> None:
    """What nothing referred to any more when the notes of it began goes with the first collection, and nothing else."""
    journal = SqlJournal(where)
    two_rounds_old(journal)
    journal.advance(advance(1, files("m3"), files("s3"), keep_from=2))
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE sealed"))
        connection.execute(text("DROP TABLE audit"))
        connection.execute(text("DROP TABLE audit_tip"))
        connection.execute(text("DROP TABLE dropped"))
        connection.execute(text("DROP TABLE loose"))
        connection.execute(text("DROP TABLE api_keys"))
        connection.execute(text("DROP INDEX parts_by_age"))
        connection.execute(text("DROP INDEX runs_by_age"))
        without_later_columns(connection)
        connection.execute(text("UPDATE alembic_version SET version_num = '0003'"))
    journal.close()
    journal = SqlJournal(where)
    assert [(dict(r.marks), dict(r.groups), dict(r.tables)) for r in journal.rounds(RUN)] == [({}, {}, {})] * 3
    assert set(journal.collect(0.0)) == {digest(name) for name in ("m", "s", "r", "m2", "s2")}
    assert journal.collect(1e9) == ()
    journal.close()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM loose")) == 0


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


def test_a_migration_that_fails_leaves_nothing(where: str, engine: Engine) -> None:
    """What it did before it failed is undone, in SQLite too, and the next opening begins anew."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE meta (name VARCHAR, value VARCHAR)"))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))  # says nothing: from the first on
    with pytest.raises(StoreRefused, match="already exists"):
        SqlJournal(where)
    with engine.begin() as connection:
        assert sorted(inspect(connection).get_table_names()) == ["alembic_version", "meta"]
        connection.execute(text("DROP TABLE meta"))
        connection.execute(text("DROP TABLE alembic_version"))
    SqlJournal(where).close()


def test_revisions_stand_in_one_line() -> None:
    """The oldest is the one that existing stores have; numbers only go up."""
    assert known()[0] == "0001"
    assert list(known()) == sorted(known())
