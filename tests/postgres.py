"""A Postgres for the tests: where it answers, and schemas of their own in it."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
import pytest

ADDRESS = os.environ.get("TIDELINE_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@functools.cache
def why_not() -> str:
    """Why there is none; nothing if it answers."""
    try:
        psycopg.connect(ADDRESS, connect_timeout=5).close()
    except psycopg.Error as error:
        return f"NOT TESTED: no Postgres answers at TIDELINE_TEST_POSTGRES ({ADDRESS}): {error}"
    return ""


def needed() -> None:
    """Skip where no Postgres answers, loudly; in CI that is a failure."""
    if why_not() and os.environ.get("CI", "").lower() == "true":
        pytest.fail(why_not())
    if why_not():
        pytest.skip(why_not())


# Every other connection of the same name: those of the test's own schema.
OTHERS = "application_name = current_setting('application_name') AND pid <> pg_backend_pid()"


@contextmanager
def own_schema() -> Iterator[str]:
    """An empty schema for the time of the block: the URL that leads into it."""
    needed()
    name = f"tideline_test_{uuid.uuid4().hex[:12]}"
    run(ADDRESS, f"CREATE SCHEMA {name}")
    try:
        yield with_options(named(ADDRESS, name), f"-csearch_path={name}")
    finally:
        run(ADDRESS, f"DROP SCHEMA {name} CASCADE")


def with_options(url: str, more: str) -> str:
    """The URL with more settings of the session."""
    theirs = dict(parse_qsl(urlsplit(url).query))
    return with_query(url, theirs | {"options": " ".join(filter(None, [theirs.get("options"), more]))})


def named(url: str, name: str) -> str:
    """The URL whose connections have a name, by which a test finds its own."""
    return with_query(url, {"application_name": name} | dict(parse_qsl(urlsplit(url).query)))


def renamed(url: str, name: str) -> str:
    """The URL whose connections have this name, whatever theirs was."""
    return with_query(url, dict(parse_qsl(urlsplit(url).query)) | {"application_name": name})


def with_query(url: str, query: dict[str, str]) -> str:
    """The URL with another query."""
    return urlunsplit(urlsplit(url)._replace(query=urlencode(query, quote_via=quote)))


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Do something behind the store's back; the rows of the last statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
