"""How much everything takes that grows, for Prometheus: measured now and then, never while a scrape waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tideline.engine.model.deletion import Growth
from tideline_server.metrics import Measured, on_a_thread
from tideline_server.retention.building import Ages
from tideline_server.store import SqlJournal


class GrowthGauges(Collector):
    """Gauges of a database, as of some minutes ago, and of the audit log's archive, where there is one.

    growth  asks the database, and may take minutes      archive  the bytes of the archive's files; None without one
    stuck   whether entries that are due cannot be archived; None without the rule
    """

    def __init__(
        self,
        growth: Callable[[], Growth],
        archive: Callable[[], int] | None = None,
        stuck: Callable[[], bool] | None = None,
        apart: Callable[[Callable[[], None]], None] = on_a_thread,
    ) -> None:
        self._growth = Measured(growth, apart)
        self._archive = None if archive is None else Measured(archive, apart)
        self._stuck = stuck

    def describe(self) -> Iterator[Metric]:
        """Nothing ahead of a look: to describe would be to measure."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        if (found := self._growth.known()) is not None:
            for name, what, value in (
                ("tideline_database_bytes", "bytes of the database on its disk", found.bytes),
                ("tideline_events", "events of runs in the database", found.events),
                ("tideline_audit_stored_entries", "entries of the audit log in the database", found.entries),
                ("tideline_audit_archived_entries", "entries of the audit log that left the database", found.archived),
            ):
                yield GaugeMetricFamily(name, f"{what}, as of some minutes ago", value=float(value))
        if self._archive is not None and (nbytes := self._archive.known()) is not None:
            yield GaugeMetricFamily("tideline_audit_archive_bytes", "bytes of the audit log's archive", value=float(nbytes))
        if self._stuck is not None:
            what = "whether old entries of the audit log cannot be archived"
            yield GaugeMetricFamily("tideline_audit_stuck", what, value=float(self._stuck()))


def gauges_of_growth(journal: SqlJournal, ages: Ages) -> GrowthGauges:
    archive = None if ages.archive is None else ages.archive.bytes
    return GrowthGauges(journal.growth, archive, None if ages.archiving is None else partial(troubled, ages))


def troubled(ages: Ages) -> bool:
    return ages.archiving is not None and bool(ages.archiving.trouble)
