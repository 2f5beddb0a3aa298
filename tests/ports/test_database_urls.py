"""The URL of a database: what is taken, what is refused with which words, and that its password is told to nobody."""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_names import RUN
from journal_values import began

from tests.postgres import ADDRESS, own_schema, run, with_options
from tideline_server.store import SqlJournal, StoreRefused
from tideline_server.store.database.address import read_address, shown

SECRET = "s3cret-word"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"postgresql://ann:{SECRET}@db.example:6000/tide", "postgresql://ann@db.example:6000/tide"),
        (f"postgresql+psycopg://ann:{SECRET}@db.example/tide", "postgresql://ann@db.example/tide"),
        (f"postgresql://db.example/tide?user=ann&password={SECRET}", "postgresql://db.example/tide"),
        (f"postgresql:///tide?host=/run/postgresql&password={SECRET}", "postgresql:///tide"),
        (f"postgresql://ann:{SECRET}%40%2F@db.example/tide", "postgresql://ann@db.example/tide"),
        ("sqlite:////var/lib/tide.db", "/var/lib/tide.db"),
        ("sqlite:///tide.db", "tide.db"),
    ],
)
def test_what_is_taken_is_shown_without_its_password(url: str, told: str) -> None:
    """People see where the store is, and nothing that opens it."""
    assert shown(read_address(url)) == told


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "cannot be read"),
        ("tide", "cannot be read"),
        (f"postgresql://ann:{SECRET}/tide", "cannot be read"),
        (f"postgresql://ann:{SECRET}@db.example:port/tide", "cannot be read"),
        (f"postgresql://ann:{SECRET}@x@db.example/tide", "more than one @"),
        (f"postgresql://ann:{SECRET}@db.example", "names no database"),
        (f"postgresql://ann:{SECRET}@db.example/", "names no database"),
        (f"postgres://ann:{SECRET}@db.example/tide", "no kind of database"),
        (f"postgresql+asyncpg://ann:{SECRET}@db.example/tide", "no kind of database"),
        (f"mysql://ann:{SECRET}@db.example/tide", "no kind of database"),
        ("sqlite://", "names a file and nothing else"),
        ("sqlite:///:memory:", "names a file and nothing else"),
        ("sqlite:///tide.db?mode=ro", "names a file and nothing else"),
    ],
)
def test_what_cannot_be_meant_is_refused(url: str, words: str) -> None:
    """The message says what is wrong and how it is written, and repeats no password."""
    with pytest.raises(StoreRefused, match=words) as told:
        SqlJournal(url)
    assert told.value.todo and secretive(told.value)


def secretive(error: StoreRefused) -> bool:
    """Whether neither the error, nor what led to it, nor its trace holds the password."""
    return SECRET not in "".join(traceback.format_exception(error)) + str(error) + repr(error.context)


def test_a_file_by_its_url(tmp_path: Path) -> None:
    """It is the store that the path names."""
    journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}")
    began(journal)
    journal.close()
    again = SqlJournal(tmp_path / "journal.db")
    assert again.run(RUN) is not None
    again.close()


def test_nobody_answers() -> None:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    refused(f"postgresql://ann:{SECRET}@127.0.0.1:{port}/tide", "Connection refused", "See that Postgres runs there")


def refused(url: str, words: str, todo: str) -> None:
    """The store cannot be opened; the message says where, why and what to do."""
    with pytest.raises(StoreRefused, match=words) as told:
        SqlJournal(url)
    where = shown(read_address(url))
    assert told.value.what.startswith(f"The store {where} cannot be opened")
    assert told.value.context["path"] == where
    assert todo in told.value.todo, told.value
    assert secretive(told.value)


@pytest.fixture
def doorkeeper() -> Iterator[int]:
    """A server that wants a password, and is content with none: its port."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def keep() -> None:
            line, _ = door.accept()
            with line:
                while (asked := line.recv(4096))[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):  # TLS? GSS?
                    line.sendall(b"N")
                assert b"user\0ann\0" in asked
                line.sendall(b"R\0\0\0\x08\0\0\0\x03")
                assert SECRET.encode() in line.recv(4096)
                body = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "ann"\0\0'
                line.sendall(b"E" + (len(body) + 4).to_bytes(4, "big") + body)

        keeper = threading.Thread(target=keep)
        keeper.start()
        yield door.getsockname()[1]
        keeper.join()


def test_a_wrong_password(doorkeeper: int) -> None:
    """The server's words are told; the password is not."""
    refused(f"postgresql://ann:{SECRET}@127.0.0.1:{doorkeeper}/tide", "password authentication failed", "Correct the user or")


@pytest.fixture
def apart() -> Iterator[str]:
    """The URL of an empty schema."""
    with own_schema() as url:
        yield url


@pytest.mark.nightly(job="postgres")
def test_a_database_that_does_not_exist(apart: str) -> None:
    """The message says how to make one."""
    base = ADDRESS.partition("?")[0].rpartition("/")[0]
    refused(f"{base}/no_such_tideline", 'database "no_such_tideline" does not exist', "createdb")


@pytest.mark.nightly(job="postgres")
def test_a_schema_that_does_not_exist(apart: str) -> None:
    """Without a schema there is no lock for writers either: nothing is opened."""
    with pytest.raises(StoreRefused, match="no schema of those in search_path"):
        SqlJournal(with_options(ADDRESS, "-csearch_path=no_such_tideline"))


@pytest.mark.nightly(job="postgres")
def test_an_option_that_does_not_exist(apart: str) -> None:
    """libpq names it."""
    refused(f"{ADDRESS.partition('?')[0]}?colour=blue", "colour", "behind the ?")


@pytest.mark.nightly(job="postgres")
def test_a_user_who_may_not_make_tables(apart: str) -> None:
    """The message says what has to be granted."""
    schema = apart.rpartition("%3D")[2]
    role = f"{schema}_reader"
    run(apart, f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'", f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    try:
        there = apart.partition("://")[2].rpartition("@")[2]
        refused(f"postgresql://{role}:{SECRET}@{there}", "permission denied for schema", "GRANT CREATE")
    finally:
        run(apart, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.nightly(job="postgres")
def test_a_strangers_tables(apart: str) -> None:
    """A schema with tables, but not ours, is left as it is."""
    run(apart, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreRefused, match="a database of something else"):
        SqlJournal(apart)
    run(apart, "DROP TABLE recipes", "CREATE TABLE audit_tip (other TEXT)")
    with pytest.raises(StoreRefused, match="a database of something else"):
        SqlJournal(apart)
