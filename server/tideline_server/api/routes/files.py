"""Files: those of a final state, and initial weights that users upload under their digest before a run names them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Annotated, Literal

import anyio
from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse

from tideline.archive.digests import PATTERN
from tideline.archive.errors import DataTruncated, DigestMismatch, TooLarge
from tideline.archive.parts import Upload
from tideline.core.errors import ConfigRefused, Malformed, NotFound, PermissionRefused, Refused
from tideline.core.run import Digest, RunId
from tideline.engine.coordinator.api_keys import Caller
from tideline.engine.coordinator.integrity.mending import Mender
from tideline.engine.coordinator.integrity.verifying import Verifier
from tideline.engine.coordinator.scores import scored_state
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.accounts import KeyRole
from tideline.engine.model.experiment import uploader
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import Status
from tideline_server.api.answers import answer
from tideline_server.api.models import PartsSwept, PartsVerified, Problem, RunFiles, Weights
from tideline_server.api.requests.access import Asking, Known, article
from tideline_server.api.requests.bodies import NoLength, NotLabelled, TooSlow, check_plain, refusal
from tideline_server.api.requests.conditional import OutOfRange, Span, matches, span_of, unchanged
from tideline_server.api.services import ApiSettings, Given, Name, Named, Responses, Services

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

FINAL, BEST = "final", "best"
Which = Annotated[Literal["final", "best"], Query(description="the run's last state, or the one that its best round scored")]
PartDigest = Annotated[str, Path(pattern=f"^{PATTERN}$", description="BLAKE3 of the bytes: b3- and 64 hexadecimal digits")]
OfRun = Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="the completed run whose state names the file")]


@router.get("/runs/{run}/files", summary="List the files of a completed run's final state")
def run_files(services: Given, asking: Asking, run: Name, which: Which = "final") -> RunFiles:
    """The root, which names the others, and its parts. 409 while the run is not completed; `best` of a run that selects."""
    files = state_files(services, RunId(run), asking)[which]
    if not files:
        what = f"Run {run} has no best round: it selects by no score, or its sites told none"
        raise NotFound(what, "Leave which out", path="which")
    return RunFiles(root=files[0][0], files=list(files))


@router.get("/parts/{digest}", summary="Download one file", response_class=StreamingResponse, responses=BYTES)
def part_bytes(services: Given, asking: Asking, digest: PartDigest, run: OfRun, request: Request) -> Response:
    """Raw bytes, or one range of them. A digest alone opens nothing: the final state of the run that you name must name it, or
    that of its best round.
    """
    if not any(digest in dict(files) for files in state_files(services, RunId(run), asking).values()):
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
        headers["Content-Range"], status = span.content_range, 206
    headers["Content-Length"] = str(span.end - span.first)
    return StreamingResponse(chunks(view[span.first : span.end]), status, headers, "application/octet-stream")


def state_files(services: Services, run: RunId, asking: Caller) -> dict[str, Files]:
    """What the final state and that of the best round consist of; the latter is empty where a run has none.

    Raises NotFound; Refused while there is no final state; PermissionRefused.

    Some methods' states are for admins alone; and so is that of a run that has length tables for them, which may stand in it.
    """
    row = services.run_service.find(run, asking.scope)
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
    return {FINAL: rounds[-1].state, BEST: () if row.best is None else scored_state(rounds, row.best)}


def chunks(view: memoryview) -> Iterator[bytes]:
    """A file's bytes, copied piece by piece on the worker thread: that is where a mapped file is read from disk."""
    for at in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[at : at + CHUNK_BYTES])


@router.post("/parts/sweep", summary="Drop the parts that nothing needs")
def sweep_parts(services: Given, identity: Named) -> PartsSwept:
    """Looks at the whole store. What an open run needs stays, the last state of an ended one, and what is under an hour old."""
    return PartsSwept(**asdict(services.part_store.sweep(identity.by)))


After = Annotated[str, Query(pattern=f"^({PATTERN})?$", description="go on behind this part")]
Repair = Annotated[bool, Query(description="make again what runs need, once all parts were read")]


@router.post("/parts/verify", summary="Read parts, and find those that are damaged")
def verify_parts(services: Given, identity: Named, after: After = "", repair: Repair = False) -> PartsVerified:
    """Reads for some seconds; call it again with its `after` until that is empty. What is damaged is put aside."""
    runs = services.run_service
    mender = Mender(
        journal=services.journal, part_store=services.part_store, compute=services.compute, bell=runs.bell, clock=services.clock
    )
    return PartsVerified(**asdict(Verifier(services.part_store, mender).verify(after, repair, identity.by)))


weights = APIRouter(prefix="/weights", tags=["weights"])
PIECE_BYTES = 1 << 20  # that are passed on to the disk at once
BODY = {"requestBody": {"required": True, "content": OCTETS}}
TAKEN: Responses = {
    200: {"model": Weights, "description": "The file was here before"},
    411: {"model": Problem, "description": "The length of the file is not announced"},
}


@weights.get("/{digest}", summary="Look whether weights are here")
def weights_here(services: Given, asking: Asking, digest: PartDigest, request: Request) -> Weights:
    """Whether your project has them. If so, they wait an hour from now for a run that names them.

    404 if not; `context.limit` is how long a file may be.
    """
    if not services.part_store.has_initial_weights(Digest(digest), asking.scope or DEFAULT):
        settings: ApiSettings = request.app.state.settings
        what = f"There are no weights {digest[:12]} here"
        raise NotFound(what, "Upload them with PUT", limit=settings.max_weights_bytes)
    return Weights(digest=digest, bytes=services.part_store.parts.size(Digest(digest)))


@weights.put("/{digest}", status_code=201, summary="Upload weights", response_model=Weights, openapi_extra=BODY, responses=TAKEN)
async def put_weights(services: Given, asking: Asking, projects: Known, digest: PartDigest, request: Request) -> Response:
    """The body is a safetensors file, whose digest stands in the address. It waits an hour for a run that names it, then goes.

    Sent again, it waits anew. Only a run that names it reads it, and is of the same project. 409 where a quota is reached.
    """
    settings: ApiSettings = request.app.state.settings
    project = asking.scope or DEFAULT
    try:
        size = announced(request.headers, settings.max_weights_bytes)
        before = await run_in_threadpool(services.part_store.has_initial_weights, Digest(digest), project)
        await run_in_threadpool(projects.check_room, project, 0 if before else size)
        await take(services, Digest(digest), size, pieces(request, settings.body_seconds), project)
    except (NotLabelled, TooSlow, NoLength) as error:
        return refusal(error)
    return JSONResponse({"digest": digest, "bytes": size}, 200 if before else 201)


def announced(headers: Headers, most: int) -> int:
    """The bytes that a body is to have. Raises NoLength, TooLarge, and Encoded for one that is compressed."""
    check_plain(headers)
    length = headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in headers:
        raise NoLength("The length of the file is not announced", "Send the header Content-Length, and no Transfer-Encoding")
    size = int(length[:20])
    if size > most:
        todo = "Bring fewer numbers, or smaller ones; the coordinator's --weights-limit sets the limit"
        raise TooLarge(f"The file has {size} bytes; at most {most} may be uploaded", todo, limit=most)
    return size


async def pieces(request: Request, seconds: float) -> AsyncIterator[bytes]:
    """The body, a piece at a time. Raises TooSlow where nothing comes for so many seconds, Malformed where the line is cut."""
    stream, held = request.stream(), bytearray()
    while True:
        chunk = None
        try:
            with anyio.move_on_after(seconds):
                chunk = await anext(stream, b"")
        except ClientDisconnect:
            raise Malformed("The body was cut short") from None  # told to nobody
        if chunk is None:
            raise TooSlow(f"Nothing has come of the body for {seconds:g} s", "Send the call again")
        held += chunk
        if held and (not chunk or len(held) >= PIECE_BYTES):
            yield bytes(held)
            held.clear()
        if not chunk:
            return


async def take(services: Services, digest: Digest, size: int, body: AsyncIterator[bytes], project: str) -> None:
    """Keep a file while its body comes; of one that is cut, or another than announced, nothing stays."""
    upload = await run_in_threadpool(services.part_store.upload_initial_weights, digest, size)
    try:
        async for piece in body:
            await run_in_threadpool(upload.write, piece)
        await run_in_threadpool(finish_upload, services, upload, size, project)
    except DigestMismatch as error:
        got = str(error.context["got"])
        what = f"The file's digest is {got}; the address says {digest}"
        todo = "Send the file that the address names, or name this one"
        raise ConfigRefused(what, todo, path="digest", digest=got) from None
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(upload.discard)


def finish_upload(services: Services, upload: Upload, size: int, project: str) -> None:
    """Name a file that is whole, and note it. Raises DataTruncated, DigestMismatch."""
    if upload.offset < size:
        raise DataTruncated(f"The body ended {size - upload.offset} bytes before its announced end", "Send the call again")
    services.part_store.commit([upload], *uploader(project))
