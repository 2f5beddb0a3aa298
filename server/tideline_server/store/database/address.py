"""Where a store is: a file, or the URL of a database, whose password is never shown. And what can be wrong with it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from tideline.core.errors import Refused, Unreachable


class StoreRefused(Refused):
    """The database cannot be opened, is no Tideline store, or was written by another version."""


class StoreAway(StoreRefused):
    """The database does not answer; it may be starting."""


class GaveWay(Unreachable):
    """The database undid a transaction in favour of another. The store tries again; nobody outside meets this."""


SQLITE, POSTGRES = "sqlite", "postgresql"
DRIVERS = {SQLITE: SQLITE, POSTGRES: "postgresql+psycopg", "postgresql+psycopg": "postgresql+psycopg"}
WRITE_SO = "Write postgresql://USER@HOST:PORT/DATABASE, or sqlite:///PATH"


def read_address(where: Path | str) -> URL:
    """The URL of a file's path or of a text. Raises StoreRefused unless it names a database that Tideline knows."""
    if isinstance(where, Path):
        return URL.create(SQLITE, database=str(where))
    if where.partition("?")[0].count("@") > 1:
        raise StoreRefused("The database's URL has more than one @", "Write an @ in a password as %40, and a / as %2F")
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # errors never repeat the text: a password may stand anywhere in it
        raise StoreRefused("The database's URL cannot be read", WRITE_SO) from None
    if url.drivername not in DRIVERS:
        raise StoreRefused(f"{url.drivername}: is no kind of database that Tideline supports", WRITE_SO)
    return checked(url.set(drivername=DRIVERS[url.drivername]))


def checked(url: URL) -> URL:
    """The URL, if it says what its kind needs. Raises StoreRefused."""
    file = url.drivername == SQLITE
    if file and (url.host or url.query or url.database in (None, "", ":memory:")):
        raise StoreRefused("A URL of SQLite names a file and nothing else", "Write sqlite:///PATH; an absolute path has four /")
    if not file and not url.database:
        raise StoreRefused(f"{shown(url)} names no database", WRITE_SO)
    return url


def shown(url: URL) -> str:
    """The place for people: a file's path, or a URL without password and options."""
    if url.drivername == SQLITE:
        return str(url.database)
    return URL.create(POSTGRES, url.username, None, url.host, url.port, url.database).render_as_string()
