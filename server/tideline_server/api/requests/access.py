"""Who calls, and whether their role permits it: checked before a byte of the body is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from tideline.core.errors import ConfigRefused, FederationError, IdentityRefused, PermissionRefused
from tideline.engine.coordinator.access.projects import Projects
from tideline.engine.coordinator.api_keys import ANYBODY, ApiKeys, Caller
from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.accounts import KeyRole
from tideline_server.api.answers import answer
from tideline_server.api.requests.cookies import SESSION, check_own_page, cookie_in, own_address
from tideline_server.errors import code_of
from tideline_server.limits import Limits, Refusing
from tideline_server.oidc.callers import SignIn
from tideline_server.oidc.tokens import resembles


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
SIGN_IN_PATHS = frozenset({"/sign-in", "/sign-in/start", "/sign-in/callback"})
OPEN_PATHS = frozenset({"/health", "/ready", "/openapi.json"}) | MANUAL_PATHS | SIGN_IN_PATHS
# What a key that was good a while ago opens while the store of keys is away: that it is away is told there.
WHILE_AWAY = frozenset({"/metrics"})
OTHER = "other"
WAITING = 4  # tokens for which the provider is asked at a time
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
    "GET /runs/{run}/files": Need(KeyRole.OPERATOR, "reading a run's model"),
    "GET /weights/{digest}": Need(KeyRole.OPERATOR, "finding weights"),
    "GET /whoami": Need(KeyRole.VIEWER, "viewing", own=True),
    "GET /session": Need(KeyRole.VIEWER, "viewing", own=True),
    "POST /sign-out": Need(KeyRole.VIEWER, "signing out", own=True),
    # It tells nothing of this coordinator and changes nothing; what it costs is bounded whoever asks (planner).
    "POST /links/plan": Need(KeyRole.VIEWER, "planning links"),
    "POST /runs": Need(KeyRole.OPERATOR, "starting a run"),
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
UNCHANGING = frozenset({"POST /links/plan"})  # what changes nothing although its method would let it: a body is all it looks at
STREAMED = frozenset({"PUT /weights/{digest}"})  # whose bodies are files, which no middleware takes in
TEMPLATES = [(path, compile_path(path)[0]) for path in sorted({row.partition(" ")[2] for row in NEEDS})]
PATTERNS = [(row.partition(" ")[0], compile_path(row.partition(" ")[2])[0], need) for row, need in NEEDS.items()]


def streams(method: str, path: str) -> bool:
    """Whether a request's body is a file, which the operation itself takes in while it comes."""
    return f"{method} {route_of(path)}" in STREAMED


def keyless(method: str, path: str) -> bool:
    """Whether a call is the same however often it is sent, by what it is: it needs no key to be done once."""
    return f"{method} {route_of(path)}" in STREAMED | UNCHANGING


def route_of(path: str) -> str:
    """The template of an address; of one that no route takes `other`."""
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


class KeyCheck:
    """Everything but health and the manual asks for a key, counts for the caller's limits, and needs a role (roles)."""

    def __init__(
        self,
        app: ASGIApp,
        api_keys: ApiKeys,
        projects: Projects,
        limits: Limits,
        refusing: Refusing,
        sign_in: SignIn | None = None,
    ) -> None:
        self.app, self.api_keys, self.projects, self.limits, self.refusing = app, api_keys, projects, limits, refusing
        self.sign_in = sign_in
        self._waiting = CapacityLimiter(WAITING)  # else strangers' tokens could take every thread of the process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
                need = need_of(scope["method"], scope["path"])
                caller = await self.admit(scope)
                caller = await self.narrowed(caller, Headers(scope=scope).get(PROJECT, ""), need is not None and need.own)
                scope.setdefault("state", {})["caller"] = caller
                permit(caller, need)
        except IdentityRefused as error:
            await answer(401, error, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)
        except FederationError as error:
            await answer(code_of(error).http, error)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def narrowed(self, caller: Caller, asked: str, own: bool = False) -> Caller:
        """The caller in the project that a call names. Raises NotFound; Unreachable where projects have to be looked up.

        own: the call is about the caller, who stays as he is where no project is named and it does not go without.
        """
        try:
            if self.projects.fresh or (caller.scope == EVERY and not asked):
                return self.projects.narrowed(caller, asked)
            return await run_in_threadpool(self.projects.narrowed, caller, asked)
        except (ConfigRefused, PermissionRefused):
            if not own:
                raise
            return caller

    async def admit(self, scope: Scope) -> Caller:
        """Let a caller in. Raises IdentityRefused, TooMany; Unreachable where a store is needed and does not answer."""
        address, key = (scope.get("client") or ("",))[0], key_in(Headers(scope=scope))
        secret = "" if key else self.session_in(scope)
        try:
            if secret:
                caller = await self.of_browser(scope, secret)
            elif self.sign_in is not None and resembles(key):
                caller = await self.of_token(self.sign_in, key)
            else:
                caller = await self.of_key(key, scope["path"] in WHILE_AWAY)
        except IdentityRefused as error:
            if key or secret:  # noted before it is counted: also one that is over the limit stands in the log
                await self.refusing.note("", address, error.what)
            await self.limits.wrong_key(address)
            raise
        await self.limits.call(address)
        return caller

    async def of_key(self, key: str, lately: bool) -> Caller:
        """The holder of an API key. lately: while the store is away, one is good enough that was good a while ago."""
        known = self.api_keys.at_once(key)
        return await run_in_threadpool(self.api_keys.caller, key, lately) if known is None else known

    async def of_token(self, sign_in: SignIn, token: str) -> Caller:
        """The user of a provider's token. One whose key is not known may have the provider asked: few at a time."""
        known = sign_in.at_once(token)
        return await to_thread.run_sync(sign_in.caller, token, limiter=self._waiting) if known is None else known

    async def of_browser(self, scope: Scope, secret: str) -> Caller:
        """The user of a browser's session, if the call may come from the page that it seems to come from."""
        assert self.sign_in is not None
        caller, begun = await run_in_threadpool(self.sign_in.session, secret)
        check_own_page(scope, begun, own_address(scope, self.sign_in.options.url))
        scope.setdefault("state", {})["begun"] = begun
        return caller

    def session_in(self, scope: Scope) -> str:
        """The secret of a browser's session; empty: there is none."""
        if self.sign_in is None:
            return ""
        return cookie_in(Headers(scope=scope), SESSION, own_address(scope, self.sign_in.options.url))


def key_in(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


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
