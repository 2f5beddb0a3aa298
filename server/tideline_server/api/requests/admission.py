"""Who calls: by a key, a provider's token or a browser's session, counted for the caller's limits."""

from __future__ import annotations

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from tideline.core.errors import ConfigRefused, FederationError, IdentityRefused, PermissionRefused
from tideline.engine.coordinator.access.projects import Projects
from tideline.engine.coordinator.api_keys import ApiKeys, Caller
from tideline.engine.model.access.projects import EVERY
from tideline_server.api.answers import answer
from tideline_server.api.requests.access import FOLLOWED, PROJECT, WHILE_AWAY, Need, need_of, needs_key, permit, route_of
from tideline_server.api.requests.cookies import SESSION, OwnAddress, check_origin, check_own_page, cookie_in
from tideline_server.browsers.sessions import Begun, Sessions
from tideline_server.errors import code_of
from tideline_server.limits import Limits, Refusing
from tideline_server.oidc.callers import SignIn
from tideline_server.oidc.tokens import resembles

CHALLENGE = {"WWW-Authenticate": "Bearer"}
WAITING = 4  # tokens for which the provider is asked at a time


class Admission:
    """Lets callers in. sign_in: the users of a provider, if there is one."""

    def __init__(
        self,
        *,
        api_keys: ApiKeys,
        projects: Projects,
        limits: Limits,
        refusing: Refusing,
        sessions: Sessions,
        own: OwnAddress,
        sign_in: SignIn | None = None,
    ) -> None:
        self.api_keys, self.projects, self.limits, self.refusing = api_keys, projects, limits, refusing
        self.sessions, self.own, self.sign_in = sessions, own, sign_in
        self._waiting = CapacityLimiter(WAITING)  # else strangers' tokens could take every thread of the process

    async def admit(self, scope: Scope) -> Caller:
        """Let a caller in, for what the request needs.

        Raises IdentityRefused, TooMany, PermissionRefused, NotFound; Unreachable where a store is needed and does not answer.
        """
        address, need = address_in(scope), need_of(scope["method"], scope["path"])
        try:
            caller = await self._known(scope)
        except IdentityRefused as error:
            await self._refused(error, address, bool(key_in(Headers(scope=scope)) or self.session_in(scope)))
            raise
        await self.limits.call(address)
        return await self._permitted(scope, caller, need)

    async def still(self, scope: Scope) -> bool:
        """Whether a caller who was let in would be let in now, to see the same: what is asked again while an answer goes on.

        Where that cannot be found out, he would not.
        """
        before: Caller = scope["state"]["caller"]
        try:
            caller = await self._known(scope)
            now = await self._permitted(scope, caller, need_of(scope["method"], scope["path"]))
        except FederationError:
            return False
        return (now.name, now.role, now.scope) == (before.name, before.role, before.scope)

    async def begin(self, scope: Scope, key: str) -> tuple[Caller, Begun]:
        """A browser's session for who has a key, and shows it on a page of ours. Raises as `admit`."""
        address, own = address_in(scope), self.own.of(scope)
        check_origin(scope, own, "A sign-in with a key")
        try:
            caller = await self._of_key(key, lately=False)
            await self.limits.call(address)
            await self.limits.sign_in(caller.name)
            return await run_in_threadpool(self.sessions.begin, key, own)
        except IdentityRefused as error:
            await self._refused(error, address, True)
            raise

    def session_in(self, scope: Scope) -> str:
        """The secret of a browser's session; empty: there is none."""
        return "" if self.api_keys.open else cookie_in(Headers(scope=scope), SESSION, self.own.of(scope))

    async def _refused(self, error: IdentityRefused, address: str, shown: bool) -> None:
        """Note a wrong key that was shown, and count it: in this order, so that also one over the limit stands in the log."""
        if shown:
            await self.refusing.note("", address, error.what)
        await self.limits.wrong_key(address)

    async def _known(self, scope: Scope) -> Caller:
        """Who calls. Raises IdentityRefused; Unreachable."""
        key = key_in(Headers(scope=scope))
        secret = "" if key else self.session_in(scope)
        if secret:
            return await self._of_browser(scope, secret)
        if self.sign_in is not None and resembles(key):
            return await self._of_token(self.sign_in, key)
        return await self._of_key(key, scope["path"] in WHILE_AWAY)

    async def _permitted(self, scope: Scope, caller: Caller, need: Need | None) -> Caller:
        """The caller in the project that the call names. Raises PermissionRefused, NotFound."""
        caller = await self._narrowed(caller, project_in(scope), need is not None and need.own)
        permit(caller, need)
        return caller

    async def _narrowed(self, caller: Caller, asked: str, own: bool = False) -> Caller:
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

    async def _of_key(self, key: str, lately: bool) -> Caller:
        """The holder of an API key. lately: while the store is away, one is good enough that was good a while ago."""
        known = self.api_keys.at_once(key)
        return await run_in_threadpool(self.api_keys.caller, key, lately) if known is None else known

    async def _of_token(self, sign_in: SignIn, token: str) -> Caller:
        """The user of a provider's token. One whose key is not known may have the provider asked: few at a time."""
        known = sign_in.at_once(token)
        return await to_thread.run_sync(sign_in.caller, token, limiter=self._waiting) if known is None else known

    async def _of_browser(self, scope: Scope, secret: str) -> Caller:
        """The user of a browser's session, if the call may come from the page that it seems to come from."""
        own = self.own.of(scope)
        caller, begun = await run_in_threadpool(self.sessions.caller, secret, own)
        check_own_page(scope, begun, own)
        scope.setdefault("state", {})["begun"] = begun
        return caller


class Staying:
    """Whether who follows a stream may still do so: asked again every so many seconds, by whoever sends it."""

    def __init__(self, admission: Admission, scope: Scope, seconds: float) -> None:
        self.seconds, self._admission, self._scope = seconds, admission, scope
        self._asked = anyio.current_time()

    async def over(self) -> bool:
        if anyio.current_time() < self._asked + self.seconds:
            return False
        self._asked = anyio.current_time()
        return not await self._admission.still(self._scope)


class KeyCheck:
    """Everything but health, pages and the manual asks for a key, counts for the caller's limits, and needs a role.

    That is looked at before a byte of the body is read.
    """

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self.app, self.admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http" and needs_key(scope["path"]):
                scope.setdefault("state", {})["caller"] = await self.admission.admit(scope)
        except IdentityRefused as error:
            await answer(401, error, headers=CHALLENGE)(scope, receive, send)
        except FederationError as error:
            await answer(code_of(error).http, error)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def key_in(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def address_in(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def project_in(scope: Scope) -> str:
    """The project that a call names: by the header, or in the address of a stream, where browsers can send no header."""
    named = Headers(scope=scope).get(PROJECT, "")
    if named or f"{scope['method']} {route_of(scope['path'])}" not in FOLLOWED:
        return named
    return QueryParams(scope["query_string"]).get("project", "")
