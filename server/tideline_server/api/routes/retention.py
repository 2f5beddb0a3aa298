"""What the rules of age delete next."""

from __future__ import annotations

from fastapi import APIRouter

from tideline.engine.coordinator.retention.keeping import AllRules, Outlook, Rules, outlook
from tideline_server.api.models import DueRun, ProjectAges, RetentionShown
from tideline_server.api.services import Given

router = APIRouter(prefix="/retention", tags=["runs"])


@router.get("", summary="Show what is deleted next")
def show_retention(services: Given) -> RetentionShown:
    """The rules, and what they delete at the next look, within ten minutes. Without rules nothing is ever due."""
    retention, archiving = services.retention, services.archiving
    found = Outlook(AllRules(Rules(), {}), (), 0) if retention is None else outlook(retention)
    rules, projects = found.rules.others, sorted(found.rules.projects.items())
    return RetentionShown(
        runs_days=rules.runs_days,
        events_days=rules.events_days,
        runs=[DueRun(run=row.id, name=row.name, ended=row.ended) for row in found.runs if row.ended is not None],
        events=found.events,
        projects=[ProjectAges(name=name, **vars(own)) for name, own in projects],
        audit_days=0.0 if archiving is None else archiving.days,
        audit_entries=0 if archiving is None else archiving.due(services.clock.now()),
        audit_trouble=archiving is not None and bool(archiving.trouble),
    )
