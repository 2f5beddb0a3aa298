"""What changes, as server-sent events, for pages that list runs and sites."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tideline_server.api.models import RunLine
from tideline_server.api.requests.access import Asking
from tideline_server.api.requests.admission import Staying
from tideline_server.api.routes.runs import HEADERS, KEEP_ALIVE, WORD, InAddress
from tideline_server.api.routes.sessions import Admitting
from tideline_server.api.services import ApiSettings, Given, Responses, Services
from tideline_server.feed.changes import Change, ChangedRun, ChangedSites, GoneRun, Poller, concerns
from tideline_server.feed.watching import Feed, Listener

router = APIRouter(tags=["runs"])
AGAIN_MILLISECONDS = 3000  # after which a browser that was cut off comes again
WAKE_SECONDS = 1.0  # how often a stream looks whether the coordinator closes
ONE = {"type": "object", "properties": {"event": WORD, "data": WORD, "retry": {"type": "integer"}}, "required": ["event", "data"]}
STREAM: Responses = {
    200: {
        "description": "Server-sent events without numbers; the schema is that of one",
        "content": {"text/event-stream": {"schema": ONE}},
    }
}
Follow = Annotated[bool, Query(description="false: greet, and end")]


@dataclass(frozen=True)
class Framed:
    """A change as it is sent, made once for all who hear of it."""

    change: Change
    text: str


def feed_of(services: Services, settings: ApiSettings) -> Feed[Framed]:
    """The changes of a coordinator, as they are sent."""

    def begin() -> Callable[[], Sequence[Framed]]:
        poller = Poller(services.journal, services.clock, services.warnings)
        return lambda: [Framed(change, frame_of(change)) for change in poller.poll()]

    return Feed(begin, settings.poll_seconds)


async def feed_in(request: Request) -> Feed[Framed]:
    feed: Feed[Framed] = request.app.state.feed
    return feed


Changing = Annotated[Feed[Framed], Depends(feed_in)]


class Following(StreamingResponse):
    """A stream whose listener leaves when it is over, also where it was never begun."""

    def __init__(self, lines: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(lines, headers=HEADERS, media_type="text/event-stream")
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@router.get("/changes", summary="Follow what changes", response_class=StreamingResponse, responses=STREAM)
async def follow_changes(
    request: Request,
    services: Given,
    asking: Asking,
    admission: Admitting,
    feed: Changing,
    project: InAddress = "",
    follow: Follow = True,
) -> StreamingResponse:
    """For pages that list, in your project: load the lists at `hello`, and go on from there. At most one batch a second.

    `hello` comes first (`version`, `now`); `run` with a run's line, as in `GET /runs`, for each that is new or has changed;
    `gone` (`run`) for one that was deleted; `sites` when `GET /clients` may show another thing; `warnings` with those of
    `GET /ready` when they change. Nothing is repeated after a cut: a new `hello` is all that you need. The stream ends when
    the coordinator closes, and when your key or session is not good any more.
    """
    settings: ApiSettings = request.app.state.settings
    watch, listener = await feed.join()
    staying = Staying(admission, request.scope, settings.recheck_seconds)
    lines = change_frames(services, listener, asking.scope, staying, settings.keep_alive_seconds)
    return Following(lines if follow else only(greeting(services)), partial(watch.leave, listener))


async def only(text: str) -> AsyncIterator[str]:
    yield text


async def change_frames(
    services: Services, listener: Listener[Framed], scope: str, staying: Staying, pause: float
) -> AsyncIterator[str]:
    """What a listener hears, until something ends it."""
    yield greeting(services)
    spoken = anyio.current_time()
    while not (services.ending() or listener.over or await staying.over()):
        batch = await listener.next(max(min(WAKE_SECONDS, staying.seconds, spoken + pause - anyio.current_time()), 0.0))
        text = "".join(each.text for each in batch if concerns(each.change, scope))
        if not text and anyio.current_time() >= spoken + pause:
            text = KEEP_ALIVE
        if text:
            yield text
            spoken = anyio.current_time()


def greeting(services: Services) -> str:
    return f"retry: {AGAIN_MILLISECONDS}\n" + framed("hello", {"version": services.version, "now": services.clock.now()})


def frame_of(change: Change) -> str:
    """A change on the wire."""
    if isinstance(change, ChangedRun):
        return framed("run", RunLine(**vars(change.line) | {"status": change.line.status.value}).model_dump())
    if isinstance(change, GoneRun):
        return framed("gone", {"run": change.run})
    if isinstance(change, ChangedSites):
        return framed("sites", {})
    return framed("warnings", {"warnings": list(change.warnings)})


def framed(kind: str, data: dict[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
