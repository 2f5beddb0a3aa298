"""The gauges of the federation: a scrape is answered whatever the database and the store of parts do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tideline.core.errors import Unreachable
from tideline.engine.model.deletion import Growth
from tideline.engine.model.runs import Tally
from tideline_server import metrics as federation
from tideline_server.metrics import Federation, Gauges
from tideline_server.retention.growth import gauges_of_growth

TALLY = Tally(runs={"running": 2}, clients={"approved": 3}, orders=4, parts=5, entries=6)


def told(gauges: Federation) -> dict[str, float]:
    """Every sample without labels."""
    return {sample.name: sample.value for family in gauges.collect() for sample in family.samples if not sample.labels}


def at_once(work: Callable[[], None]) -> None:
    """What is done apart is done now."""
    work()


def away() -> Tally:
    """A database that does not answer."""
    raise Unreachable("The store does not answer", "Wait")


def test_all_is_told() -> None:
    """What the database, the parts and this process say."""
    found = told(
        Federation(lambda: TALLY, lambda: 77, {"tideline_x": ("x", lambda: 1.5), "tideline_y": ("y", lambda: None)}, at_once)
    )
    assert (found["tideline_store_up"], found["tideline_parts_bytes"], found["tideline_x"]) == (1.0, 77.0, 1.5)
    assert found["tideline_orders_open"] == 4.0 and "tideline_y" not in found


def valued(gauges: Gauges) -> dict[str, float | None]:
    """Each gauge's value."""
    return {name: ask() for name, (_, ask) in gauges.items()}


def test_what_grows_is_told() -> None:
    """Of an archive and a rule where there are some; of a database that is away, nothing."""
    grown = Growth(bytes=100, events=20, entries=7, archived=3)
    found = valued(gauges_of_growth(lambda: grown, lambda: 55, lambda: True, at_once))
    assert found == {
        "tideline_database_bytes": 100.0,
        "tideline_events": 20.0,
        "tideline_audit_stored_entries": 7.0,
        "tideline_audit_archived_entries": 3.0,
        "tideline_audit_archive_bytes": 55.0,
        "tideline_audit_stuck": 1.0,
    }

    def missing() -> Growth:
        raise Unreachable("The store does not answer", "Wait")

    assert set(valued(gauges_of_growth(missing, apart=at_once)).values()) == {None}


def test_a_database_that_is_away() -> None:
    """Says so, and leaves out what it alone knows."""
    found = told(Federation(away, lambda: 77, {}, at_once))
    assert found == {"tideline_store_up": 0.0, "tideline_parts_bytes": 77.0}


def test_a_database_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts as away after a moment; it is asked once, and believed again when it has answered."""
    monkeypatch.setattr(federation, "PATIENCE_SECONDS", 0.01)
    asked, go, threads = [], threading.Event(), []

    def hanging() -> Tally:
        asked.append(1)
        go.wait(60)
        return TALLY

    def apart(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    gauges = Federation(hanging, lambda: 77, {}, apart)
    assert [told(gauges)["tideline_store_up"] for _ in range(3)] == [0.0] * 3 and len(asked) == 1
    go.set()
    for thread in threads:
        thread.join()
    assert told(gauges)["tideline_store_up"] == 1.0


def test_a_listing_that_takes_minutes_holds_up_nothing() -> None:
    """The sizes of all parts are told once they are known, and listed once at a time."""
    later: list[Callable[[], None]] = []
    weighed = []

    def stock() -> int:
        weighed.append(1)
        return 77

    def apart(work: Callable[[], None]) -> None:
        later.append(work) if work.__name__ == "_measure" else work()

    gauges = Federation(lambda: TALLY, stock, {}, apart)
    assert all("tideline_parts_bytes" not in told(gauges) for _ in range(3)) and len(later) == 1 and not weighed
    later.pop()()
    assert told(gauges)["tideline_parts_bytes"] == 77.0 and not later
