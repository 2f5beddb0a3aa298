"""The dashboard in a browser: files without a secret, so they need no key."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tideline.pages.files import takes_gzip
from tideline_server.api.requests.conditional import matches
from tideline_server.pages import table

router = APIRouter(include_in_schema=False)
INDEX = "index.html"
# no-cache: kept, and asked for again each time, so that pages and API are always of one version.
REVALIDATE = "no-cache"


@router.get("/")
async def index(request: Request) -> Response:
    return serve(request, INDEX)


@router.get("/pages/{path:path}")
async def page(request: Request, path: str) -> Response:
    return serve(request, path)


def serve(request: Request, path: str) -> Response:
    """A file of the table, 304 where the browser has it, or 404."""
    found = table().get(path)
    if found is None:
        raise HTTPException(404, "Not Found")
    headers = {"ETag": found.tag, "Cache-Control": REVALIDATE, "Vary": "Accept-Encoding"}
    if matches(request.headers.getlist("if-none-match"), found.tag):
        return Response(status_code=304, headers=headers)
    if found.packed and takes_gzip(request.headers.getlist("accept-encoding")):
        return Response(found.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.media)
    return Response(found.body, headers=headers, media_type=found.media)
