"""How a call ends: counted with its status, and an error as a status with the error in the trailing metadata."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
import structlog

from tideline.core.errors import FederationError, StorageFull
from tideline.engine.process.pipe import to_plain
from tideline_server.errors import code_of
from tideline_server.rpc.wire import MAX_KIND, MAX_WORDS, Context

log = structlog.get_logger()
Q = TypeVar("Q")
R = TypeVar("R")
Watch = Callable[[str, str, float], None]  # the call's name, its status, its seconds
CODES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def served(name: str, call: Callable[[Q, Context], Awaitable[R]], watch: Watch) -> Callable[[Q, Context], Awaitable[R | None]]:
    """A call with one reply."""

    async def serve(request: Q, context: Context) -> R | None:
        with watched(name, call.__name__, context, watch):
            try:
                return await call(request, context)
            except Exception as error:  # noqa: BLE001 - the framework would tell the caller its words
                await abort(context, error)
            return None

    return serve


def served_stream(
    name: str, call: Callable[[Q, Context], AsyncIterator[R]], watch: Watch
) -> Callable[[Q, Context], AsyncIterator[R]]:
    """A call that streams its reply."""

    async def serve(request: Q, context: Context) -> AsyncIterator[R]:
        with watched(name, call.__name__, context, watch):
            try:
                async for each in call(request, context):
                    yield each
            except Exception as error:  # noqa: BLE001 - the framework would tell the caller its words
                await abort(context, error)

    return serve


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
        await refuse(context, error)
    incident = secrets.token_hex(4)
    log.error("call_failed", incident=incident, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"the coordinator failed in an unexpected way, incident {incident}")


async def refuse(context: Context, error: FederationError) -> NoReturn:
    if isinstance(error, StorageFull):
        log.warning("no_room", reason=str(error))
    details = json.dumps({k: v[:MAX_WORDS] for k, v in to_plain(error).items() if k != "context"}).encode()
    status = grpc.StatusCode[code_of(error).grpc]
    await context.abort(status, error.kind, trailing_metadata=(("tideline-error-bin", details),))
    raise AssertionError("an aborted call raises")
