"""What wraps every request: its id, its count, what a browser may do with it, and the versions that both ends speak."""

from __future__ import annotations

import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.core.errors import FederationError, VersionRefused
from tideline_server.api.answers import LOG, answer
from tideline_server.api.requests.access import MANUAL_PATHS, is_page, needs_key, route_of

HEADER = "X-Request-Id"
SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Wrapping(ABC):
    """Wraps an app's answers to HTTP requests; anything else passes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.serve if scope["type"] == "http" else self.app)(scope, receive, send)

    @abstractmethod
    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""


def at_start(send: Send, act: Callable[[Message], None]) -> Send:
    """A `send` that first shows `act` the head of the answer."""

    async def noting(message: Message) -> None:
        if message["type"] == "http.response.start":
            act(message)
        await send(message)

    return noting


class Numbered(Wrapping):
    """Binds the id to what is logged while a request is served, and writes it on the answer."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = Headers(scope=scope).get(HEADER, "")
        request = said if SANE.fullmatch(said) else secrets.token_hex(8)
        with structlog.contextvars.bound_contextvars(request=request):
            await self.app(scope, receive, at_start(send, lambda head: MutableHeaders(scope=head).update({HEADER: request})))


Seen = Callable[[str, str, int, float], None]  # method, route, status, seconds until the answer began
CUT = 499  # the status of a call whose caller went away before there was an answer


class Counting(Wrapping):
    """Tells of each request when its answer begins, as a stream may last for days."""

    def __init__(self, app: ASGIApp, seen: Seen) -> None:
        super().__init__(app)
        self.seen = seen

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0

        def note(head: Message) -> None:
            nonlocal status
            status = head["status"]
            self.seen(scope["method"], route_of(scope["path"]), status, time.monotonic() - began)

        try:
            await self.app(scope, receive, at_start(send, note))
        finally:
            if not status:
                note({"status": CUT})


NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
OWN = f"{NOTHING}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
PAGE = f"{OWN}; font-src 'self'"
# No page of another site gets hold of the dashboard's window, nor shows one of its files as its own.
APART = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"}


class Confined(Wrapping):
    """Writes on every answer what a browser may do with it: nothing; with the dashboard and the manual, what comes from this
    coordinator alone.
    """

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = is_page(scope["path"])
        policy = PAGE if page else OWN if scope["path"] in MANUAL_PATHS else NOTHING
        said = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        said |= APART if page else {}
        await self.app(scope, receive, at_start(send, lambda head: MutableHeaders(scope=head).update(said)))


API, VERSION = "Tideline-Api", "Tideline-Version"
SPOKEN = 2
# API 1 told errors in another shape. Who says that he speaks it could not read ours, so he is told at once.
OLDEST = 2


class Handshake(Wrapping):
    """Refuses calls of an API that is not spoken here, and writes on every answer what is."""

    def __init__(self, app: ASGIApp, version: str) -> None:
        super().__init__(app)
        self.version = version

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        spoken = {VERSION: self.version, API: str(SPOKEN)}
        signed = at_start(send, lambda head: MutableHeaders(scope=head).update(spoken))
        try:
            if needs_key(scope["path"]):  # so that everybody can find out what is spoken here
                self.agree(Headers(scope=scope))
        except VersionRefused as error:
            await answer(400, error)(scope, receive, signed)
        else:
            await self.app(scope, receive, signed)

    def agree(self, headers: Headers) -> None:
        said = headers.get(API)
        if said is None or (said.isdecimal() and len(said) < 9 and OLDEST <= int(said) <= SPOKEN):
            return
        newer = not said.isdecimal() or len(said) > 8 or int(said) > SPOKEN
        raise VersionRefused(
            f"This call speaks API {said[:20]} (tideline {headers.get(VERSION, 'of unknown version')[:40]}); "
            f"this coordinator is tideline {self.version} and speaks API {SPOKEN}",
            "Upgrade the coordinator" if newer else "Upgrade the tideline that calls",
            speaks=SPOKEN,
            oldest=OLDEST,
            version=self.version,
        )


class Shield:
    """Unexpected errors are logged in full and answered with a number to find them by, and with nothing else."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception:
            if scope["type"] != "http" or begun:
                raise  # the server cuts the connection, so that nobody takes a half for the whole
            await unexpected(scope)(scope, receive, send)


def unexpected(scope: Scope) -> Response:
    """Log the error at hand; the answer names the log's entry."""
    incident = secrets.token_hex(4)
    LOG.exception("request_failed", method=scope["method"], path=scope["path"], incident=incident)
    what = "The coordinator failed in an unexpected way"
    failure = FederationError(what, "Its log says more; search the incident", incident=incident)
    return answer(500, failure, kind="InternalError")
