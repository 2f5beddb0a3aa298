"""The rules of age, as the settings have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tideline.engine.audit.archived import Span
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import Retention
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.model.deletion import Growth, Tombstone
from tideline.engine.ports.clock import Clock
from tideline_server.metrics import Gauges
from tideline_server.retention.archive import FolderArchive
from tideline_server.retention.growth import gauges_of_growth
from tideline_server.settings import CoordinatorSettings
from tideline_server.store import SqlJournal

log = structlog.get_logger()


@dataclass(frozen=True)
class Ages:
    """What applies the rules of age, and the folder of the audit log's archive, if there is one."""

    retention: Retention
    archiving: Archiving | None
    archive: FolderArchive | None

    @property
    def steps(self) -> tuple[Callable[[], None], ...]:
        """What is called every few seconds."""
        return (self.retention.step,) if self.archiving is None else (self.retention.step, self.archiving.step)

    def gauges(self, growth: Callable[[], Growth]) -> Gauges:
        """What Prometheus is to know of what grows."""
        archive, archiving = self.archive, self.archiving
        stuck = None if archiving is None else lambda: bool(archiving.trouble)
        return gauges_of_growth(growth, None if archive is None else archive.bytes, stuck)


def ages_of(settings: CoordinatorSettings, run_service: RunService, journal: SqlJournal, clock: Clock) -> Ages:
    """The rules of a coordinator. Raises ConfigRefused for a folder that cannot be written to."""
    archive = None if settings.audit_archive is None else FolderArchive(settings.audit_archive.expanduser())
    retention, days = Retention(Deleting(run_service), journal, settings.rules, went), settings.retain_audit_days
    if archive is None or not days:
        return Ages(retention, None, archive)
    archiving = Archiving(journal=journal, archive=archive, clock=clock, days=days, report=filed, failed=stuck)
    return Ages(retention, archiving, archive)


def went(of: Tombstone) -> None:
    """A rule has deleted a run."""
    log.info("run_deleted", run=of.run, name=of.name, rule=of.rule)


def filed(span: Span) -> None:
    """Entries of the audit log have gone into a file."""
    log.info("audit_archived", file=span.name, entries=span.last - span.first + 1)


def stuck(why: str) -> None:
    """What keeps old entries in the database, or that nothing does any more."""
    log.error("audit_not_archived", reason=why) if why else log.info("audit_archived_again")
