"""Sign-in with a provider of identities: what it needs to know, and the two steps of a browser. None of it needs a key."""

from __future__ import annotations

from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from tideline.core.errors import FederationError, IdentityRefused, NotFound
from tideline_server.api.answers import answer, federation_error
from tideline_server.api.models import Provider, SignInShown
from tideline_server.api.requests.cookies import (
    PENDING,
    PENDING_SECONDS,
    SESSION,
    cookie_in,
    drop_cookie,
    own_address,
    set_cookie,
)
from tideline_server.api.services import Given, Services
from tideline_server.oidc.browser import BrowserSignIn, Returned, pending_in

router = APIRouter(tags=["sign-in"])
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


@router.get("/sign-in/start", include_in_schema=False)
async def start_sign_in(
    request: Request,
    services: Given,
    asked: Annotated[
        str, Query(alias="next", description="where the sign-in leads: a path of this coordinator; empty: /docs")
    ] = "",
) -> Response:
    """Sends the browser to the provider, which sends it to `/sign-in/callback`."""
    browser, own = browser_of(services, request)
    await services.limits.call(address_of(request))
    address, pending = await to_thread.run_sync(browser.start, own, asked, limiter=WAITING)
    response = RedirectResponse(address, 303, NO_STORE)
    set_cookie(response, PENDING, pending.text, own, PENDING_SECONDS)
    return response


@router.get("/sign-in/callback", include_in_schema=False)
async def finish_sign_in(
    request: Request, services: Given, state: Text = "", code: Text = "", error: Text = "", iss: Text = ""
) -> Response:
    """The provider sends browsers here. Gives the browser its session's cookie, and sends it to where it wanted to go."""
    browser, own = browser_of(services, request)
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


def browser_of(services: Services, request: Request) -> tuple[BrowserSignIn, str]:
    """What signs browsers in, and this coordinator's address. Raises NotFound."""
    if services.browser is None:
        raise NotFound(
            "Users of this coordinator do not sign in with a provider", "Use an API key, or start it with --oidc-issuer"
        )
    return services.browser, own_address(request.scope, services.browser.sign_in.options.url)


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
