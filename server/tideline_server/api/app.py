"""The app: routers, handlers and middleware put together."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from fastapi import APIRouter, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from tideline.engine.audit.entries import Refusals
from tideline.engine.coordinator.access.projects import Projects
from tideline.engine.coordinator.api_keys import ApiKeys
from tideline_server.api.answers import add_handlers
from tideline_server.api.dossiers import routes as dossiers
from tideline_server.api.live import changes
from tideline_server.api.models import Problem
from tideline_server.api.openapi import Described
from tideline_server.api.requests.access import check_rows
from tideline_server.api.requests.admission import Admission, KeyCheck
from tideline_server.api.requests.bodies import Intake
from tideline_server.api.requests.conditional import Tags
from tideline_server.api.requests.cookies import OwnAddress
from tideline_server.api.requests.idempotency import Once
from tideline_server.api.requests.turns import InTurn
from tideline_server.api.requests.wrapping import Confined, Counting, Handshake, Numbered, Shield
from tideline_server.api.routes import (
    admin,
    clients,
    files,
    health,
    manual,
    methods,
    notify,
    orders,
    pages,
    retention,
    runs,
    sessions,
    sign_in,
)
from tideline_server.api.routes import projects as projects_routes
from tideline_server.api.services import DEFAULTS, ApiSettings, Responses, Services
from tideline_server.browsers.sessions import Sessions
from tideline_server.limits import Refusing

ABOUT = """Start and watch federated runs, and fetch their results.

Every error is a problem document (RFC 9457), `application/problem+json`; programs match on its `kind`.
Every address but `/health`, `/ready`, `/sign-in` and these pages needs `Authorization: Bearer KEY`, and the role that it names.
Users of a provider of identities send its token in the place of a key, or have a session in their browser.
A key is of one project, or of all; then the header `Tideline-Project` names the one that a call is about.
"""
TAGS = [
    {"name": "runs", "description": "Experiments that were started, and how far they are."},
    {"name": "results", "description": "Files of final states."},
    {"name": "weights", "description": "Files that runs begin from."},
    {"name": "links", "description": "Which devices should send their models to which, without a run."},
    {"name": "algorithms", "description": "Methods, their settings, and what sites send for them."},
    {"name": "clients", "description": "Enrolled agents, and invitations."},
    {"name": "keys", "description": "Keys of this API and their roles."},
    {"name": "sign-in", "description": "Users of a provider of identities, and the sessions of their browsers."},
    {"name": "projects", "description": "Whose the sites, keys and runs are; nothing of one project is seen in another."},
    {"name": "notices", "description": "Who hears of runs and of the coordinator without asking."},
    {"name": "audit", "description": "What was done, in a chain in which every change of an entry shows."},
    {"name": "health", "description": "Whether the coordinator works."},
]
LATER = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
WORDS = {
    400: "The body is not strict JSON, or the call is of an API version that is not supported",
    401: "The API key, token or session is missing, wrong, revoked or expired",
    403: "The key's role does not cover this, or the name is another agent's",
    404: "Nothing of that name",
    409: "Understood, but not in this state, or still under way",
    408: "The body did not come in time",
    410: "The run was deleted",
    413: "The body is too long",
    415: "The body is not labelled as JSON, or is compressed",
    422: "A value is wrong; `path` says which",
    429: "More requests than the limit; ask again after `Retry-After`",
    500: "The coordinator failed; its log names the incident",
    503: "A store or the provider of identities does not answer, or all places are taken; try again",
    507: "The coordinator's disk is full",
}
REFUSALS: Responses = {status: {"model": Problem, "description": words} for status, words in WORDS.items()}
for status in (409, 429, 503):
    REFUSALS[status]["headers"] = LATER
REFUSALS[401]["headers"] = {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}}
KEYED = (
    *(changes.router, orders.router, dossiers.router),
    *(runs.router, retention.router, files.router, files.weights, methods.links, methods.router, clients.router),
    *(admin.router, projects_routes.router, notify.router, sessions.router, admin.audit, admin.restores, health.numbers),
)


def create_app(services: Services, settings: ApiSettings = DEFAULTS) -> Described:
    """The HTTP API over the engine. It holds no state of its own: any number of them may run side by side."""
    api_keys, projects = api_keys_for(services), Projects(services.journal, services.clock, services.part_store)
    admission = admission_of(services, settings, api_keys, projects)
    app = Described(
        title="Tideline coordinator",
        version=services.version,
        description=ABOUT,
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=guards(services, settings, admission),
    )
    app.state.services, app.state.settings, app.state.api_keys, app.state.projects = services, settings, api_keys, projects
    app.state.admission, app.state.feed = admission, changes.feed_of(services, settings)
    add_handlers(app)
    app.router.routes.extend(build_routes(settings.dashboard))
    return app


@cache
def build_routes(dashboard: bool) -> tuple[BaseRoute, ...]:
    """Return the routes of every app of this process. FastAPI prepares each at its first request, which takes 0.1 s for all."""
    whole = APIRouter(generate_unique_id_function=lambda route: route.name)  # generated clients call operations by our names
    whole.include_router(health.router)
    whole.include_router(manual.router)
    whole.include_router(sign_in.router)
    if dashboard:
        whole.include_router(pages.router)
        whole.include_router(sign_in.keys, responses=REFUSALS)
    # The key and its role are checked by KeyCheck, before anything is read; here it is only declared, for the manual.
    declared = [Security(HTTPBearer(auto_error=False, description="The coordinator's API key"))]
    for router in KEYED:
        whole.include_router(router, dependencies=declared, responses=REFUSALS)
        check_rows(f"{m} {each.path}" for each in router.routes if isinstance(each, APIRoute) for m in each.methods or ())
    return tuple(whole.routes)


def api_keys_for(services: Services) -> ApiKeys:
    """The keys that this coordinator accepts: the admin keys of its own, and those in the journal."""
    own: Collection[str] | None = services.admins
    if own is None and services.api_key_hash is not None:
        own = [each for each in (services.api_key_hash, services.shared_key_hash) if each is not None]
    return ApiKeys(services.journal, services.clock, own, services.run_service.enrolment.witness)


def admission_of(services: Services, settings: ApiSettings, api_keys: ApiKeys, projects: Projects) -> Admission:
    """What lets callers in, by keys, sessions and a provider's tokens."""
    users = None if services.browser is None else services.browser.sign_in
    witness = services.run_service.enrolment.witness
    return Admission(
        api_keys=api_keys,
        projects=projects,
        limits=services.limits,
        refusing=Refusing(Refusals(services.journal, services.clock, "http"), run_in_threadpool),
        sessions=Sessions(api_keys, services.journal, services.clock, witness=witness, users=users),
        own=OwnAddress("" if users is None else users.options.url, settings.public_url),
        sign_in=users,
    )


def guards(services: Services, settings: ApiSettings, admission: Admission) -> list[Middleware]:
    """What every request passes, outermost first."""
    return [
        Middleware(InTurn),
        Middleware(Numbered),
        Middleware(Confined),
        Middleware(Counting, seen=services.seen),
        Middleware(Handshake, version=services.version),
        Middleware(Shield),
        Middleware(KeyCheck, admission=admission),
        Middleware(Intake, max_bytes=settings.max_body_bytes, seconds=settings.body_seconds),
        Middleware(Once, services=services, patience=settings.patience_seconds),
        Middleware(Tags),
    ]
