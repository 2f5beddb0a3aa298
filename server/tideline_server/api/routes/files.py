"""The files of a final state, so that `tideline run export` can build the model's file again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from tideline.core.errors import NotFound, PermissionRefused, Refused
from tideline.core.run import Digest, RunId
from tideline.engine.coordinator.api_keys import Caller
from tideline.engine.model.accounts import KeyRole
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import Status
from tideline_server.api.answers import answer
from tideline_server.api.models import PartsSwept, Problem, RunFiles
from tideline_server.api.requests.access import Asking
from tideline_server.api.requests.etags import matches, unchanged
from tideline_server.api.requests.ranges import OutOfRange, Span, span_of
from tideline_server.api.requests.roles import article
from tideline_server.api.services import Given, Name, Named, Responses, Services

router = APIRouter(tags=["results"])
CHUNK_BYTES = 1 << 20
FOREVER = "private, max-age=31536000, immutable"
OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
RANGE = {"Content-Range": {"description": "which bytes, of how many", "schema": {"type": "string"}}}
BYTES: Responses = {
    200: {"description": "The file", "content": OCTETS},
    206: {"description": "The bytes that the header Range asked for", "content": OCTETS, "headers": RANGE},
    416: {"model": Problem, "description": "The file has none of the bytes that Range asked for", "headers": RANGE},
}

PartDigest = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the bytes")]
OfRun = Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="the completed run whose state names the file")]


@router.get("/runs/{run}/files", summary="List the files of a completed run's final state")
def run_files(services: Given, asking: Asking, run: Name) -> RunFiles:
    """The root, which names the others, and its parts. 409 while the run is not completed."""
    files = final_files(services, RunId(run), asking)
    return RunFiles(root=files[0][0], files=list(files))


@router.get("/parts/{digest}", summary="Download one file", response_class=StreamingResponse, responses=BYTES)
def part_bytes(services: Given, asking: Asking, digest: PartDigest, run: OfRun, request: Request) -> Response:
    """Raw bytes, or one range of them. A digest alone opens nothing: the final state of the run that you name must name it."""
    if digest not in dict(final_files(services, RunId(run), asking)):
        raise NotFound(f"The final state of run {run} names no file {digest[:12]}", f"See /runs/{run}/files")
    return sent(services.part_store.parts.view(Digest(digest)), f'"{digest}"', request.headers)


def sent(view: memoryview, tag: str, asked: Headers) -> Response:
    """A file, a range of it, or that it is known: the bytes of a digest never change."""
    headers = {"ETag": tag, "Cache-Control": FOREVER, "Accept-Ranges": "bytes"}
    if matches(asked.getlist("if-none-match"), tag):
        return unchanged(headers)
    try:
        same = asked.get("if-range", tag) == tag
        span = span_of(asked.get("range"), len(view)) if same else None
    except OutOfRange as error:
        return answer(416, error, kind="Malformed", headers=headers | {"Content-Range": f"bytes */{len(view)}"})
    if span is None:
        span, status = Span(0, len(view), len(view)), 200
    else:
        headers["Content-Range"], status = span.told, 206
    headers["Content-Length"] = str(span.end - span.first)
    return StreamingResponse(chunks(view[span.first : span.end]), status, headers, "application/octet-stream")


def final_files(services: Services, run: RunId, asking: Caller) -> Files:
    """What the final state consists of. Raises NotFound; Refused while there is none; PermissionRefused.

    Some methods' states are for admins alone; and so is that of a run that has told tables for them, which may stand in it.
    """
    row = services.run_service.find(run)
    if row.status is not Status.COMPLETED:
        raise Refused(
            f"Run {run} is {row.status.value}; only a completed run has a final state",
            f"See what it waits for, or why it ended: tideline run show {run}",
        )
    rounds = services.journal.rounds(run)
    theirs = row.spec.admins or any(table.admins for closed in rounds for table in closed.tables.values())
    if theirs and not asking.role.covers(KeyRole.ADMIN):
        what = f"The key {asking.name!r} is {article(asking.role)}; the final state of run {run} needs {KeyRole.ADMIN}"
        todo = f"Ask an admin for a key whose role is {KeyRole.ADMIN}, or for the exported file"
        raise PermissionRefused(what, todo, role=asking.role.value, needs=KeyRole.ADMIN.value)
    return rounds[-1].state


def chunks(view: memoryview) -> Iterator[bytes]:
    """A file's bytes, copied piece by piece on the worker thread: that is where a mapped file is read from disk."""
    for at in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[at : at + CHUNK_BYTES])


@router.post("/parts/sweep", summary="Drop the parts that nothing needs")
def sweep_parts(services: Given, identity: Named) -> PartsSwept:
    """Looks at the whole store. What an open run needs stays, the last state of an ended one, and what is under an hour old."""
    return PartsSwept(**asdict(services.part_store.sweep(identity.by)))
