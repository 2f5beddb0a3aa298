"""A run's events as a stream (server-sent events). The journal is the truth; the bell only says when to look again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.engine.model.runs import FINAL, Event, RunRow
from tideline_server.api.answers import jsonable
from tideline_server.api.pages import LINK, LONGEST, link_next
from tideline_server.api.services import ApiSettings, Given, Name, Responses, Services

router = APIRouter(prefix="/runs", tags=["runs"])
JOINING = {"phase": "join", "round": 1}
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
LATEST = (1 << 63) - 1

After = Annotated[int, Query(ge=0, le=LATEST, description="leave out events up to this number")]
LastEventId = Annotated[int | None, Header(ge=0, le=LATEST, description="as `after`, which it overrides")]
Follow = Annotated[bool, Query(description="false: send what there is, and end")]
Most = Annotated[int | None, Query(ge=1, le=LONGEST, description="with follow=false: the most events to send")]


@router.get("/{run}/events", summary="Follow a run's events", response_class=StreamingResponse, responses=STREAM)
async def run_events(
    request: Request,
    services: Given,
    run: Name,
    after: After = 0,
    follow: Follow = True,
    limit: Most = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """`id` is the event's number in the run, `event` its kind, `data` is JSON with seq, at, kind and data.

    The stream ends after the last event of a run that has ended, and when the coordinator closes. A client that was cut
    off goes on without loss or repeat
    by sending the last number that it saw as Last-Event-ID, which browsers do by themselves.
    """
    row = await run_in_threadpool(services.run_service.find, RunId(run))
    settings: ApiSettings = request.app.state.settings
    start = after if last_event_id is None else last_event_id
    if limit is not None:
        if follow:
            raise ConfigRefused("limit is for a list that ends", "Say follow=false as well", path="limit")
        return listed(request, row, await run_in_threadpool(services.journal.events, RunId(run), start), limit)
    lines = told(services, RunId(run), start, follow, settings.keep_alive_seconds)
    return StreamingResponse(lines, headers=HEADERS, media_type="text/event-stream")


def listed(request: Request, row: RunRow, events: Sequence[Event], limit: int) -> StreamingResponse:
    """A page of events, with the address of the next one if there are more."""
    shown = events[:limit]
    response = StreamingResponse(iter([frame(event, row) for event in shown]), headers=HEADERS, media_type="text/event-stream")
    if len(shown) < len(events):
        link_next(request, response, shown[-1].seq)
    return response


async def told(services: Services, run: RunId, after: int, follow: bool, pause: float) -> AsyncIterator[str]:
    """Events after a number. Always reads the journal again after a wait, whether or not the bell was heard."""
    spoken = anyio.current_time()
    while True:
        # The status is read first: the final event is written with it, so it is among the events read next.
        row = await run_in_threadpool(services.run_service.find, run)
        for event in await run_in_threadpool(services.journal.events, run, after):
            yield frame(event, row)
            after, spoken = event.seq, anyio.current_time()
        if row.status in FINAL or not follow or services.ending():
            return
        if anyio.current_time() >= spoken + pause:
            yield KEEP_ALIVE
            spoken = anyio.current_time()
        await services.moved(f"run:{run}", spoken + pause - anyio.current_time())


def frame(event: Event, row: RunRow) -> str:
    """One event on the wire. What a site did is told with the phase and the round in which it did so."""
    told = place(event, row) | dict(event.data)
    data = jsonable({"seq": event.seq, "at": event.at, "kind": event.kind, "data": told})
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n"


def place(event: Event, row: RunRow) -> dict[str, object]:
    """Where in the plan a site was, if the event is about one."""
    cursor = event.data.get("cursor")
    if "client" not in event.data or not isinstance(cursor, int):
        return {}
    return {"phase": row.plan[cursor].phase, "round": row.plan[cursor].round} if 0 <= cursor < len(row.plan) else JOINING
