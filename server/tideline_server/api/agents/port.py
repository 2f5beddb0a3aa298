"""Answers agents over HTTP: `POST /agents/v1/METHOD`, by the handlers of the gRPC port, with its limits.

It stands before all that users' requests pass: an agent has no API key, it signs its calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from tideline.core.errors import FederationError, Malformed, StorageFull
from tideline.engine.process.pipe import to_plain
from tideline_server.api.agents.bodies import HungUp, Messages
from tideline_server.api.agents.callers import Certificates, HttpContext
from tideline_server.errors import code_of
from tideline_server.rpc import MAX_KIND, MAX_WORDS, Servicer, serialize

LOG = structlog.get_logger("tideline_server.api")
PREFIX = "/agents/v1/"
MARK = (b"tideline-agents", b"1")  # on every answer: so an agent knows who speaks, whatever stands between
MESSAGE, BYTES, ERROR = b"application/x-protobuf", b"application/octet-stream", b"application/json"
CUT = 499  # the status of a call whose caller went away before there was an answer
WAITING = frozenset({"Poll"})  # calls that end when their caller hangs up
Seen = Callable[[str, str, int, float], None]
T = TypeVar("T")


class Unspoken(Malformed):
    """A call that is not known here, or no call at all. status: of the answer."""

    status = 501

    @property
    def kind(self) -> str:
        """Known by its base to whoever is told."""
        return Malformed.__name__


class AgentsOverHttp:
    """The agents' calls; everything else goes to the app. seen: is told of each call, as of users' requests."""

    def __init__(
        self,
        app: ASGIApp,
        servicer: Servicer,
        certificates: Certificates | None = None,
        seen: Seen = lambda *request: None,
    ) -> None:
        self._app, self._servicer, self._seen = app, servicer, seen
        self._certificates = certificates or Certificates()
        self._unary = servicer.unary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            call = scope["path"].removeprefix(PREFIX)
            known = call in self._unary or call in ("Fetch", "Push")
            with self._watched(call if known else "other", scope) as answer:
                await self._serve(call if known else "", scope, receive, answer.over(send))
        else:
            await self._app(scope, receive, send)

    @contextlib.contextmanager
    def _watched(self, call: str, scope: Scope) -> Any:
        """Log lines know the call and its claimed client; it is counted when it has ended."""
        context, answer, began = HttpContext(scope, self._certificates), Answer(), time.monotonic()
        client = dict(context.invocation_metadata()).get("tideline-client", "")[:MAX_KIND]
        with structlog.contextvars.bound_contextvars(call=call.lower(), **({"client": client} if client else {})):
            try:
                yield answer
            finally:
                self._seen(scope["method"], PREFIX + call, answer.status or CUT, time.monotonic() - began)

    async def _serve(self, call: str, scope: Scope, receive: Receive, answer: Answer) -> None:
        """One request. Whoever is refused before he has proven who he is has to connect anew."""
        context, messages, place = HttpContext(scope, self._certificates), Messages(receive, call == "Push"), None
        try:
            check_request(call, scope)
            with self._servicer.threshold.entering(context) as place:
                await self._answer(
                    call, context, messages, receive, answer, await self._servicer.threshold.first(place, messages)
                )
        except HungUp:
            return
        except FederationError as error:
            await answer.refuse(error, close=place is None or not place.proven)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the server would tell the caller nothing
            await answer.failed(error)

    async def _answer(
        self, call: str, context: HttpContext, messages: Messages, receive: Receive, answer: Answer, head: bytes
    ) -> None:
        if call == "Fetch":
            async with contextlib.aclosing(self._servicer.fetch(head, context)) as chunks:
                await answer.stream(chunks, receive)
        elif call == "Push":
            await answer.message(serialize(await self._servicer.push(head, messages, context)))
        elif call in WAITING:
            await answer.message(serialize(await unless_hung_up(self._unary[call](head, context), receive)))
        else:
            await answer.message(serialize(await self._unary[call](head, context)))


class Answer:
    """What is sent, and with which status."""

    def __init__(self) -> None:
        self.status = 0
        self._send: Send

    def over(self, send: Send) -> Answer:
        self._send = send
        return self

    async def message(self, content: bytes) -> None:
        await self._whole(200, MESSAGE, content)

    async def stream(self, chunks: AsyncGenerator[bytes, None], receive: Receive) -> None:
        """Send chunks as they come, as long as there is somebody who reads them."""
        async with hung_up(receive) as gone:
            async for chunk in chunks:
                if gone.done():
                    raise HungUp
                if not self.status:
                    await self._begin(200, BYTES)
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not self.status:
            await self._begin(200, BYTES)
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: FederationError, close: bool) -> None:
        """Say what was wrong, in a form of which the other end makes the error again; or cut what has begun."""
        if self.status:
            raise error.with_traceback(None)  # the server cuts the connection, so that nobody takes a half for the whole
        if isinstance(error, StorageFull):
            LOG.warning("no_room", reason=str(error))
        status = error.status if isinstance(error, Unspoken) else code_of(error).http
        more = {b"retry-after": str(error.context["retry_after"]).encode()} if "retry_after" in error.context else {}
        await self._whole(status, ERROR, refusal(error), more | ({b"connection": b"close"} if close else {}))

    async def failed(self, error: Exception) -> None:
        """What was not foreseen: it is logged in full, and answered with a number to find it by."""
        incident = secrets.token_hex(4)
        LOG.error("call_failed", incident=incident, exc_info=error)
        what = f"The coordinator failed in an unexpected way, incident {incident}"
        await self.refuse(FederationError(what, "See the coordinator's log"), close=True)

    async def _whole(self, status: int, kind: bytes, content: bytes, more: Mapping[bytes, bytes] | None = None) -> None:
        await self._begin(status, kind, {b"content-length": str(len(content)).encode(), **(more or {})})
        await self._send({"type": "http.response.body", "body": content})

    async def _begin(self, status: int, kind: bytes, more: Mapping[bytes, bytes] | None = None) -> None:
        self.status = status
        headers = [(b"content-type", kind), MARK, (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *(more or {}).items()]})


def check_request(call: str, scope: Scope) -> None:
    """Raises Unspoken for what is no call of an agent."""
    error = None
    headers = dict(scope["headers"])
    if not call:
        error = Unspoken(f"{scope['path'][:200]} is no call of an agent", "Install the same version on both ends")
    elif scope["method"] != "POST":
        error = Unspoken(f"{scope['method'][:20]} is no call of an agent", "Use POST, as an agent does")
        error.status = 405
    elif headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != MESSAGE:
        error = Unspoken("The body is not labelled as a message", f"Send the header Content-Type: {MESSAGE.decode()}")
        error.status = 415
    elif headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        error = Unspoken("The body is compressed, which is not undone here", "Send it plain, without Content-Encoding")
        error.status = 415
    if error is not None:
        raise error


def refusal(error: FederationError) -> bytes:
    """An error as at the gRPC port."""
    return json.dumps({key: value[:MAX_WORDS] for key, value in to_plain(error).items() if key != "context"}).encode()


@contextlib.asynccontextmanager
async def hung_up(receive: Receive) -> AsyncIterator[asyncio.Future[None]]:
    """Done when the caller of a request that was read whole hangs up."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    waiting = asyncio.ensure_future(gone())
    try:
        yield waiting
    finally:
        waiting.cancel()


async def unless_hung_up(call: Coroutine[Any, Any, T], receive: Receive) -> T:
    """What a call gives. Raises HungUp, and ends it, where its caller has gone."""
    async with hung_up(receive) as gone:
        calling = asyncio.ensure_future(call)
        try:
            either: set[asyncio.Future[Any]] = {calling, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                raise HungUp
            return calling.result()
        finally:
            calling.cancel()
