"""An agent's numbers for Prometheus, on a port of its own. Labels are bounded: no run and no digest is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tideline.archive.parts import Parts
from tideline.core.errors import ConfigRefused, FederationError
from tideline.core.tokens import split_address
from tideline.engine.epsilon.budget import Standing
from tideline.engine.model.orders import Arrivals, Files, Order, Receipt, Reply
from tideline.engine.ports.site import Done, Job, Link, Pool

STEPS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
LOOPBACK = "127.0.0.1"
VERDICTS, OTHER = ("accepted", "missing", "refused", "stale", "late"), "other"  # what a coordinator of ours says; all else


class AgentMetrics:
    """What this agent has done since it began. Any number of threads."""

    def __init__(self, version: str) -> None:
        self.registry = at = CollectorRegistry()
        Gauge("tideline_agent_build_info", "1; the version is a label", ["version"], registry=at).labels(version).set(1)
        self.steps = Counter("tideline_agent_steps", "steps that ended, and how", ["outcome"], registry=at)
        self.seconds = Histogram("tideline_agent_step_seconds", "how long they took", buckets=STEPS, registry=at)
        what = "bytes of parts to and from the coordinator"
        self.bytes = Counter("tideline_agent_part_bytes", what, ["direction"], registry=at)
        self.replies = Counter("tideline_agent_replies", "reports, and what the coordinator said", ["verdict"], registry=at)
        what = "orders that had no reply, by the kind of error"
        self.failures = Counter("tideline_agent_failures", what, ["kind"], registry=at)
        self.contact = Gauge("tideline_agent_last_contact_timestamp_seconds", "when the coordinator last answered", registry=at)
        for direction in ("in", "out"):
            self.bytes.labels(direction)

    def show_budgets(self, ask: Callable[[], Iterable[Standing]]) -> None:
        """Tell of budgets of epsilon from now on, as they are when somebody asks."""
        self.registry.register(BudgetCollector(ask))

    def heard(self) -> None:
        self.contact.set(time.time())

    @contextmanager
    def serve(self, where: str | None) -> Iterator[None]:
        """Tell them at HOST:PORT or PORT as long as the block lasts; nowhere, tell nobody. Raises ConfigRefused."""
        if where is None:
            yield
            return
        host, port = place(where)
        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as cause:
            raise ConfigRefused(f"--metrics {where} cannot be listened on: {cause.strerror}", "Choose another port") from None
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class BudgetCollector(Collector):
    """What private runs have spent of each budget of the site, what is reserved, and what is left."""

    def __init__(self, ask: Callable[[], Iterable[Standing]]) -> None:
        self._ask = ask

    def collect(self) -> Iterator[Metric]:
        found: list[Standing] = []
        with suppress(FederationError):  # of a ledger that cannot be read: the other numbers stay
            found = list(self._ask())
        for name, what in (("spent", "spent"), ("reserved", "reserved by runs that are not over"), ("left", "left")):
            gauge = GaugeMetricFamily(
                f"tideline_agent_epsilon_{name}", f"epsilon of the site's rows that is {what}", labels=["population", "limit"]
            )
            for each in found:
                value = getattr(each, name)
                if value is not None:
                    gauge.add_metric([each.population, "" if each.epsilon is None else f"{each.epsilon:g}"], value)
            yield gauge


def place(where: str) -> tuple[str, int]:
    """Where to listen: this machine alone unless a host is given. Raises ConfigRefused."""
    try:
        host, port = split_address(where if ":" in where else f"{LOOPBACK}:{where}")
    except ConfigRefused:
        raise ConfigRefused(f"--metrics {where!r} is no port", "Write PORT or HOST:PORT, such as 9100", path="metrics") from None
    return host, int(port)


class CountedPool:
    """A pool whose steps are counted."""

    def __init__(self, pool: Pool, metrics: AgentMetrics) -> None:
        self._pool, self._metrics = pool, metrics

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        if job.prices:  # that is no step
            return self._pool.run(job, tick)
        began, outcome = time.monotonic(), "failed"
        try:
            done = self._pool.run(job, tick)
            outcome = "done"
            return done
        finally:
            self._metrics.steps.labels(outcome).inc()
            self._metrics.seconds.observe(time.monotonic() - began)


class CountedLink:
    """A line to the agent service whose parts and replies are counted."""

    def __init__(self, link: Link, metrics: AgentMetrics) -> None:
        self._link, self._metrics = link, metrics

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        there = sum(parts.arrived(digest) for digest, _ in files)
        self._link.fetch(order, files, parts)
        self._metrics.bytes.labels("in").inc(max(sum(size for _, size in files) - there, 0))
        self._metrics.heard()

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        self._link.push(order, arrivals, parts)
        self._metrics.bytes.labels("out").inc(sum(size - offset for _, size, offset in arrivals))
        self._metrics.heard()

    def report(self, order: Order, reply: Reply) -> Receipt:
        receipt = self._link.report(order, reply)
        self._metrics.replies.labels(receipt.verdict if receipt.verdict in VERDICTS else OTHER).inc()
        self._metrics.heard()
        return receipt
