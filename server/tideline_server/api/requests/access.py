"""Which role each operation needs, and who called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.routing import compile_path
from starlette.types import Scope

from tideline.core.errors import PermissionRefused
from tideline.engine.coordinator.access.projects import Projects
from tideline.engine.coordinator.api_keys import ANYBODY, ApiKeys, Caller
from tideline.engine.model.accounts import KeyRole


@dataclass(frozen=True)
class Need:
    """The role that an operation needs, and the operation in words, for the refusal. whole: it is about every project.

    own: it is about who calls, who need not have a role in any project, nor name one.
    """

    role: KeyRole
    what: str
    whole: bool = False
    own: bool = False


VIEW = Need(KeyRole.VIEWER, "viewing")
# What needs no key.
MANUAL_PATHS = frozenset({"/docs", "/docs/begin.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"})
SIGN_IN_PATHS = frozenset({"/sign-in", "/sign-in/start", "/sign-in/callback", "/sign-in/key"})
DASHBOARD, PAGES = "/", "/pages/"  # the dashboard's first page, and what its other files lie below
OPEN_PATHS = frozenset({"/health", "/ready", "/openapi.json"}) | MANUAL_PATHS | SIGN_IN_PATHS
# What a key that was good a while ago opens while the store of keys is away: that it is away is told there.
WHILE_AWAY = frozenset({"/metrics"})
OTHER = "other"
PROJECT = "Tideline-Project"  # the header by which a call names a project
NEEDS: Mapping[str, Need] = {
    "GET /algorithms": VIEW,
    "GET /algorithms/{name}": VIEW,
    "GET /algorithms/{name}/contract": VIEW,
    "GET /clients": VIEW,
    "GET /parts/{digest}": Need(KeyRole.OPERATOR, "reading a run's model"),  # of a model, much of rows may be read
    "GET /metrics": VIEW,
    "GET /retention": Need(KeyRole.VIEWER, "seeing what is deleted next", whole=True),
    "GET /runs": VIEW,
    "GET /runs/{run}": VIEW,
    "GET /runs/{run}/events": VIEW,
    "GET /runs/{run}/orders": VIEW,
    "GET /runs/{run}/dossier": Need(KeyRole.VIEWER, "getting a run's dossier"),
    "GET /signer": VIEW,
    "GET /changes": VIEW,
    "GET /runs/{run}/files": Need(KeyRole.OPERATOR, "reading a run's model"),
    "GET /weights/{digest}": Need(KeyRole.OPERATOR, "finding weights"),
    "GET /whoami": Need(KeyRole.VIEWER, "viewing", own=True),
    "GET /session": Need(KeyRole.VIEWER, "viewing", own=True),
    "POST /sign-out": Need(KeyRole.VIEWER, "signing out", own=True),
    # It tells nothing of this coordinator and changes nothing; what it costs is bounded whoever asks (planner).
    "POST /links/plan": Need(KeyRole.VIEWER, "planning links"),
    "POST /runs": Need(KeyRole.OPERATOR, "starting a run"),
    "POST /runs/check": Need(KeyRole.OPERATOR, "checking an experiment"),
    "POST /runs/{run}/cancel": Need(KeyRole.OPERATOR, "cancelling a run"),
    "DELETE /runs/{run}": Need(KeyRole.OPERATOR, "deleting a run"),
    "POST /runs/{run}/resume": Need(KeyRole.OPERATOR, "resuming a run"),
    "POST /invites": Need(KeyRole.OPERATOR, "inviting an agent"),
    "POST /clients/{name}/approve": Need(KeyRole.OPERATOR, "approving an agent"),
    "POST /parts/sweep": Need(KeyRole.OPERATOR, "sweeping the parts", whole=True),
    "POST /parts/verify": Need(KeyRole.OPERATOR, "verifying the parts", whole=True),
    "PUT /weights/{digest}": Need(KeyRole.OPERATOR, "uploading weights"),
    "POST /clients/{name}/revoke": Need(KeyRole.ADMIN, "revoking an agent"),
    "POST /clients/{name}/projects": Need(KeyRole.ADMIN, "saying which projects a site serves"),
    "POST /clients/{name}/rotate": Need(KeyRole.ADMIN, "having an agent change its keys"),
    "GET /notify": Need(KeyRole.OPERATOR, "seeing who is notified"),
    "POST /notify": Need(KeyRole.OPERATOR, "adding a target of notices"),
    "POST /notify/{name}/test": Need(KeyRole.OPERATOR, "testing a target of notices"),
    "DELETE /notify/{name}": Need(KeyRole.OPERATOR, "removing a target of notices"),
    "GET /projects": Need(KeyRole.VIEWER, "seeing one's project", own=True),
    "GET /projects/{name}/hours": Need(KeyRole.VIEWER, "seeing one's project", own=True),
    "POST /projects": Need(KeyRole.ADMIN, "making a project"),
    "POST /projects/{name}/limit": Need(KeyRole.ADMIN, "limiting a project"),
    "DELETE /projects/{name}": Need(KeyRole.ADMIN, "removing a project"),
    "GET /restored": Need(KeyRole.ADMIN, "seeing what a restore had forgotten"),
    "POST /restored/confirm": Need(KeyRole.ADMIN, "confirming a restore"),
    "GET /audit": Need(KeyRole.ADMIN, "reading the audit log"),
    "GET /audit/tip": Need(KeyRole.ADMIN, "reading the audit log"),
    "GET /keys": Need(KeyRole.ADMIN, "listing the keys"),
    "POST /keys": Need(KeyRole.ADMIN, "making a key"),
    "DELETE /keys/{name}": Need(KeyRole.ADMIN, "revoking a key"),
    "GET /sessions": Need(KeyRole.ADMIN, "listing the sessions"),
    "DELETE /sessions/{name}": Need(KeyRole.ADMIN, "ending a session"),
}
# What changes nothing although its method would let it: a body is all it looks at.
UNCHANGING = frozenset({"POST /links/plan", "POST /runs/check"})
# Streams that browsers follow: there a call may name its project in the address.
FOLLOWED = frozenset({"GET /changes", "GET /runs/{run}/events"})
# Whose answers have a secret that no store may have: it would stand there for a repeat.
BEGINNING = frozenset({"POST /sign-in/key"})
STREAMED = frozenset({"PUT /weights/{digest}"})  # whose bodies are files, which no middleware takes in
TEMPLATES = [(path, compile_path(path)[0]) for path in sorted({row.partition(" ")[2] for row in NEEDS})]
PATTERNS = [(row.partition(" ")[0], compile_path(row.partition(" ")[2])[0], need) for row, need in NEEDS.items()]


def is_page(path: str) -> bool:
    """Whether an address is the dashboard's, where files without a secret lie."""
    return path == DASHBOARD or path.startswith(PAGES)


def needs_key(path: str) -> bool:
    """Whether whoever asks for an address has to say who he is."""
    return path not in OPEN_PATHS and not is_page(path)


def streams(method: str, path: str) -> bool:
    """Whether a request's body is a file, which the operation itself takes in while it comes."""
    return f"{method} {route_of(path)}" in STREAMED


def keyless(method: str, path: str) -> bool:
    """Whether a call takes no idempotency key: it is the same however often it is sent, or nobody may keep its answer."""
    return f"{method} {route_of(path)}" in STREAMED | UNCHANGING | BEGINNING


def route_of(path: str) -> str:
    """The template of an address; of one that no route takes `other`."""
    if path in OPEN_PATHS or path == DASHBOARD:
        return path
    if path.startswith(PAGES):
        return f"{PAGES}{{path}}"
    return next((template for template, pattern in TEMPLATES if pattern.match(path)), OTHER)


def need_of(method: str, path: str) -> Need | None:
    """What a request needs. None: no route takes it, and every key may hear so."""
    return next((need for allowed, pattern, need in PATTERNS if allowed == method and pattern.match(path)), None)


def permit(caller: Caller, need: Need | None) -> None:
    """Raises PermissionRefused where the caller's role does not cover what a request needs."""
    whose = f"{'' if caller.grants else 'The key '}{caller.name!r}"
    if need is not None and not caller.role.covers(need.role):
        what = "role" if caller.grants else "key whose role"
        raise PermissionRefused(
            f"{whose} is {article(caller.role)}; {need.what} needs {need.role}",
            f"Ask an admin for a {what} {'' if caller.grants else 'is '}{need.role}",
            role=caller.role.value,
            needs=need.role.value,
        )
    if need is not None and need.whole and not caller.whole:
        raise PermissionRefused(
            f"{whose} is of the project {caller.scope}; {need.what} is about all of them",
            "Ask an admin to do it, or for a key of all projects: tideline keys add --project all",
            project=caller.scope,
        )


def article(role: KeyRole) -> str:
    return f"a {role}" if role is KeyRole.VIEWER else f"an {role}"


def check_rows(operations: Iterable[str]) -> None:
    """Raises LookupError for an operation without a row: it would be open to every key."""
    missing = sorted({each for each in operations if each.partition(" ")[2] not in OPEN_PATHS} - set(NEEDS))
    if missing:
        raise LookupError(f"No role is written down for {', '.join(missing)}")


def caller_in(scope: Scope) -> Caller:
    """Who made a request that KeyCheck let in."""
    caller: Caller = scope.get("state", {}).get("caller", ANYBODY)
    return caller


async def caller_of(request: Request) -> Caller:
    return caller_in(request.scope)


async def projects_of(request: Request) -> Projects:
    projects: Projects = request.app.state.projects
    return projects


async def api_keys_of(request: Request) -> ApiKeys:
    api_keys: ApiKeys = request.app.state.api_keys
    return api_keys


Asking = Annotated[Caller, Depends(caller_of)]
Keys = Annotated[ApiKeys, Depends(api_keys_of)]
Known = Annotated[Projects, Depends(projects_of)]
