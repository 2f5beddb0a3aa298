"""What is true of the federation, read from the database at a look: every replica tells the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tideline.core.errors import FederationError
from tideline.engine.model.runs import Tally

FRESH_SECONDS = 5.0  # for so long an answer of the database is good
PATIENCE_SECONDS = 3.0  # a scrape waits no longer for it: Prometheus gives up after ten
STOCK_SECONDS = 300.0  # between two looks at the sizes of all parts, each of which reads a folder or lists a bucket
STOCK_SHARE = 50.0  # and so many times as long as a look takes


def on_a_thread(work: Callable[[], None]) -> None:
    """Begin it, and wait for nothing. The process may end in the middle of it."""
    threading.Thread(target=work, name="metrics", daemon=True).start()


class Federation(Collector):
    """Gauges that are worked out when somebody asks.

    tally  asks the database       stock  the bytes of all parts       here  other gauges of this process, by name
    apart  does work that may take minutes while scrapes are answered
    """

    def __init__(
        self,
        tally: Callable[[], Tally],
        stock: Callable[[], int],
        here: Mapping[str, tuple[str, Callable[[], float | None]]],
        apart: Callable[[Callable[[], None]], None] = on_a_thread,
    ) -> None:
        self._tally, self._stock, self._here, self._apart = tally, stock, here, apart
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._known: tuple[float, Tally | None] = (float("-inf"), None)
        self._bytes: tuple[float, int | None] = (float("-inf"), None)

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of a look: to describe would be to ask the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All gauges. Those of the database are left out while it does not answer."""
        with self._lock:
            found, nbytes = self._fresh(), self._stocked()
        yield GaugeMetricFamily("tideline_store_up", "whether the database answers", value=float(found is not None))
        if found is not None:
            yield from told(found)
        if nbytes is not None:
            yield GaugeMetricFamily("tideline_parts_bytes", "bytes of all parts, as of some minutes ago", value=float(nbytes))
        for name, (what, ask) in self._here.items():
            value = ask()
            if value is not None:
                yield GaugeMetricFamily(name, what, value=value)

    def _fresh(self) -> Tally | None:
        """What the database says, unless it takes long; then it is away as far as a scrape can tell."""
        if time.monotonic() >= self._known[0]:
            self._known = (float("inf"), None)
            self._answered.clear()
            self._apart(self._count)
        self._answered.wait(PATIENCE_SECONDS)
        return self._known[1]

    def _count(self) -> None:
        known = None
        try:
            with suppress(FederationError):
                known = self._tally()
        finally:
            self._known = (time.monotonic() + FRESH_SECONDS, known)
            self._answered.set()

    def _stocked(self) -> int | None:
        """What was last known; it is looked up anew beside the scrape, once at a time."""
        until, known = self._bytes
        if time.monotonic() >= until:
            self._bytes = (float("inf"), known)
            self._apart(self._weigh)
        return self._bytes[1]

    def _weigh(self) -> None:
        began, known = time.monotonic(), None
        try:
            with suppress(FederationError, OSError):
                known = self._stock()
        finally:
            ended = time.monotonic()
            self._bytes = (ended + max(STOCK_SECONDS, STOCK_SHARE * (ended - began)), known)


def told(found: Tally) -> Iterator[Metric]:
    """The database's numbers."""
    for name, what, label, counts in (
        ("tideline_runs", "runs by status", "status", found.runs),
        ("tideline_clients", "enrolled agents by standing", "standing", found.clients),
    ):
        family = GaugeMetricFamily(name, what, labels=[label])
        for value, count in counts.items():
            family.add_metric([value], float(count))
        yield family
    yield GaugeMetricFamily("tideline_orders_open", "orders that wait for an answer", value=float(found.orders))
    yield GaugeMetricFamily("tideline_parts", "parts that the database knows", value=float(found.parts))
    yield GaugeMetricFamily("tideline_audit_entries", "entries of the audit log", value=float(found.entries))
