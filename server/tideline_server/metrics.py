"""Numbers for Prometheus. Labels are bounded: no run, client, digest or path as it was typed is one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tideline.core.errors import FederationError
from tideline.core.run import ClientId, RunId
from tideline.core.settings import EMPTY
from tideline.engine.coordinator.notices.courier import OUTCOMES
from tideline.engine.model.access.projects import Project
from tideline.engine.model.access.spending import Spending
from tideline.engine.model.runs import RoundRow, RunRow, Tally
from tideline.engine.ports.clock import Meter

T = TypeVar("T")
Gauges = Mapping[str, tuple[str, Callable[[], float | None]]]  # by name: what each is, and its value; None leaves it out
MOST_PAIRS = 100  # methods with their phases that are counted apart; the rest are "other"
OTHER = "other"
TEXT = "text/plain; version=0.0.4; charset=utf-8"  # what generate_latest writes; old versions of its package have no name for it
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
STREAMS = frozenset({"Orders"})  # calls that last as long as an agent listens
WAITS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
MOST_EPSILONS = 1000  # sites of private runs that are told of
CALLS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60)
WRITES = (0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60)


class EpsilonGauge:
    """What sites of private runs have spent, as long as the runs are open: of the newest alone, so that labels stay few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        what = "epsilon that a site has spent at most in a private run whose rounds close here"
        self._gauge = Gauge("tideline_run_epsilon", what, ["run", "client"], registry=registry)
        self._lock, self._shown = threading.Lock(), dict[RunId, set[ClientId]]()

    def closed(self, run: RunId, epsilon: Mapping[ClientId, float], over: bool) -> None:
        with self._lock:
            before = self._shown.pop(run, set())
            if epsilon and not over:
                self._shown[run] = {*epsilon}
                for client, spent in epsilon.items():
                    self._gauge.labels(run, client).set(spent)
            for client in before - self._shown.get(run, set()):
                self._gauge.remove(run, client)
            while sum(map(len, self._shown.values())) > MOST_EPSILONS and len(self._shown) > 1:
                oldest = next(iter(self._shown))
                for client in self._shown.pop(oldest):
                    self._gauge.remove(oldest, client)


class Metrics(Meter):
    """A process's counters. Any number of threads."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._pairs: set[tuple[str, str]] = set()
        at, by_phase = self.registry, ["method", "phase"]
        Gauge("tideline_build_info", "1; the version is a label", ["version"], registry=at).labels(version).set(1)
        self._rounds = Counter("tideline_rounds_closed", "rounds closed here", by_phase, registry=at)
        self._waits = Histogram(
            "tideline_round_wait_seconds", "from a round's opening to its end", by_phase, buckets=WAITS, registry=at
        )
        self._replies = Counter("tideline_replies", "reports of agents and their verdicts", [*by_phase, "verdict"], registry=at)
        self._bytes = Counter("tideline_part_bytes", "bytes of parts between agents and here", ["direction"], registry=at)
        self._leases = Counter("tideline_leases", "leases taken over from a silent coordinator, or lost", ["what"], registry=at)
        self._grpc = Counter("tideline_grpc_calls", "calls at the gRPC port", ["call", "code"], registry=at)
        self._grpc_seconds = Histogram("tideline_grpc_call_seconds", "how long they took", ["call"], buckets=CALLS, registry=at)
        self._http = Counter("tideline_http_requests", "requests at the HTTP API", ["method", "route", "code"], registry=at)
        self._http_seconds = Histogram(
            "tideline_http_request_seconds", "until their answers began", ["route"], buckets=CALLS, registry=at
        )
        self._notices = Counter("tideline_notices", "tries to send a notice", ["outcome"], registry=at)
        self._store = Histogram(
            "tideline_store_transaction_seconds", "transactions, their commit included", ["kind"], buckets=WRITES, registry=at
        )
        self.epsilons = EpsilonGauge(self.registry)
        for direction in ("in", "out"):
            self._bytes.labels(direction)
        for what in ("lost", "taken_over"):
            self._leases.labels(what)
        for outcome in OUTCOMES:
            self._notices.labels(outcome)

    def add(self, collector: Collector) -> None:
        self.registry.register(collector)

    def text(self) -> tuple[bytes, str]:
        return generate_latest(self.registry), TEXT

    def closed(self, run: RunRow, closed: RoundRow, epsilon: Mapping[ClientId, float] = EMPTY, over: bool = False) -> None:
        self.epsilons.closed(run.id, epsilon, over)
        pair = self._pair(run.method, closed.phase)
        self._rounds.labels(*pair).inc()
        self._waits.labels(*pair).observe(max(closed.closed - closed.opened, 0.0))

    def replied(self, run: RunRow, cursor: int, verdict: str) -> None:
        phase = run.plan[cursor].phase if 0 <= cursor < len(run.plan) else "join"
        self._replies.labels(*self._pair(run.method, phase), verdict).inc()

    def sent(self, nbytes: int) -> None:
        self._bytes.labels("out").inc(nbytes)

    def received(self, nbytes: int) -> None:
        self._bytes.labels("in").inc(nbytes)

    def lease(self, what: str) -> None:
        self._leases.labels(what).inc()

    def grpc_call(self, call: str, code: str, seconds: float) -> None:
        self._grpc.labels(call, code).inc()
        if call not in STREAMS:
            self._grpc_seconds.labels(call).observe(seconds)

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._http.labels(method if method in METHODS else OTHER, route, str(status)).inc()
        self._http_seconds.labels(route).observe(seconds)

    def notice(self, outcome: str) -> None:
        self._notices.labels(outcome).inc()

    def transaction(self, kind: str, seconds: float) -> None:
        self._store.labels(kind).observe(seconds)

    def _pair(self, method: str, phase: str) -> tuple[str, str]:
        with self._lock:
            if len(self._pairs) < MOST_PAIRS:
                self._pairs.add((method, phase))
            return (method, phase) if (method, phase) in self._pairs else (OTHER, OTHER)


UsedHours = tuple[Project, Spending]  # what a project's steps took in this month
FRESH_SECONDS = 5.0  # for so long an answer of the database is good
PATIENCE_SECONDS = 3.0  # a scrape waits no longer for it: Prometheus gives up after ten
STOCK_SECONDS = 300.0  # between two looks at the sizes of all parts, each of which reads a folder or lists a bucket
STOCK_SHARE = 50.0  # and so many times as long as a look takes


def on_a_thread(work: Callable[[], None]) -> None:
    """Begin it, and wait for nothing. The process may end in the middle of it."""
    threading.Thread(target=work, name="metrics", daemon=True).start()


class Measured(Generic[T]):
    """A number that takes long to find: what was last known is told, and it is looked up anew beside, once at a time.

    What cannot be found is None.
    """

    def __init__(self, ask: Callable[[], T], apart: Callable[[Callable[[], None]], None]) -> None:
        self._ask, self._apart = ask, apart
        self._lock = threading.Lock()
        self._last: tuple[float, T | None] = (float("-inf"), None)

    def known(self) -> T | None:
        with self._lock:
            until, known = self._last
            if time.monotonic() >= until:
                self._last = (float("inf"), known)
                self._apart(self._measure)
            return self._last[1]

    def _measure(self) -> None:
        began, known = time.monotonic(), None
        try:
            with suppress(FederationError, OSError):
                known = self._ask()
        finally:
            ended = time.monotonic()
            self._last = (ended + max(STOCK_SECONDS, STOCK_SHARE * (ended - began)), known)


class Federation(Collector):
    """Gauges that are worked out when somebody asks.

    tally  asks the database       stock  the bytes of all parts       here  other gauges of this process, by name
    apart  does work that may take minutes while scrapes are answered  hours  asks the database, too
    """

    def __init__(
        self,
        tally: Callable[[], Tally],
        stock: Callable[[], int],
        here: Gauges,
        apart: Callable[[Callable[[], None]], None] = on_a_thread,
        hours: Callable[[], Iterable[UsedHours]] = lambda: (),
    ) -> None:
        self._tally, self._here, self._apart, self._hours = tally, here, apart, hours
        self._stock = Measured(stock, apart)
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._known: tuple[float, Tally | None] = (float("-inf"), None)
        self._used: tuple[UsedHours, ...] = ()

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of a look: to describe would be to ask the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All gauges. Those of the database are left out while it does not answer."""
        with self._lock:
            found, nbytes = self._fresh(), self._stock.known()
        yield GaugeMetricFamily("tideline_store_up", "whether the database answers", value=float(found is not None))
        if found is not None:
            yield from tally_metrics(found)
            yield from hours_metrics(self._used)
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
                self._used = tuple(self._hours())
                known = self._tally()
        finally:
            self._known = (time.monotonic() + FRESH_SECONDS, known)
            self._answered.set()


class OfProject(Collector):
    """The gauges of one project, which is a label of each."""

    def __init__(self, project: str, found: Tally, used: Iterable[UsedHours] = ()) -> None:
        self._project, self._found, self._used = project, found, tuple(used)

    def collect(self) -> Iterator[Metric]:
        yield from counted(self._found, {"project": self._project})
        yield from hours_metrics(self._used)


def project_text(project: str, found: Tally, used: Iterable[UsedHours] = ()) -> tuple[bytes, str]:
    """What the users of one project see of the coordinator's numbers."""
    registry = CollectorRegistry()
    registry.register(OfProject(project, found, used))
    return generate_latest(registry), TEXT


def counted(found: Tally, labels: Mapping[str, str]) -> Iterator[Metric]:
    """What a project has, or all of them. labels: more of each gauge."""
    for name, what, label, counts in (
        ("tideline_runs", "runs by status", "status", found.runs),
        ("tideline_clients", "enrolled agents by standing", "standing", found.clients),
    ):
        family = GaugeMetricFamily(name, what, labels=[label, *labels])
        for value, count in counts.items():
            family.add_metric([value, *labels.values()], float(count))
        yield family
    waiting = GaugeMetricFamily("tideline_orders_open", "orders that wait for an answer", labels=list(labels))
    waiting.add_metric(list(labels.values()), float(found.orders))
    yield waiting


def hours_metrics(used: Iterable[UsedHours]) -> Iterator[Metric]:
    """What projects' steps took in this month, and the quotas of that where there are some."""
    found = tuple(used)
    for kind in ("gpu", "cpu"):
        hours = {each.name: float(getattr(spent, f"{kind}_hours")) for each, spent in found}
        most = {each.name: getattr(each.quota, f"{kind}_hours") for each, _ in found}
        what, limits = (
            f"{kind.upper()} hours of this month, as sites report them",
            {k: v for k, v in most.items() if v is not None},
        )
        yield by_project(f"tideline_project_{kind}_hours", what, hours)
        yield by_project(f"tideline_project_{kind}_hours_quota", f"the quota of {kind.upper()} hours in a month", limits)


def by_project(name: str, what: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=["project"])
    for project, value in values.items():
        family.add_metric([project], value)
    return family


def tally_metrics(found: Tally) -> Iterator[Metric]:
    yield from counted(found, {})
    yield GaugeMetricFamily("tideline_parts", "parts that the database knows", value=float(found.parts))
    yield GaugeMetricFamily("tideline_audit_entries", "entries of the audit log", value=float(found.entries))
