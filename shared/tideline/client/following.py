"""A run, watched until it ends or stalls."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from tideline.client.http import PATIENCE_SECONDS, Client
from tideline.client.progress import Watcher

OPEN = ("waiting", "running")
FINAL = ("completed", "failed", "cancelled")
# The result is asked for no more often than this; between results, events are drawn.
REST_SECONDS = 0.5


def follow(there: Client, run: str, watcher: Watcher) -> dict[str, Any]:
    """Watch a run of a coordinator; its result when it and its reference have ended or stalled."""
    result = follow_one(there, run, watcher)
    if result["status"] == "completed" and result["reference"]:
        follow_one(there, result["reference"], Watcher(quiet=True), PATIENCE_SECONDS)
        result = look(there, run, watcher)
    return result


def follow_one(there: Client, run: str, watcher: Watcher, patience: float = 0.0) -> dict[str, Any]:
    """Watch one run until it has ended or stalled. `patience`: none at the start of a watch, where an address may be wrong."""
    seen = max((past["seq"] for past in there.events(run, patience=patience)), default=0)
    result, looked = look(there, run, watcher), time.monotonic()
    events = there.follow(run, seen)
    while result["status"] in OPEN:
        event = next(events)
        if event is not None:
            watcher.event(event)
        if event is None or changes_status(event) or time.monotonic() - looked > REST_SECONDS:
            result, looked = look(there, run, watcher), time.monotonic()
    return result


def happened(there: Client, run: str, follow: bool) -> Iterator[dict[str, Any]]:
    """A run's events so far; with `follow` also those that come, until it ends."""
    seen = 0
    for past in there.events(run):
        seen = past["seq"]
        yield past
    if not follow or there.get(f"/runs/{run}")["status"] in FINAL:
        yield from there.events(run, seen) if follow else ()
        return
    for event in there.follow(run, seen):
        if event is not None:
            yield event
        # Between two streams: the last one ended with the run.
        if (event is None or event["kind"] in FINAL) and there.get(f"/runs/{run}", PATIENCE_SECONDS)["status"] in FINAL:
            return


def look(there: Client, run: str, watcher: Watcher) -> dict[str, Any]:
    """The run as it is now, shown."""
    result: dict[str, Any] = there.get(f"/runs/{run}", PATIENCE_SECONDS)
    watcher.show(result)
    return result


def changes_status(event: Mapping[str, Any]) -> bool:
    """Whether the run itself, and not one of its sites, moved to another status."""
    return "cause" in event["data"]
