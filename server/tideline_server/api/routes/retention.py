"""What the rules of age delete next."""

from __future__ import annotations

from fastapi import APIRouter

from tideline.engine.coordinator.retention.keeping import outlook
from tideline_server.api.models import DueRun, RetentionShown
from tideline_server.api.services import Given

router = APIRouter(prefix="/retention", tags=["runs"])


@router.get("", summary="Show what is deleted next")
def show_retention(services: Given) -> RetentionShown:
    """The rules, and what they delete at the next look, within ten minutes. Without rules nothing is ever due."""
    if services.retention is None:
        return RetentionShown(runs_days=0.0, events_days=0.0, runs=[], events=0)
    found = outlook(services.retention)
    runs = [DueRun(run=row.id, name=row.name, ended=row.ended) for row in found.runs if row.ended is not None]
    return RetentionShown(runs_days=found.rules.runs_days, events_days=found.rules.events_days, runs=runs, events=found.events)
