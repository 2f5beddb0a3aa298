"""Whether the coordinator is well and ready, and its numbers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from tideline.core.errors import Unreachable
from tideline.engine.coordinator.access.hours import used_hours
from tideline.engine.model.access.projects import EVERY
from tideline_server.api.answers import jsonable
from tideline_server.api.models import Health, Problem, Ready
from tideline_server.api.requests.access import Asking, Known
from tideline_server.api.services import Given, Responses
from tideline_server.metrics import project_text

router = APIRouter(tags=["health"])
numbers = APIRouter(tags=["health"])
TEXT: Responses = {
    200: {"description": "The numbers, as Prometheus reads them", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/health", summary="Whether the process answers; needs no key")
async def health(services: Given) -> Health:
    """Looks at this process alone, and waits for no store: what a supervisor asks that starts again what hangs."""
    facts: dict[str, Any] = jsonable(services.health())
    return Health(**(facts | {"status": "ok", "version": services.version}))


@router.get("/ready", summary="Whether the coordinator can take work; needs no key", responses={503: {"model": Problem}})
def ready(services: Given) -> Ready:
    """Answers 503 with every reason why not: the database, the numeric worker, a disk without room, an end that has begun.

    The log has the details, such as which disk: anybody may ask here. `warnings` names what will be in the way: a certificate
    that ends within 14 days, and clocks that differ by more than a minute.
    """
    reasons = services.ready()
    if reasons:
        raise Unreachable(f"Not ready: {'; '.join(reasons)}", "See what is named; ask again", reasons=list(reasons))
    return Ready(status="ready", warnings=list(services.warnings()))


@numbers.get("/metrics", summary="Numbers for Prometheus", response_class=Response, responses=TEXT)
def metrics(services: Given, projects: Known, asking: Asking) -> Response:
    """Counters of this process, and gauges of the federation, which are the same at every replica.

    To a key of one project among several, the gauges of this project alone.
    """
    whole = asking.scope == EVERY or projects.alone
    if whole:
        text, kind = services.metrics()
        return Response(text, media_type=kind)
    used = used_hours(services.journal, services.clock, asking.scope)
    text, kind = project_text(asking.scope, services.journal.tally(asking.scope), used)
    return Response(text, media_type=kind)
