"""Every call at the agents' door is counted with the status that it ends with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from tideline_server.rpc.wire import Context

Watch = Callable[[str, str, float], None]  # the call's name, its status, its seconds
CODES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def unwatched(name: str, code: str, seconds: float) -> None:
    """Nobody counts."""


def counted(name: str, call: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    """A call that is counted."""

    async def seen(request: Any, context: Context) -> Any:
        with watched(name, context, watch):
            return await call(request, context)

    return seen


def counted_stream(name: str, call: Callable[..., AsyncIterator[Any]], watch: Watch) -> Callable[..., AsyncIterator[Any]]:
    """The same for a call that streams its answer."""

    async def seen(request: Any, context: Context) -> AsyncIterator[Any]:
        with watched(name, context, watch):
            async for each in call(request, context):
                yield each

    return seen


@contextmanager
def watched(name: str, context: Context, watch: Watch) -> Iterator[None]:
    """Tell of a call when it has ended, however it ends."""
    began, code = time.monotonic(), "UNKNOWN"
    try:
        yield
        code = "OK"
    except grpc.aio.AbortError:
        code = status(context)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        code = "CANCELLED"
        raise
    finally:
        watch(name, code, time.monotonic() - began)


def status(context: Context) -> str:
    """The status that a call was ended with."""
    code = context.code()
    return CODES.get(code.value[0] if isinstance(code, grpc.StatusCode) else code, "UNKNOWN")
