"""Runs: start, look, cancel, resume."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from tideline.core.run import RunId
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.accounts import KeyRole
from tideline.engine.model.experiment import Experiment
from tideline.engine.model.runs import Headline, headline
from tideline_server.api.answers import jsonable
from tideline_server.api.examples import EXPERIMENTS
from tideline_server.api.models import RunLine, RunResult, Started
from tideline_server.api.pages import PAGED, After, Limit, link_next
from tideline_server.api.requests.access import Asking
from tideline_server.api.schema import body_of
from tideline_server.api.services import Given, Name, Named, Responses

router = APIRouter(prefix="/runs", tags=["runs"])
History = Annotated[bool, Query(description="with every metric that was ever told; long, so not for polling")]
NEW: Responses = {201: {"headers": {"Location": {"description": "where the run is", "schema": {"type": "string"}}}}}


@router.post("", status_code=201, summary="Start an experiment", openapi_extra=body_of(Experiment, EXPERIMENTS), responses=NEW)
def start_run(services: Given, identity: Named, body: Annotated[dict[str, Any], Body()], response: Response) -> Started:
    """Checks the experiment, down to the method's own settings, and asks its sites to join. Mistakes come with their place."""
    run = services.run_service.start(body, identity)
    response.headers["Location"] = f"/runs/{run}"
    row = services.run_service.find(run)
    return Started(run=run, reference=row.reference, notes=list(row.spec.notes))


@router.get("", summary="List the runs", responses=PAGED)
def list_runs(request: Request, response: Response, services: Given, limit: Limit = None, after: After = None) -> list[RunLine]:
    """Oldest first; all of them, unless a page is asked for. The header Link leads to the next page, if there is one."""
    last = None if after is None else RunId(after)
    rows = services.journal.headlines(None if limit is None else limit + 1, last)
    if last is not None and not rows:
        services.run_service.find(last)  # 404 where there is no such run
    shown = rows[:limit]
    if len(shown) < len(rows):
        link_next(request, response, shown[-1].id)
    return [line(row) for row in shown]


@router.get("/{run}", summary="Show a run", response_model=RunResult)
def show_run(services: Given, asking: Asking, run: Name, history: History = False) -> Any:
    """The run's result, or as much as there is of it, and what it waits for. Tables for admins are told to admins alone."""
    row = services.run_service.find(RunId(run))
    result = result_of(services.journal, row.id, services.clock.now(), history, admins=asking.role.covers(KeyRole.ADMIN))
    return jsonable(result | {"plan_length": len(row.plan), "cursor": row.cursor})


@router.post("/{run}/cancel", summary="Cancel a run")
def cancel_run(services: Given, identity: Named, run: Name) -> RunLine:
    """Ends the run; its agents give up their steps at their next beat. 409 if it has ended already."""
    services.run_service.cancel(RunId(run), identity)
    return line(headline(services.run_service.find(RunId(run))))


@router.post("/{run}/resume", summary="Resume a stalled run")
def resume_run(services: Given, identity: Named, run: Name) -> RunLine:
    """Asks those again who did not answer; what was answered stays. 409 unless the run is stalled."""
    services.run_service.resume(RunId(run), identity)
    return line(headline(services.run_service.find(RunId(run))))


def line(row: Headline) -> RunLine:
    """A headline as it is told."""
    return RunLine(**vars(row) | {"status": row.status.value})
