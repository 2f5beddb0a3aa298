"""A journal's deleted runs within a process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tideline.archive.disk.spill import Spill
from tideline.core.run import OrderId, RunId
from tideline.engine.audit import entries
from tideline.engine.model.deletion import Cutoffs, Tombstone, tombstone_of
from tideline.engine.model.runs import FINAL, RunRow
from tideline.engine.simulation.kept_totals import KeptTotals
from tideline.engine.simulation.witnessed import MemoryWitness


class MemoryDeletions(MemoryWitness):
    """What remains of runs, beside what the journal has of those that are there: by run, in these dictionaries."""

    _runs: dict[RunId, RunRow]
    _asked: dict[RunId, dict[int, list[OrderId]]]
    _totals: KeptTotals

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self._tombstones: dict[RunId, Tombstone] = {}

    def delete_runs(self, runs: Sequence[RunId], by: str, rule: str, now: float) -> tuple[Tombstone, ...]:
        with self._lock:
            rows = [self._runs.get(run) for run in sorted(runs)]
            made = tuple(tombstone_of(row, by, rule, now) for row in rows if row is not None and row.status in FINAL)
            if len(made) < len(rows):
                return ()
            for each in made:
                self._delete(self._runs[each.run])
                self._tombstones[each.run] = each
            self.record(map(entries.run_deleted, made))
            return made

    def tombstone(self, run: RunId) -> Tombstone | None:
        return self._tombstones.get(run)

    def tombstones(self, runs: Collection[RunId]) -> tuple[Tombstone, ...]:
        with self._lock:
            return tuple(self._tombstones[run] for run in sorted(set(runs)) if run in self._tombstones)

    def due_runs(self, before: Cutoffs) -> tuple[RunId, ...]:
        with self._lock:
            alone = [row for row in self._runs.values() if row.parent not in self._runs and row.status in FINAL]
            found = [(row.ended, row.id) for row in alone if row.ended is not None and row.ended < before.of(row.project)]
            return tuple(run for _, run in sorted(found))

    def _delete(self, row: RunRow) -> None:
        """Forget a run's orders, and all that is kept by run, or by run and client."""
        known: Mapping[str, Any] = vars(self)
        for names in self._asked.get(row.id, {}).values():
            for name in names:
                known["_orders"].pop(name, None)
        for of_run in ("_runs", "_asked", "_missed", "_leases", "_rounds", "_events", "_refs", "_sealed", "_spent_by_run"):
            known[of_run].pop(row.id, None)
        for totals in (self._totals.rounds, self._totals.sites, self._totals.scores):
            totals.pop(row.id, None)
        for client in row.roster:
            for of_client in ("_last", "_pushed"):
                known[of_client].pop((row.id, client), None)
