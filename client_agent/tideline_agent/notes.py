"""What happens at this site, sent to the coordinator in notes of fixed kinds (core.notes). Nothing waits for it."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from tideline.core.errors import (
    ContractRefused,
    DataRefused,
    DeviceMissing,
    FederationError,
    Malformed,
    RosterRefused,
    Unreachable,
)
from tideline.core.notes import DEVICE, ERROR, OTHERWISE, Note
from tideline.core.run import OrderId, RunId
from tideline.core.settings import EMPTY
from tideline.engine.model.orders import Order
from tideline_agent.link import NotSpoken

log = structlog.get_logger()
Entry = tuple[OrderId, Note]
Send = Callable[[Sequence[Entry]], None]
MOST_WAITING, BATCH = 100, 31  # notes that wait; notes of one call, beside one that says how many were left out
PAUSE_SECONDS, AWAY_SECONDS = 0.5, 2.0  # between two calls; after one that nobody answered
LOW_DISK_BYTES = 1_000_000_000


class NoteQueue:
    """A short queue and a thread that empties it. What finds no room is counted, and the count is sent."""

    def __init__(self, send: Send, stop: threading.Event, wanted: bool = True) -> None:
        self._send, self._stop, self._wanted = send, stop, wanted
        self._waiting: deque[Entry] = deque()
        self._left_out = 0
        self._lock, self._news = threading.Lock(), threading.Event()

    def put(self, order: OrderId, note: Note) -> None:
        """Queue a note. Never waits."""
        with self._lock:
            if not self._wanted:
                return
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append((order, note))
            else:
                self._left_out += 1
        self._news.set()

    def start(self) -> None:
        """Send from here on, until `stop`. An agent does not wait for what is still unsent at its end."""
        if self._wanted:
            threading.Thread(target=self.run, name="notes", daemon=True).start()

    def run(self) -> None:
        """Send what waits, in batches."""
        while self._wanted and not self._stop.is_set():
            if self._news.wait(1.0):
                self._news.clear()
                self._stop.wait(self.send_batch())

    def send_batch(self) -> float:
        """Send one batch; the seconds until the next. What was cut is sent again, what is refused is counted as left out."""
        with self._lock:
            batch, lost = list(self._waiting)[:BATCH], self._left_out
        if not batch:
            return 0.0
        taken, left_out = len(batch), -lost
        if lost:
            batch.append((batch[-1][0], Note("left_out", {"count": lost})))
        try:
            self._send(batch)
        except Unreachable:
            self._news.set()
            return AWAY_SECONDS
        except NotSpoken:
            log.info("notes_not_wanted", reason="the coordinator is of a version that takes none")
            self._wanted = False
        except Exception as error:  # noqa: BLE001 - whatever an answer holds, the notes that follow are sent
            log.warning("notes_refused", reason=f"{type(error).__name__}: {error}")
            left_out = taken
        with self._lock:
            for _ in range(taken):
                self._waiting.popleft()
            self._left_out += left_out
            if self._waiting:
                self._news.set()
        return PAUSE_SECONDS


@dataclass
class Begun:
    """A step under way: its order, since when, and whether a note says that it is slow."""

    order: Order
    at: float
    slow: bool = False


class Witness:
    """Makes notes of what the agent and its pool say. Any number of threads."""

    def __init__(
        self,
        put: Callable[[OrderId, Note], None],
        home: Path,
        now: Callable[[], float] = time.monotonic,
        warned: Callable[[], Iterable[Note]] = tuple,
    ) -> None:
        """warned: what is to be told with each step that begins, as long as it is so."""
        self._put, self._home, self._now, self._warned = put, home, now, warned
        self._began: dict[RunId, Begun] = {}

    def saw(self, what: str, order: Order, error: FederationError | None) -> None:
        """A word of the agent's log (engine.agent)."""
        if what == "begun":
            self._began[order.run] = Begun(order, self._now())
            self._note(order.id, "order_started")
            self._check_disk(order)
            for note in self._warned():
                self._put(order.id, note)
        elif what == "worked":
            self._note(order.id, "trained", {"seconds": self._seconds(order)})
            self._began.pop(order.run, None)
        elif what == "cut":
            self._note(order.id, "upload_cut")
        elif what in OTHERWISE:
            self._note(order.id, what)
        elif what == "failed" and error is not None:
            self._note(order.id, *self._failure(order, error))
            self._began.pop(order.run, None)

    def withdrawn(self, order: Order) -> None:
        self._note(order.id, "order_withdrawn")
        self._began.pop(order.run, None)

    def died(self, run: RunId, tries_left: int) -> None:
        if run in self._began:
            self._note(self._began[run].order.id, "trainer_died", {"tries_left": tries_left})

    def uncached(self, run: RunId, rows: int) -> None:
        """Rows that found no room in the site's cache."""
        if run in self._began:
            self._note(self._began[run].order.id, "rows_not_cached", {"rows": rows})

    def check_progress(self, working: Iterable[tuple[Order, float]]) -> None:
        """Now and then: orders that are worked on, and how far they are. A slow one is noted once."""
        for order, share in working:
            begun, seconds = self._began.get(order.run), self._seconds(order)
            if begun is not None and begun.order.id == order.id and not begun.slow and seconds > order.seconds_left / 2:
                begun.slow = True
                self._note(order.id, "slow_step", {"seconds": seconds, "percent": 100 * max(0.0, min(share, 1.0))})

    def _note(self, order: OrderId, kind: str, numbers: Mapping[str, float] = EMPTY, words: Mapping[str, str] = EMPTY) -> None:
        """Queue a note. What cannot be one is left out: no work ends for want of a note."""
        try:
            self._put(order, Note(kind, numbers, words))
        except Malformed as error:
            log.warning("note_left_out", reason=str(error))

    def _seconds(self, order: Order) -> float:
        begun = self._began.get(order.run)
        return self._now() - begun.at if begun else 0.0

    def _check_disk(self, order: Order) -> None:
        with contextlib.suppress(OSError):  # whoever writes there finds out
            free = shutil.disk_usage(self._home).free
            if free < LOW_DISK_BYTES:
                self._note(order.id, "disk_low", {"megabytes": free // 1_000_000})

    def _failure(self, order: Order, error: FederationError) -> tuple[str, dict[str, float], dict[str, str]]:
        """A failure's kind of note, numbers and words: its type, and none of its own words."""
        device = str(error.context.get("device", ""))
        if isinstance(error, DeviceMissing) and DEVICE.fullmatch(device):
            return "device_missing", {}, {"device": device}
        words = {"error": named(str(error.context.get("error", error.kind)))}
        if isinstance(error, (ContractRefused, RosterRefused, DataRefused)):
            return "data_unreadable" if isinstance(error, DataRefused) else "declined", {}, words
        return "step_failed", {"seconds": self._seconds(order)}, words


def named(kind: str) -> str:
    return kind if ERROR.fullmatch(kind) else "Error"
