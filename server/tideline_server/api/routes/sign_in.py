"""Sign-in of browsers: with a key, or with a provider of identities in two steps. None of it needs a key in a header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Body, Query, Request
from starlette.responses import RedirectResponse, Response

from tideline.core.errors import FederationError, IdentityRefused, NotFound
from tideline.core.settings import parse, setting
from tideline.engine.coordinator.api_keys import ANYBODY
from tideline_server.api.answers import answer, federation_error
from tideline_server.api.models import Provider, SignInShown
from tideline_server.api.openapi import body_of
from tideline_server.api.requests.admission import CHALLENGE, Admission
from tideline_server.api.requests.cookies import (
    PENDING,
    PENDING_SECONDS,
    SESSION,
    cookie_in,
    drop_cookie,
    set_cookie,
)
from tideline_server.api.routes.sessions import Admitting, shown
from tideline_server.api.services import Given, Services
from tideline_server.api.session_models import SessionShown
from tideline_server.oidc.browser import BrowserSignIn, Returned, pending_in

router, keys = APIRouter(tags=["sign-in"]), APIRouter(tags=["sign-in"])
WAITING = CapacityLimiter(4)  # browsers for which the provider is asked at a time: it may be slow, and threads are few
NO_STORE = {"Cache-Control": "no-store"}
Text = Annotated[str, Query(max_length=4096)]


@router.get("/sign-in", summary="How users sign in; needs no key")
async def show_sign_in(services: Given) -> SignInShown:
    """The provider and the client with which the command line signs in, if there is one. Keys are good besides."""
    if services.browser is None:
        return SignInShown(provider=None)
    options = services.browser.sign_in.options
    device = "" if options.secret and options.cli == options.client else options.cli
    token = "id_token" if options.by_id_token else "access_token"
    return SignInShown(
        provider=Provider(issuer=options.issuer, client=device, audience=options.audiences[0], scopes=options.scopes, token=token)
    )


@dataclass(frozen=True)
class KeyShown:
    """The key of who signs in."""

    key: str = setting(doc="an API key of this coordinator")


EXAMPLE = {"key": {"summary": "With a key", "value": {"key": "tidekey_..."}}}
BODY = body_of(KeyShown, EXAMPLE)


@keys.post(
    "/sign-in/key",
    summary="Begin a browser's session with a key",
    response_model=SessionShown,
    openapi_extra=body_of(KeyShown, EXAMPLE),
)
async def sign_in_with_key(
    request: Request, response: Response, admission: Admitting, body: Annotated[dict[str, Any], Body()]
) -> SessionShown | Response:
    """Gives the browser a cookie that no script can read, in the place of the key; the answer is that of `GET /session`.

    Only a page of this coordinator may ask, as the header `Origin` says. The session ends with its key, and after 8 hours.
    """
    response.headers.update(NO_STORE)
    if admission.api_keys.open:
        return shown(ANYBODY, None)
    try:
        caller, begun = await admission.begin(request.scope, parse(KeyShown, body).key.strip())
    except IdentityRefused as refusal:
        return answer(401, refusal, headers=CHALLENGE)
    seconds = begun.session.expires - begun.session.created
    set_cookie(response, SESSION, begun.secret, admission.own.of(request.scope), seconds, strict=True)
    return shown(caller, begun)


@router.get("/sign-in/start", include_in_schema=False)
async def start_sign_in(
    request: Request,
    services: Given,
    admission: Admitting,
    asked: Annotated[
        str, Query(alias="next", description="where the sign-in leads: a path of this coordinator; empty: the dashboard")
    ] = "",
) -> Response:
    """Sends the browser to the provider, which sends it to `/sign-in/callback`."""
    browser, own = browser_of(services, admission, request)
    await services.limits.call(address_of(request))
    address, pending = await to_thread.run_sync(browser.start, own, asked, limiter=WAITING)
    response = RedirectResponse(address, 303, NO_STORE)
    set_cookie(response, PENDING, pending.text, own, PENDING_SECONDS)
    return response


@router.get("/sign-in/callback", include_in_schema=False)
async def finish_sign_in(
    request: Request,
    services: Given,
    admission: Admitting,
    state: Text = "",
    code: Text = "",
    error: Text = "",
    iss: Text = "",
) -> Response:
    """The provider sends browsers here. Gives the browser its session's cookie, and sends it to where it wanted to go."""
    browser, own = browser_of(services, admission, request)
    try:
        # Whoever asks makes us ask the provider, so it counts as a try of a key.
        await services.limits.wrong_key(address_of(request))
        pending = pending_in(cookie_in(request.headers, PENDING, own))
        returned = Returned(state, code, error, iss)
        begun = await to_thread.run_sync(browser.finish, own, pending, returned, limiter=WAITING)
    except FederationError as refusal:
        known = isinstance(refusal, IdentityRefused)
        response = answer(401, refusal) if known else await federation_error(request, refusal)
    else:
        response = RedirectResponse(pending.next, 303, NO_STORE)
        set_cookie(response, SESSION, begun.secret, own, browser.sign_in.options.seconds)
    drop_cookie(response, PENDING, own)
    return response


def browser_of(services: Services, admission: Admission, request: Request) -> tuple[BrowserSignIn, str]:
    """What signs browsers in, and this coordinator's address. Raises NotFound."""
    if services.browser is None:
        raise NotFound(
            "Users of this coordinator do not sign in with a provider", "Use an API key, or start it with --oidc-issuer"
        )
    return services.browser, admission.own.of(request.scope)


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
