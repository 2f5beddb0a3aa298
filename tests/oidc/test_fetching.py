"""Calls to a provider end, whatever it does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.oidc.provider import Handler, Provider
from tideline.core.errors import Unreachable
from tideline.oidc.fetching import Fetcher
from tideline.oidc.provider import discover

OVER = threading.Event()


def dripping(handler: Handler, begin: bytes) -> None:
    """Bytes that come one at a time, until the other end has gone."""
    handler.wfile.write(begin)
    while not OVER.wait(0.01):
        handler.wfile.write(b"a")


def silent(handler: Handler) -> None:
    """Nothing."""
    OVER.wait(60.0)


def slow_head(handler: Handler) -> None:
    """A head without an end."""
    dripping(handler, b"HTTP/1.1 200 OK\r\nX-Long: ")


def slow_body(handler: Handler) -> None:
    """A body that takes for ever."""
    dripping(handler, b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")


@pytest.mark.parametrize("fault", [silent, slow_head, slow_body])
def test_a_provider_that_is_slow(fault: Callable[[Handler], None]) -> None:
    """The whole call has an end, not only each wait for a byte."""
    OVER.clear()
    with Provider().serving() as provider:
        provider.fault["/.well-known/openid-configuration"] = fault
        with pytest.raises(Unreachable, match=r"takes more than 0\.3 s"):
            discover(Fetcher(seconds=0.3), provider.issuer)
        OVER.set()


def test_an_answer_that_is_packed() -> None:
    """Is not unpacked: a few bytes could become many."""
    with Provider().serving() as provider:
        provider.fault["/.well-known/openid-configuration"] = lambda handler: handler.send(
            b"\x1f\x8b", 200, {"Content-Encoding": "gzip"}
        )
        with pytest.raises(Unreachable, match="is packed"):
            discover(Fetcher(), provider.issuer)


def test_a_provider_that_is_not_there() -> None:
    """Is named."""
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9/x"):
        discover(Fetcher(), "http://127.0.0.1:9/x")
