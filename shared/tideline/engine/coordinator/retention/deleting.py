"""Deleting runs that are over, with the runs that belong to them."""

from __future__ import annotations

from tideline.core.errors import Refused
from tideline.core.run import RunId
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.model.access.projects import EVERY, within
from tideline.engine.model.deletion import Tombstone
from tideline.engine.model.runs import FINAL, RunRow


class Deleting:
    """Deletes runs. What the database has of them goes at once; their parts follow with the next collections."""

    def __init__(self, run_service: RunService) -> None:
        self.runs, self.journal, self.clock = run_service, run_service.journal, run_service.clock

    def delete(self, run: RunId, by: str = "", rule: str = "", scope: str = EVERY) -> Tombstone:
        """Delete a run, its reference and its rehearsals; what remains of it. One that was deleted stays as it was deleted.

        scope: the project of who asks; runs of others are not found. Raises NotFound; Refused, with all reasons, for one that is
        not over or that another run needs.
        """
        if (known := self.journal.tombstone(run)) is not None and within(scope, known.project):
            return known
        family = self.family(run, scope)
        if reasons := self.reasons(family):
            raise Refused(f"Run {run} cannot be deleted: {'; '.join(reasons)}", remedy(family[0]), reasons=reasons)
        made = self.journal.delete_runs([row.id for row in family], by, rule, self.clock.now())
        if not made:  # another call was first
            return self.delete(run, by, rule, scope)
        for row in family:
            self.runs.bell.ring(f"run:{row.id}")
        return next(each for each in made if each.run == run)

    def family(self, run: RunId, scope: str = EVERY) -> list[RunRow]:
        """A run and those of its reference and rehearsals that are still there. Raises NotFound."""
        row = self.runs.find(run, scope)
        found = [self.journal.run(each) for each in row.serving]
        return [row, *(each for each in found if each is not None)]

    def reasons(self, family: list[RunRow]) -> list[str]:
        """Why a family cannot be deleted; nothing if it can."""
        reasons = [f"{row.id} is {row.status.value}" for row in family if row.status not in FINAL]
        parent = family[0].parent
        if parent is not None and self.journal.run(parent) is not None:
            reasons.append(f"{parent} is compared with it, or rehearsed by it")
        return reasons


def remedy(row: RunRow) -> str:
    if row.status not in FINAL:
        return f"Wait until it has ended, or cancel it: tideline run cancel {row.id}"
    return "Delete the run that needs it, which deletes this one too, or wait until all have ended"
