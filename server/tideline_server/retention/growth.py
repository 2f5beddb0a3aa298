"""How much everything takes that grows, for Prometheus: measured now and then, never while a scrape waits."""

from __future__ import annotations

from collections.abc import Callable

from tideline.engine.model.deletion import Growth
from tideline_server.metrics import Gauges, Measured, on_a_thread

OF_DATABASE = {
    "tideline_database_bytes": ("bytes of the database on its disk", "bytes"),
    "tideline_events": ("events of runs in the database", "events"),
    "tideline_audit_stored_entries": ("entries of the audit log in the database", "entries"),
    "tideline_audit_archived_entries": ("entries of the audit log that left the database", "archived"),
}


def gauges_of_growth(
    growth: Callable[[], Growth],
    archive: Callable[[], int] | None = None,
    stuck: Callable[[], bool] | None = None,
    apart: Callable[[Callable[[], None]], None] = on_a_thread,
) -> Gauges:
    """Gauges of a database, as of some minutes ago, and of the audit log's archive, where there is one.

    growth  asks the database, and may take minutes      archive  the bytes of the archive's files; None without one
    stuck   whether entries that are due cannot be archived; None without the rule
    """
    measured, files = Measured(growth, apart), None if archive is None else Measured(archive, apart)

    def of_database(field: str) -> Callable[[], float | None]:
        def value() -> float | None:
            found = measured.known()
            return None if found is None else float(getattr(found, field))

        return value

    gauges = {name: (f"{what}, as of some minutes ago", of_database(field)) for name, (what, field) in OF_DATABASE.items()}
    if files is not None:
        gauges["tideline_audit_archive_bytes"] = ("bytes of the audit log's archive", files.known)
    if stuck is not None:
        gauges["tideline_audit_stuck"] = ("whether old entries of the audit log cannot be archived", lambda: float(stuck()))
    return gauges
