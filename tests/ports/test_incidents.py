"""What a database says of its place goes to the log; others are told its line's number."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from tests.services import free_port
from tideline.core.errors import Unreachable
from tideline_server.store.database import incidents
from tideline_server.store.database.dialect import kind_of, translated


def failure(port: int) -> Unreachable:
    """What somebody is told where no Postgres answers."""
    url = make_url(f"postgresql+psycopg://ann:word@127.0.0.1:{port}/tide")
    engine = kind_of(url).engine_at(url)
    with pytest.raises(Unreachable) as caught, translated():
        engine.connect()
    return caught.value


def test_the_place_is_in_the_log_alone() -> None:
    """With the same number."""
    port = free_port()
    with capture_logs() as lines:
        error = failure(port)
    assert str(port) not in str(error) and "127.0.0.1" not in str(error) and "ann" not in str(error).split()
    assert f"incident {error.context['incident']}" in error.todo
    (line,) = lines
    assert (line["event"], line["incident"]) == ("store_failed", error.context["incident"])
    assert f"port {port}" in line["cause"]


def test_the_same_trouble_has_one_number_and_one_line() -> None:
    """Whoever asks again is told the same, and the log does not fill up."""
    port = free_port()
    with capture_logs() as lines:
        assert str(failure(port)) == str(failure(port))
    assert len({line["cause"] for line in lines}) == 1
    assert len(lines) <= 2  # if a minute has just begun


def test_a_file_of_sqlite_is_no_exception() -> None:
    """Its words too are for the log."""
    orig = sqlite3.OperationalError("unable to open database file")
    orig.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    with pytest.raises(Unreachable) as caught, translated():
        raise OperationalError("SELECT 1", {}, orig)
    assert "unable to open" not in str(caught.value)
    assert caught.value.context["incident"] == incidents.away("", "unable to open database file").context["incident"]
