"""The audit log in a database: what guards it, and several writers."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from journal_names import ANN, TEAM
from journal_values import answer, began, client, first, invite, together
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from tideline.core.errors import ChainBroken
from tideline.engine.audit.log import AuditEvent, Tip, follow
from tideline_server.store import SqlJournal


@pytest.fixture
def where(migrated_where: str) -> str:
    """The URL of an empty store."""
    return migrated_where


FORGED = "INTO audit VALUES (1, 'log_begun', 1.0, 'mallory', '', '', '{}', 'hash')"


def tampered(engine: Engine, statement: str) -> None:
    """Change the log as somebody does who takes its triggers away first."""
    with engine.begin() as connection:
        for what in ("UPDATE", "DELETE"):
            on = " ON audit" if engine.dialect.name == "postgresql" else ""
            connection.execute(text(f"DROP TRIGGER audit_no_{what}{on}"))
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET details = '{}' WHERE seq = 1",
        "DELETE FROM audit",
        f"INSERT {FORGED} ON CONFLICT (seq) DO UPDATE SET by = excluded.by",
    ],
)
def test_the_database_refuses_to_change_an_entry(where: str, engine: Engine, statement: str) -> None:
    """Also for whoever has the database's password, as long as he leaves the triggers."""
    with closing(SqlJournal(where)) as journal:
        journal.add_invite(invite())
        before = journal.audit()
        with pytest.raises(DBAPIError, match="only added to"), engine.begin() as connection:
            connection.execute(text(statement))
        assert journal.audit() == before


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("DELETE FROM audit WHERE seq = 2", 0),
        ("DELETE FROM audit WHERE seq <= 3", 2),
        ("UPDATE audit_base SET seq = 3, hash = 'another'", 2),
        ("UPDATE audit_base SET seq = 99, hash = hash", 0),
        ("UPDATE audit_base SET seq = 1, hash = hash", 2),
        ("UPDATE audit_base SET chain = 'another'", 2),
        ("DELETE FROM audit_base", 0),
        ("INSERT INTO audit_base VALUES (2, 3, 'hash', 'chain')", 0),
    ],
)
def test_the_database_lets_archived_entries_go_alone(where: str, engine: Engine, statement: str, seq: int) -> None:
    """Those before the base, which moves ahead to an entry of the log and nowhere else."""
    with closing(SqlJournal(where)) as journal:
        journal.add_invite(invite(), "alice", 1.0)
        journal.enrol("token", client())
        journal.revoke(ANN, "left", 5.0, "bob")
        for entry in journal.audit(limit=seq)[-1:]:
            assert journal.trim_audit(Tip(), Tip(entry.seq, entry.hash), AuditEvent("test", 6.0))
        before = (journal.audit(), journal.audit_base())
        with pytest.raises(DBAPIError, match="only added to"), engine.begin() as connection:
            connection.execute(text(statement))
        assert (journal.audit(), journal.audit_base()) == before


def test_a_database_says_how_much_it_holds(where: str) -> None:
    """Its bytes, and what was archived."""
    with closing(SqlJournal(where)) as journal:
        began(journal)
        entries = journal.audit()
        assert journal.trim_audit(Tip(), Tip(entries[0].seq, entries[0].hash), AuditEvent("test", 6.0))
        found = journal.growth()
        assert (found.entries, found.archived, found.events) == (len(entries), 1, 1) and found.bytes > 50_000


def test_sqlite_replaces_no_entry(tmp_path: Path) -> None:
    """Its REPLACE calls no trigger of a deletion. What is behind all others is added as before."""
    made = create_engine(f"sqlite:///{tmp_path / 'journal.db'}")
    with closing(SqlJournal(tmp_path / "journal.db")) as journal:
        journal.add_invite(invite())
        before = journal.audit()
        for statement in (f"INSERT OR REPLACE {FORGED}", f"REPLACE {FORGED}"):
            with pytest.raises(DBAPIError, match="only added to"), made.begin() as connection:
                connection.execute(text(statement))
        journal.record([AuditEvent("test", 1.0)])
        assert journal.audit()[:-1] == before and len(before) == 2
    made.dispose()


@pytest.mark.parametrize(
    ("statement", "entry"),
    [
        ("UPDATE audit SET by = 'mallory' WHERE seq = 2", 2),
        ("UPDATE audit SET at = at + 1 WHERE seq = 3", 3),
        ("DELETE FROM audit WHERE seq = 2", 2),
        ('UPDATE audit SET details = \'{"reason": ""}\' WHERE seq = 4', 4),
    ],
)
def test_who_takes_the_triggers_away_is_found_out(where: str, engine: Engine, statement: str, entry: int) -> None:
    """The chain tells which entry was changed or taken out."""
    with closing(SqlJournal(where)) as journal:
        journal.add_invite(invite(), "alice", 1.0)
        journal.enrol("token", client())
        journal.revoke(ANN, "left", 5.0, "bob")
    tampered(engine, statement)
    with closing(SqlJournal(where)) as journal, pytest.raises(ChainBroken) as told:
        follow(Tip(), journal.audit())
    assert told.value.context["entry"] == entry


BOTH = {
    "no object": "details = '[1]'",
    "nothing": "details = 'null'",
    "no value": "details = NULL",
    "spaced": "details = '{\"a\": 1}'",
    "half a character": """details = '{"a":"\\ud800"}'""",
    "deep": 'details = \'{"a":' + "[" * 300 + "]" * 300 + "}'",
    "a hash that is none": "hash = 'x'",
}
TWICE = """replace(CAST(details AS TEXT), '{', '{"invite":"forged",')"""
LITE = {
    "a name twice": f"details = {TWICE}",
    "cut": "details = substr(details, 1, length(details) - 1)",
    "empty": "details = ''",
    "too deep": 'details = \'{"a":' + "[" * 5000 + "]" * 5000 + "}'",
    "no number": """details = '{"a":NaN}'""",
    "no UTF-8 in details": "details = CAST(X'7BFF' AS TEXT)",
    "no UTF-8": "client = CAST(X'FF' AS TEXT)",
    "bytes": "client = CAST(client AS BLOB)",
    "a text for a time": "at = 'x'",
    "no UTF-8 for a time": "at = CAST(X'FF' AS TEXT)",
    "no time": "at = 9e999",
}
LARGE = {"a name twice": f"details = CAST({TWICE} AS JSON)", "no time": "at = 'Infinity'", "no number for a time": "at = 'NaN'"}
WAYS = [("sqlite", *each) for each in (BOTH | LITE).items()] + [("postgres", *each) for each in (BOTH | LARGE).items()]


@pytest.mark.parametrize(
    ("empty_where", "change"), [way[::2] for way in WAYS], ids=[" ".join(way[:2]) for way in WAYS], indirect=["empty_where"]
)
def test_an_entry_that_cannot_be_read_is_named(where: str, engine: Engine, change: str) -> None:
    """Its number is told, and the others are listed as they were."""
    with closing(SqlJournal(where)) as journal:
        journal.add_invite(invite(), "alice", 1.0)
        journal.enrol("token", client())
        journal.revoke(ANN, "left", 5.0, "bob")
        before = journal.audit()
    tampered(engine, f"UPDATE audit SET {change} WHERE seq = 3")
    with closing(SqlJournal(where)) as journal:
        after = journal.audit()
        assert after[:2] + after[3:] == before[:2] + before[3:]
        assert after[2].details != before[2].details or after[2].hash != before[2].hash
        json.dumps(asdict(after[2]), ensure_ascii=False, allow_nan=False).encode()
        with pytest.raises(ChainBroken) as told:
            follow(Tip(), after)
    assert told.value.context["entry"] == 3


def test_two_coordinators_write_one_chain(where: str) -> None:
    """Each over connections of its own; every entry has its place."""
    with closing(SqlJournal(where)) as one, closing(SqlJournal(where)) as other:
        began(one)

        def person(journal: SqlJournal, name: str) -> None:
            for turn in range(10):
                journal.add_invite(invite(f"{name}{turn}"), name)

        sites = [partial(answer, journal, first(who)) for journal, who in zip((one, other, one), TEAM, strict=True)]
        together(partial(person, one, "p"), partial(person, other, "q"), *sites)
        assert one.audit() == other.audit()
        assert follow(Tip(), one.audit()) == one.audit_tip() == Tip(25, other.audit()[-1].hash)
