"""Files of weights that people bring: uploaded under their digest, before a run names them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from tideline.archive.errors import DataTruncated, DigestMismatch, TooLarge
from tideline.archive.parts import Upload
from tideline.core.errors import ConfigRefused, Malformed, NotFound
from tideline.core.run import Digest
from tideline.engine.model.experiment import UPLOADER
from tideline_server.api.models import Problem, Weights
from tideline_server.api.requests.shield import NoLength, NotLabelled, TooSlow, check_plain, refusal
from tideline_server.api.routes.files import OCTETS, PartDigest
from tideline_server.api.services import ApiSettings, Given, Responses, Services

router = APIRouter(prefix="/weights", tags=["weights"])
PIECE_BYTES = 1 << 20  # that are passed on to the disk at once
BODY = {"requestBody": {"required": True, "content": OCTETS}}
TAKEN: Responses = {
    200: {"model": Weights, "description": "The file was here before"},
    411: {"model": Problem, "description": "The length of the file is not announced"},
}


@router.get("/{digest}", summary="Look whether weights are here")
def weights_here(services: Given, digest: PartDigest, request: Request) -> Weights:
    """If so, they wait an hour from now for a run that names them. 404 if not; `context.limit` is how long a file may be."""
    if not services.part_store.has_initial_weights(Digest(digest)):
        limit = settings_of(request).max_weights_bytes
        raise NotFound(f"There are no weights {digest[:12]} here", "Upload them with PUT", limit=limit)
    return Weights(digest=digest, bytes=services.part_store.parts.size(Digest(digest)))


@router.put(
    "/{digest}",
    status_code=201,
    summary="Upload weights",
    response_model=Weights,
    openapi_extra=BODY,
    responses=TAKEN,
)
async def put_weights(services: Given, digest: PartDigest, request: Request) -> Response:
    """The body is a safetensors file, whose SHA-256 stands in the address. It waits an hour for a run that names it, then goes.

    Sent again, it waits anew. Only a run that names it reads it.
    """
    settings = settings_of(request)
    try:
        size = announced(request.headers, settings.max_weights_bytes)
        before = await run_in_threadpool(services.part_store.has_initial_weights, Digest(digest))
        await take(services, Digest(digest), size, pieces(request, settings.body_seconds))
    except (NotLabelled, TooSlow, NoLength) as error:
        return refusal(error)
    return JSONResponse({"digest": digest, "bytes": size}, 200 if before else 201)


def settings_of(request: Request) -> ApiSettings:
    """The settings of the app that a request came to."""
    found = request.app.state.settings
    assert isinstance(found, ApiSettings)
    return found


def announced(headers: Headers, most: int) -> int:
    """The bytes that a body is to have. Raises NoLength, TooLarge, and Encoded for one that is compressed."""
    check_plain(headers)
    told = headers.get("content-length", "")
    if not told.isdecimal() or "transfer-encoding" in headers:
        raise NoLength("The length of the file is not announced", "Send the header Content-Length, and no Transfer-Encoding")
    size = int(told[:20])
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


async def take(services: Services, digest: Digest, size: int, body: AsyncIterator[bytes]) -> None:
    """Keep a file while its body comes; of one that is cut, or another than announced, nothing stays."""
    upload = await run_in_threadpool(services.part_store.upload_initial_weights, digest, size)
    try:
        async for piece in body:
            await run_in_threadpool(upload.write, piece)
        await run_in_threadpool(keep, services, upload, size)
    except DigestMismatch as error:
        raise other_bytes(digest, str(error.context["got"])) from None
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(upload.discard)


def keep(services: Services, upload: Upload, size: int) -> None:
    """Name a file that is whole, and note it. Raises DataTruncated, DigestMismatch."""
    if upload.offset < size:
        raise DataTruncated(f"The body ended {size - upload.offset} bytes before its announced end", "Send the call again")
    services.part_store.commit([upload], *UPLOADER)


def other_bytes(digest: Digest, got: str) -> ConfigRefused:
    """The refusal of a file that is another than its address says."""
    what = f"The file's SHA-256 is {got}; the address says {digest}"
    return ConfigRefused(what, "Send the file that the address names, or name this one", path="digest", digest=got)
