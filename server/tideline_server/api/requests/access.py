"""Who asks, and whether they may: checked before a byte of the body is read."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tideline.core.errors import FederationError, IdentityRefused
from tideline.engine.coordinator.api_keys import ANYBODY, ApiKeys, Caller
from tideline_server.api.answers import answer
from tideline_server.api.requests.roles import OPEN_PATHS, WHILE_AWAY, permit
from tideline_server.errors import code_of
from tideline_server.limits import Limits
from tideline_server.sign_in_refusals import Refusing


class KeyCheck:
    """Everything but health and the manual asks for a key, counts for the caller's limits, and needs a role (roles)."""

    def __init__(self, app: ASGIApp, api_keys_of_users: ApiKeys, limits: Limits, refusing: Refusing) -> None:
        self.app, self.api_keys_of_users, self.limits, self.refusing = app, api_keys_of_users, limits, refusing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
                address, lately = (scope.get("client") or ("",))[0], scope["path"] in WHILE_AWAY
                caller = await self.admit(key_in(Headers(scope=scope)), address, lately)
                scope.setdefault("state", {})["caller"] = caller
                permit(caller, scope["method"], scope["path"])
        except IdentityRefused as error:
            await answer(401, error, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)
        except FederationError as error:
            await answer(code_of(error).http, error)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def admit(self, key: str, address: str, lately: bool = False) -> Caller:
        """Let a caller in. Raises IdentityRefused, TooMany; Unreachable where the store is needed and does not answer.

        lately: while it does not, a key is good enough that was good a while ago.
        """
        try:
            known = self.api_keys_of_users.at_once(key)
            caller = await run_in_threadpool(self.api_keys_of_users.caller, key, lately) if known is None else known
        except IdentityRefused as error:
            if key:  # noted before it is counted: also one that is over the limit stands in the log
                await self.refusing.note("", address, error.what)
            await self.limits.wrong_key(address)
            raise
        await self.limits.call(address)
        return caller


def key_in(headers: Headers) -> str:
    """The key of a request; nothing where it has none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def caller_in(scope: Scope) -> Caller:
    """Who made a request that KeyCheck let in."""
    found = scope.get("state", {}).get("caller", ANYBODY)
    assert isinstance(found, Caller)
    return found


async def caller_of(request: Request) -> Caller:
    """Who made a request."""
    return caller_in(request.scope)


async def keyring_of(request: Request) -> ApiKeys:
    """The keys of the app that a request came to."""
    found = request.app.state.api_keys_of_users
    assert isinstance(found, ApiKeys)
    return found


Asking = Annotated[Caller, Depends(caller_of)]
Keys = Annotated[ApiKeys, Depends(keyring_of)]
