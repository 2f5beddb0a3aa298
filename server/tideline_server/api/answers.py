"""Every error in one shape: a problem document (RFC 9457), with what programs match on as `kind`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tideline.core.errors import INCIDENT, MEDIA_TYPE, FederationError, problem
from tideline_server.errors import code_of

LOG = structlog.get_logger("tideline_server.api")
# What the framework itself refuses: kind and what to do.
FRAMEWORK: Mapping[int, tuple[str, str]] = {
    404: ("NotFound", "See /docs for the addresses"),
    405: ("MethodNotAllowed", "See /docs for the methods of this address"),
}


def answer(status: int, error: FederationError, *, kind: str | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """An error as a response. Pure ASCII, so that no text in it can fail to be sent."""
    document = jsonable(problem(error, kind) | {"status": status})
    if (request := structlog.contextvars.get_contextvars().get("request")) is not None:  # bound by wrapping.Numbered
        document["request"] = str(request)
    if "retry_after" in error.context:
        headers = {"Retry-After": str(error.context["retry_after"]), **(headers or {})}
    if "incident" in error.context:
        document["instance"] = f"{INCIDENT}{error.context['incident']}"
    return Response(json.dumps(document), status, headers, MEDIA_TYPE)


def jsonable(value: Any) -> Any:
    """Plain data that JSON can carry: what is no number becomes null, what is no data becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(v) for v in value]
    return str(value)


class PlainJson(Response):
    """Plain data as JSON. Most of it can be written as it is, which is quicker than to look at each value first."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=jsonable)
        except ValueError:  # a value that is no number
            text = json.dumps(jsonable(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()


async def federation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FederationError)
    status = code_of(error).http
    if status >= 500:
        more = {"incident": error.context["incident"]} if "incident" in error.context else {}
        details = {"status": status, "kind": error.kind, "what": error.what, **more}
        LOG.warning("refused", method=request.method, path=request.url.path, **details)
    return answer(status, error)


async def invalid(request: Request, error: Exception) -> Response:
    """A body or parameter of another type than the endpoint's. Places and reasons are told, values are not."""
    assert isinstance(error, RequestValidationError)
    # Without the word for where a value was carried.
    found = [{"path": ".".join(map(str, e["loc"][1:])), "what": str(e["msg"])} for e in error.errors()[:10]]
    first = found[0]
    where = first["path"] or "the body"
    refusal = FederationError(f"{where}: {first['what']}", "See /docs for what is asked", path=first["path"], all=found)
    return answer(422, refusal, kind="ConfigRefused")


async def framework(request: Request, error: Exception) -> Response:
    """An unknown address, a wrong method, or another refusal of the framework."""
    assert isinstance(error, HTTPException)
    kind, todo = FRAMEWORK.get(error.status_code, ("Refused", "See /docs"))
    refusal = FederationError(f"{request.method} {request.url.path[:200]}: {error.detail}", todo)
    return answer(error.status_code, refusal, kind=kind, headers=error.headers)


def add_handlers(app: FastAPI) -> None:
    """Let the app answer in the one shape. What is not expected here is met by wrapping.Shield."""
    app.add_exception_handler(FederationError, federation_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, framework)
