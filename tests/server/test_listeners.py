"""Where a coordinator listens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.server.loops import LONG
from tideline.core.errors import Refused
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.main import build, listen, running
from tideline_server.rpc.server import LISTENERS
from tideline_server.settings import CoordinatorSettings

HELLO = "/tideline.v1.Federation/Hello"


@pytest.fixture
def http() -> Iterator[socket.socket]:
    """A socket for people."""
    with listen("127.0.0.1", 0, "--http-port") as made:
        yield made


def settings(home: Path) -> CoordinatorSettings:
    """A coordinator of its own."""
    return CoordinatorSettings(home=home, http_port=0, grpc_port=0)


def test_a_port_that_was_taken_while_the_database_was_awaited(tmp_path: Path) -> None:
    """It is not shared with whoever took it, though the door's own servers share it."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:

        async def serve() -> None:
            await build(settings(tmp_path), other.getsockname()[1])

        with pytest.raises(Refused, match=r"Cannot listen on .*--grpc-port"):
            asyncio.run(serve())


def test_every_listener_answers(tmp_path: Path, http: socket.socket) -> None:
    """Connections are spread over several servers; each knows every call, and all close."""
    with listen("127.0.0.1", 0, "--grpc-port") as free:
        port = free.getsockname()[1]

    async def asked(at: int) -> str:
        """A connection of its own: the kernel chooses a listener for each."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            hello = channel.unary_unary(HELLO, pb.HelloRequest.SerializeToString, pb.HelloReply.FromString)
            return str((await hello(pb.HelloRequest(), timeout=LONG)).version)

    async def serve() -> set[str]:
        async with running(await build(settings(tmp_path), port), http):
            return set(await asyncio.gather(*map(asked, range(4 * LISTENERS))))

    assert len(asyncio.run(serve())) == 1
    with listen("127.0.0.1", port, "--grpc-port"):
        pass
