"""What a federation lived, as lines of JSON: what was asked, what was seen, what befell it, what stands at the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.acceptance.chaos.world import COORDINATORS, SITES, World
from tideline.client.http import Client, Endpoint
from tideline.core.errors import FederationError
from tideline.core.run import RunId

LOOK_SECONDS = 0.2


class History:
    """Appends to a file. Any number of threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def note(self, kind: str, **facts: Any) -> None:
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, "at": time.monotonic(), **facts}) + "\n")


def read_history(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Watcher:
    """Somebody who looks at a run all the time, by turns at either coordinator."""

    def __init__(self, world: World, history: History, run: str) -> None:
        self.world, self.history, self.run = world, history, run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        at = 0
        while not self._over.wait(LOOK_SECONDS):
            at += 1
            name = COORDINATORS[at % 2]
            with suppress(FederationError):
                self._look(name)

    def _look(self, name: str) -> None:
        with Client.of(Endpoint(home=self.world.home_of(name))) as client:
            found = client.get(f"/runs/{self.run}")
        self.history.note("seen", run=self.run, by=name, status=found["status"], cursor=found["cursor"])


def write_end(world: World, history: History, run: str) -> None:
    """What the database and the agents' logs say of a run that is over."""
    with world.journal() as journal:
        row = journal.run(RunId(run))
        assert row is not None
        history.note("run", run=run, status=row.status.value, cause=row.cause, cursor=row.cursor, digest=row.state_digest)
        for closed in journal.rounds(row.id):
            history.note("round", run=run, cursor=closed.cursor, next=closed.next_cursor, folded=list(closed.folded))
        for order in journal.orders(row.id):
            facts = {"cursor": order.cursor, "client": order.client, "attempt": order.attempt, "order": order.id}
            history.note("order", run=run, status=order.status.value, answered=order.answered is not None, **facts)
        for event in journal.events(row.id):
            history.note("event", run=run, seq=event.seq, event=event.kind, data=dict(event.data))
    for site in SITES:
        for verdict in verdicts(world.log(site), run):
            history.note("verdict", run=run, site=site, verdict=verdict["verdict"], order=verdict["order"])


def verdicts(log: str, run: str) -> Iterator[dict[str, Any]]:
    """What an agent was told of its replies. A line that a kill cut short says nothing."""
    for line in log.splitlines():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("event") == "reply" and entry.get("run") == run:
                yield entry
