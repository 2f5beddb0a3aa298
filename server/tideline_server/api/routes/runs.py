"""Runs: start, show, cancel and resume them, and follow their events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.core.settings import parse, plain, setting
from tideline.engine.coordinator.result import result_of
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.accounts import KeyRole
from tideline.engine.model.experiment import Experiment
from tideline.engine.model.runs import FINAL, Event, Headline, RunRow, Sought, Status, headline
from tideline.written.files import read_written
from tideline_server.api.answers import PlainJson, jsonable
from tideline_server.api.models import CheckedRun, DeletedRun, RunLine, RunResult, Started
from tideline_server.api.openapi import EXPERIMENTS, WRITTEN, body_of
from tideline_server.api.requests.access import Asking, Known
from tideline_server.api.requests.admission import Staying
from tideline_server.api.routes.sessions import Admitting
from tideline_server.api.services import (
    LINK,
    LONGEST,
    PAGED,
    After,
    ApiSettings,
    Given,
    Limit,
    Name,
    Named,
    Responses,
    Services,
    link_next,
)

router = APIRouter(prefix="/runs", tags=["runs"])


@dataclass(frozen=True)
class ExperimentFile:
    """An experiment as somebody writes it."""

    text: str = setting(doc="YAML or JSON")


@dataclass(frozen=True)
class Resuming:
    """How a stalled run goes on."""

    min_replies: int | None = setting(None, low=1, doc="so many replies are enough in a round from now on; none: as before")


WITH_QUORUM = body_of(Resuming, {"fewer": {"summary": "Without a site that does not come back", "value": {"min_replies": 3}}})
WITH_QUORUM["requestBody"]["required"] = False
OfStatus = Annotated[
    Literal["open", "waiting", "running", "stalled", "completed", "failed", "cancelled"] | None,
    Query(description="those of one status; open: those that are not over"),
]
Words = Annotated[str, Query(max_length=200, description="those with this text in their name, method, id or project")]
Tops = Annotated[bool, Query(description="without those that belong to another run: references, rehearsals")]
Newest = Annotated[bool, Query(description="the newest first")]
History = Annotated[bool, Query(description="with the metrics of every reply; long, so not for polling")]
NEW: Responses = {201: {"headers": {"Location": {"description": "where the run is", "schema": {"type": "string"}}}}}


@router.post("", status_code=201, summary="Start an experiment", openapi_extra=body_of(Experiment, EXPERIMENTS), responses=NEW)
def start_run(
    services: Given, projects: Known, identity: Named, body: Annotated[dict[str, Any], Body()], response: Response
) -> Started:
    """Checks the experiment, down to the method's own settings, and asks its sites to join. Mistakes come with their place.

    The run is in your key's project; of a key of all projects, in the one that the header names, or in `default`. 409 where
    a quota of the project is reached.
    """
    if services.journal.run(identity.run) is None:  # else an earlier try of the same call made it
        projects.check_room(identity.scope or DEFAULT)
    run = services.run_service.start(body, identity)
    response.headers["Location"] = f"/runs/{run}"
    row = services.run_service.find(run)
    return Started(run=run, reference=row.reference, notes=list(row.spec.notes))


@router.post("/check", summary="Check an experiment without starting it", openapi_extra=body_of(ExperimentFile, WRITTEN))
def check_run(services: Given, identity: Named, body: Annotated[dict[str, Any], Body()]) -> CheckedRun:
    """What `POST /runs` would say to it, down to the method's own settings. Mistakes come with their place and their line.

    Nothing changes, so you may repeat the call.
    """
    written = read_written(parse(ExperimentFile, body).text, "experiment")
    with written.located():
        rows = services.run_service.check(written.value, identity)
    return CheckedRun(
        experiment=written.value,
        runs=len(rows),
        exchanges=sum(len(row.plan) for row in rows),
        sites=list(rows[0].roster),
        notes=list(rows[0].spec.notes),
        contract=[dict(jsonable(plain(clause))) for clause in rows[0].contract],
    )


def sought_runs(status: OfStatus = None, words: Words = "", tops: Tops = False, newest: Newest = False) -> Sought:
    unended = frozenset(Status) - frozenset(FINAL)
    statuses = frozenset() if status is None else unended if status == "open" else frozenset({Status(status)})
    return Sought(statuses, words.strip(), tops, newest)


@router.get("", summary="List the runs", responses=PAGED)
def list_runs(
    request: Request,
    response: Response,
    services: Given,
    asking: Asking,
    sought: Annotated[Sought, Depends(sought_runs)],
    limit: Limit = None,
    after: After = None,
) -> list[RunLine]:
    """Oldest first; all of them, unless a page is asked for. The header Link leads to the next page, if there is one.

    With a limit, the header Tideline-Count says how many there are on all pages.
    """
    last = None if after is None else RunId(after)
    rows = services.journal.headlines(None if limit is None else limit + 1, last, asking.scope, sought)
    if limit is not None:
        response.headers["Tideline-Count"] = str(services.journal.count_runs(asking.scope, sought))
    if last is not None and not rows:
        services.run_service.find(last, asking.scope)  # 404 where there is no such run
    shown = rows[:limit]
    if len(shown) < len(rows):
        link_next(request, response, shown[-1].id)
    return [line(row) for row in shown]


@router.get("/{run}", summary="Show a run", response_model=RunResult)
def show_run(services: Given, asking: Asking, run: Name, history: History = False) -> Response:
    """The run's result, or as much as there is of it, and what it waits for. Only admins get the tables for admins."""
    row = services.run_service.find(RunId(run), asking.scope)
    result = result_of(services.journal, row.id, services.clock.now(), history, admins=asking.role.covers(KeyRole.ADMIN))
    return PlainJson(result | {"plan_length": len(row.plan), "cursor": row.cursor, "project": row.project})


@router.post("/{run}/cancel", summary="Cancel a run")
def cancel_run(services: Given, identity: Named, run: Name) -> RunLine:
    """Ends the run; its agents give up their steps at their next beat. 409 if it has ended already."""
    services.run_service.cancel(RunId(run), identity)
    return line(headline(services.run_service.find(RunId(run))))


@router.post("/{run}/resume", summary="Resume a stalled run", openapi_extra=WITH_QUORUM)
def resume_run(services: Given, identity: Named, run: Name, body: Annotated[dict[str, Any] | None, Body()] = None) -> RunLine:
    """Asks the sites again that did not answer; replies stay. With `min_replies` so many are enough from now on. 409 unless the
    run is stalled.
    """
    services.run_service.resume(RunId(run), identity, parse(Resuming, body or {}).min_replies)
    return line(headline(services.run_service.find(RunId(run))))


@router.delete("/{run}", summary="Delete a run")
def delete_run(services: Given, identity: Named, run: Name) -> DeletedRun:
    """Deletes a run that is over, with its reference and rehearsals: events, orders, replies, and parts that no other run needs.

    The audit log stays, and what this answers. 409 for one that is not over, or that another run needs. Asked again, it
    answers the same.
    """
    return DeletedRun(**vars(Deleting(services.run_service).delete(RunId(run), identity.by, scope=identity.scope)))


def line(row: Headline) -> RunLine:
    return RunLine(**vars(row) | {"status": row.status.value})


JOINING = {"phase": "join", "round": 1}
AT_ONCE = 200  # events that are read, and sent, together
KEEP_ALIVE = ": still here\n\n"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
WORD = {"type": "string"}
ONE = {"type": "object", "properties": {"id": WORD, "event": WORD, "data": WORD}, "required": ["id", "event", "data"]}
STREAM: Responses = {
    200: {
        "description": "Server-sent events; the schema is that of one",
        "content": {"text/event-stream": {"schema": ONE}},
        "headers": LINK,
    }
}
LATEST = 2**31 - 1  # as far as databases count events

AfterEvent = Annotated[int, Query(ge=0, le=LATEST, description="leave out events up to this number")]
InAddress = Annotated[
    str, Query(max_length=80, description="as the header Tideline-Project, which browsers cannot send with a stream")
]
Last = Annotated[int | None, Query(ge=1, le=LONGEST, description="begin with the newest so many")]
Since = Annotated[
    float | None, Query(allow_inf_nan=False, description="begin with the first at this time, in seconds since the epoch")
]
LastEventId = Annotated[int | None, Header(ge=0, le=LATEST, description="as `after`, which it overrides")]
Follow = Annotated[bool, Query(description="false: send what there is, and end")]
Most = Annotated[int | None, Query(ge=1, le=LONGEST, description="with follow=false: the most events to send")]


@router.get("/{run}/events", summary="Follow a run's events", response_class=StreamingResponse, responses=STREAM)
async def run_events(
    request: Request,
    services: Given,
    asking: Asking,
    admission: Admitting,
    run: Name,
    project: InAddress = "",
    after: AfterEvent = 0,
    last: Last = None,
    since: Since = None,
    follow: Follow = True,
    limit: Most = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """`id` is the event's number in the run, `event` its kind, `data` is JSON with seq, at, kind and data.

    The stream ends after the last event of a run that has ended, when the coordinator closes, and when your key or session is
    not good any more. A client that was cut off goes on without loss or repeat by sending the last number that it saw as
    Last-Event-ID, which browsers do by themselves; `last` and `since` are for those who have seen none.
    """
    row = await run_in_threadpool(services.run_service.find, RunId(run), asking.scope)
    settings: ApiSettings = request.app.state.settings
    start = after if last_event_id is None else last_event_id
    if not start and (last or since is not None):
        seen = await run_in_threadpool(services.journal.last_event, RunId(run), since)
        start = max(0, seen - (last or 0))
    if limit is not None:
        if follow:
            raise ConfigRefused("limit is for a list that ends", "Say follow=false as well", path="limit")
        return listed(request, row, await run_in_threadpool(services.journal.events, RunId(run), start, limit + 1), limit)
    staying = Staying(admission, request.scope, settings.recheck_seconds)
    lines = event_frames(services, RunId(run), start, follow, settings.keep_alive_seconds, staying)
    return StreamingResponse(lines, headers=HEADERS, media_type="text/event-stream")


def listed(request: Request, row: RunRow, events: Sequence[Event], limit: int) -> StreamingResponse:
    """A page of events, with the address of the next one if there are more."""
    shown = events[:limit]
    response = StreamingResponse(iter([frame(event, row) for event in shown]), headers=HEADERS, media_type="text/event-stream")
    if len(shown) < len(events):
        link_next(request, response, shown[-1].seq)
    return response


async def event_frames(
    services: Services, run: RunId, after: int, follow: bool, pause: float, staying: Staying
) -> AsyncIterator[str]:
    """Events after a number, many at a time. Always reads the journal again after a wait, whether or not the bell was heard."""
    spoken = anyio.current_time()
    while True:
        # The status is read first: the final event is written with it, so it is among the events read next.
        row = await run_in_threadpool(services.run_service.find, run)
        while events := await run_in_threadpool(services.journal.events, run, after, AT_ONCE):
            yield await run_in_threadpool(frames, events, row)
            after, spoken = events[-1].seq, anyio.current_time()
        if row.status in FINAL or not follow or services.ending() or await staying.over():
            return
        if anyio.current_time() >= spoken + pause:
            yield KEEP_ALIVE
            spoken = anyio.current_time()
        await services.moved(f"run:{run}", min(spoken + pause - anyio.current_time(), staying.seconds))


def frames(events: Sequence[Event], row: RunRow) -> str:
    return "".join(frame(event, row) for event in events)


def frame(event: Event, row: RunRow) -> str:
    """One event on the wire. What a site did is told with the phase and the round in which it did so."""
    details = place(event, row) | dict(event.data)
    data = jsonable({"seq": event.seq, "at": event.at, "kind": event.kind, "data": details})
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n"


def place(event: Event, row: RunRow) -> dict[str, object]:
    """Where in the plan a site was, if the event is about one."""
    cursor = event.data.get("cursor")
    if "client" not in event.data or not isinstance(cursor, int):
        return {}
    return {"phase": row.plan[cursor].phase, "round": row.plan[cursor].round} if 0 <= cursor < len(row.plan) else JOINING
