"""The manual of the API in a browser: Swagger UI, whose files come with a package that is installed beside this one.

Whoever reads it may paste an admin key there. So nothing on the page comes from elsewhere, and its policy forbids that.
"""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from tideline_server.api.requests.conditional import REVALIDATE, matches

router = APIRouter(include_in_schema=False)
PACKAGE = "fastapi_offline"  # of which the files alone are used
DAY = {"Cache-Control": "max-age=86400"}
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tideline coordinator</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="manual"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/begin.js"></script>
</body>
</html>
"""
# In a file of its own: the page's policy knows no script that stands in the page.
BEGIN = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#manual",
  deepLinking: true,
  validatorUrl: null,
});
"""


@router.get("/docs")
async def manual() -> HTMLResponse:
    return HTMLResponse(PAGE)


@router.get("/openapi.json")
async def description(request: Request) -> Response:
    """The same bytes and the same tag for everybody: nothing of them is made, copied or hashed for a request."""
    app = request.app
    body = app.made or await run_in_threadpool(app.written)
    headers = {"ETag": app.tag, "Cache-Control": REVALIDATE}
    if matches(request.headers.getlist("if-none-match"), app.tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@router.get("/docs/begin.js")
async def begin() -> Response:
    return Response(BEGIN, media_type="text/javascript")


@router.get("/docs/swagger-ui-bundle.js")
async def script() -> Response:
    return Response(await run_in_threadpool(shipped, "swagger-ui-bundle.js"), headers=DAY, media_type="text/javascript")


@router.get("/docs/swagger-ui.css")
async def style() -> Response:
    return Response(await run_in_threadpool(shipped, "swagger-ui.css"), headers=DAY, media_type="text/css")


def shipped(name: str) -> bytes:
    return files(PACKAGE).joinpath("static", name).read_bytes()
