"""The app: routers, handlers and middleware put together."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.middleware import Middleware

from tideline_server.api import algorithms, clients, events, files, health, runs
from tideline_server.api.answers import add_handlers
from tideline_server.api.doors import Intake, KeyCheck, Shield
from tideline_server.api.models import ErrorBody
from tideline_server.api.once import Once, declare_key
from tideline_server.api.services import DEFAULTS, ApiSettings, Responses, Services

ABOUT = """Start and watch federated runs, and fetch their results.

Every error has one shape, `{"error": {"kind", "what", "todo", "path", "context"}}`; programs match on `kind`.
Every address but `/health` and these pages asks for `Authorization: Bearer KEY`.
"""
TAGS = [
    {"name": "runs", "description": "Experiments that were started, and how far they are."},
    {"name": "results", "description": "Files of final states."},
    {"name": "algorithms", "description": "Methods, their settings, and what they make sites send."},
    {"name": "clients", "description": "Enrolled agents, and invitations."},
    {"name": "health", "description": "Whether the coordinator is well."},
]
LATER = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
REFUSALS: Responses = {
    400: {"model": ErrorBody, "description": "The body is not strict JSON"},
    401: {"model": ErrorBody, "description": "The API key is missing or wrong"},
    403: {"model": ErrorBody, "description": "The name or token belongs to another agent"},
    404: {"model": ErrorBody, "description": "Nothing of that name"},
    409: {"model": ErrorBody, "description": "Understood, but not in this state, or still under way", "headers": LATER},
    413: {"model": ErrorBody, "description": "The body is too long"},
    415: {"model": ErrorBody, "description": "The body is not labelled as JSON"},
    422: {"model": ErrorBody, "description": "A value is wrong; `path` says which"},
    429: {
        "model": ErrorBody,
        "description": "More requests than the limit; ask again after `Retry-After`",
        "headers": LATER,
    },
    500: {"model": ErrorBody, "description": "The coordinator failed; its log names the incident"},
    503: {"model": ErrorBody, "description": "A store does not answer; try again"},
}
KEYED = (runs.router, events.router, files.router, algorithms.router, clients.router)


class Described(FastAPI):
    """An app that says of every operation which takes a key that it does."""

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            for operations in super().openapi()["paths"].values():
                for method, operation in operations.items():
                    declare_key(method, operation)
        return super().openapi()


def create_app(desk_side: Services, settings: ApiSettings = DEFAULTS) -> FastAPI:
    """The people's door over a kernel. Holds no state of its own: any number of them may stand side by side."""
    app = Described(
        title="Tideline coordinator",
        version=desk_side.version,
        description=ABOUT,
        openapi_tags=TAGS,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        middleware=guards(desk_side, settings),
    )
    app.state.services, app.state.settings = desk_side, settings
    add_handlers(app)
    app.include_router(health.router)
    # The key is checked by KeyCheck, before anything is read; here it is only declared, for the manual.
    declared = [Security(HTTPBearer(auto_error=False, description="The coordinator's API key"))]
    for router in KEYED:
        app.include_router(router, dependencies=declared, responses=REFUSALS)
    return app


def guards(desk_side: Services, settings: ApiSettings) -> list[Middleware]:
    """What every request passes, outermost first."""
    return [
        Middleware(Shield),
        Middleware(KeyCheck, key_hash=desk_side.api_key_hash, limits=desk_side.limits),
        Middleware(Intake, max_bytes=settings.max_body_bytes),
        Middleware(Once, services=desk_side, patience=settings.patience_seconds),
    ]


def operation_id(route: APIRoute) -> str:
    """Generated clients call operations by the names of our functions."""
    return route.name
