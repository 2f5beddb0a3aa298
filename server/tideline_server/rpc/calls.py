"""How a call ends: counted with its status, and an error as a status with the error in the trailing metadata."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
import structlog

from tideline.core.errors import FederationError, StorageFull
from tideline.engine.process.pipe import to_plain
from tideline_server.errors import code_of
from tideline_server.rpc.threshold import Threshold, TooSlow
from tideline_server.rpc.wire import MAX_KIND, MAX_WORDS, Context

log = structlog.get_logger()
R = TypeVar("R")
STALLED_SECONDS = 120.0  # for which nothing moves on a stream, before it ends
Watch = Callable[[str, str, float], None]  # the call's name, its status, its seconds
CODES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def served(
    name: str, call: Callable[[bytes, Context], Awaitable[R]], watch: Watch, threshold: Threshold
) -> Callable[[AsyncIterable[bytes], Context], Awaitable[R | None]]:
    """A call with one message and one reply. To gRPC its messages are a stream: they are read when there is room for them."""

    async def head_alone(head: bytes, chunks: AsyncIterable[bytes], context: Context) -> R:
        return await call(head, context)

    return served_push(name, head_alone, watch, threshold, call.__name__)


def served_push(
    name: str,
    call: Callable[[bytes, AsyncIterable[bytes], Context], Awaitable[R]],
    watch: Watch,
    threshold: Threshold,
    function: str = "",
) -> Callable[[AsyncIterable[bytes], Context], Awaitable[R | None]]:
    """A call whose first message proves it, and which goes on. function: the name by which its log lines know it."""

    async def serve(messages: AsyncIterable[bytes], context: Context) -> R | None:
        with watched(name, function or call.__name__, context, watch):
            try:
                with threshold.entering(context) as place:
                    try:
                        return await call(await threshold.first(place, messages), messages, context)
                    finally:
                        await let_go(messages)
            except Exception as error:  # noqa: BLE001 - the framework would tell the caller its words
                await abort(context, error)
            return None

    return serve


def served_stream(
    name: str, call: Callable[[bytes, Context], AsyncGenerator[R, None]], watch: Watch, threshold: Threshold
) -> Callable[[AsyncIterable[bytes], Context], Awaitable[None]]:
    """A call that streams its reply. A caller that takes nothing for long has its connection cut."""

    async def serve(messages: AsyncIterable[bytes], context: Context) -> None:
        with watched(name, call.__name__, context, watch):
            try:
                with threshold.entering(context) as place:
                    try:
                        async with contextlib.aclosing(call(await threshold.first(place, messages), context)) as answers:
                            async for each in answers:
                                await taken(context, each, threshold)
                    finally:
                        await let_go(messages)
            except Exception as error:  # noqa: BLE001 - the framework would tell the caller its words
                await abort(context, error)

    return serve


async def let_go(messages: AsyncIterable[bytes]) -> None:
    """Forget the message that was read last: gRPC keeps a call that was refused until the collector comes by."""
    chunks: Any = aiter(messages)
    with contextlib.suppress(Exception):
        await chunks.aclose()


async def taken(context: Context, message: object, threshold: Threshold) -> None:
    """Send a message. Raises TooSlow for a caller that does not read, which then has no connection any more."""
    try:
        async with asyncio.timeout(STALLED_SECONDS):
            await context.write(message)
    except TimeoutError:
        # No status would reach a caller that does not read what came before.
        threshold.connections.cut(context.peer())
        raise TooSlow(f"Nothing was read for {STALLED_SECONDS:g} s", "Call again; an agent does by itself") from None


async def moving(messages: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """What a caller sends, as long as it goes on sending. Raises TooSlow."""
    chunks = aiter(messages)
    while True:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                chunk = await anext(chunks)
        except TimeoutError:
            raise TooSlow(f"Nothing has come for {STALLED_SECONDS:g} s", "Call again; an agent does by itself") from None
        except StopAsyncIteration:
            return
        yield chunk


@contextmanager
def watched(name: str, function: str, context: Context, watch: Watch) -> Iterator[None]:
    """Bind the call and its claimed client to its log lines, in the call's own task, and count it when it has ended."""
    client = str(dict(context.invocation_metadata() or ()).get("tideline-client", ""))[:MAX_KIND]
    structlog.contextvars.bind_contextvars(call=function, **({"client": client} if client else {}))
    began, code = time.monotonic(), "UNKNOWN"
    try:
        yield
        code = "OK"
    except grpc.aio.AbortError:
        status: Any = context.code()
        code = CODES.get(status.value[0] if isinstance(status, grpc.StatusCode) else status, "UNKNOWN")
        raise
    except (asyncio.CancelledError, GeneratorExit):
        code = "CANCELLED"
        raise
    finally:
        watch(name, code, time.monotonic() - began)


async def abort(context: Context, error: Exception) -> None:
    """End a call with an error that the other end can rebuild; or, if it is none of ours, with a number to find it by."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, FederationError):
        # gRPC keeps what ends a call until the collector comes by, and with it all that its frames hold: the call's bytes too.
        await refuse(context, error.with_traceback(None))
    incident = secrets.token_hex(4)
    log.error("call_failed", incident=incident, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"the coordinator failed in an unexpected way, incident {incident}")


async def refuse(context: Context, error: FederationError) -> NoReturn:
    if isinstance(error, StorageFull):
        log.warning("no_room", reason=str(error))
    details = json.dumps({k: v[:MAX_WORDS] for k, v in to_plain(error).items() if k != "context"}).encode()
    status = grpc.StatusCode[code_of(error).grpc]
    with contextlib.suppress(grpc.aio.InternalError):  # who has hung up hears nothing
        await context.abort(status, error.kind, trailing_metadata=(("tideline-error-bin", details),))
    raise asyncio.CancelledError
