"""A coordinator that has fallen silent in the middle of a part: the agent does not wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import grpc
import pytest

from tideline.archive.digests import digest_of
from tideline.archive.parts import MemoryParts
from tideline.core.errors import Unreachable
from tideline.core.run import OrderId, RunId
from tideline.engine.model.orders import Order
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink, grpc_link
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc import SERVICE

CONTENT = bytes(range(256)) * 1024
DIGEST = digest_of([CONTENT])
HALF = len(CONTENT) // 2
FILES = ((DIGEST, len(CONTENT)),)
ORDER = Order(OrderId("order"), RunId("run"), 0, "train", "train", 1, FILES, 0, -1, 60.0, {})


class Mute:
    """A coordinator that stops in its first answer to each call, until it is closed."""

    def __init__(self) -> None:
        self.asked: list[pb.FetchRequest] = []
        self.taken: list[int] = []
        self.over = threading.Event()
        self.server = grpc.server(ThreadPoolExecutor(4))
        calls = {
            "Hello": grpc.unary_unary_rpc_method_handler(lambda raw, context: self.hello()),
            "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch),
            "Push": grpc.stream_unary_rpc_method_handler(self.push),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def hello(self) -> bytes:
        return bytes(pb.HelloReply(protocol=2, oldest=2, version="test", time_ms=1).SerializeToString())

    def fetch(self, raw: bytes, context: Any) -> Iterator[bytes]:
        request = pb.FetchRequest.FromString(raw)
        self.asked.append(request)
        if len(self.asked) == 1:
            yield CONTENT[:HALF]
            self.over.wait()
        else:
            yield CONTENT[request.parts[0].offset :]

    def push(self, chunks: Iterator[bytes], context: Any) -> bytes:
        self.taken += [len(chunk) for chunk in chunks]
        self.over.wait()
        return b""

    def close(self) -> None:
        self.over.set()
        self.server.stop(None).wait()


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mute]:
    """The coordinator, and an agent with little patience."""
    monkeypatch.setattr(grpc_link, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(grpc_link, "KEEPING_SECONDS", 0.5)
    with closing(Mute()) as made:
        yield made


def test_a_fetch_that_stops_goes_on_elsewhere(mute: Mute) -> None:
    """It is asked again from where it stopped, and what came before is not sent twice."""
    parts = MemoryParts()
    with closing(GrpcLink(Endpoints((f"127.0.0.1:{mute.port}",)), "ann", Keys.made(), threading.Event())) as link:
        link.fetch(ORDER, FILES, parts)
    assert bytes(parts.view(DIGEST)) == CONTENT
    assert [request.parts[0].offset for request in mute.asked] == [0, HALF]


def test_a_push_that_is_never_acknowledged_is_given_up(mute: Mute) -> None:
    """All bytes were taken and nobody said so: the next report tells where to go on."""
    parts = MemoryParts()
    parts.put([CONTENT])
    link = GrpcLink(Endpoints((f"127.0.0.1:{mute.port}",)), "ann", Keys.made(), threading.Event())
    with closing(link), pytest.raises(Unreachable, match=r"took nothing for 0\.5 s"):
        link.push(ORDER, ((DIGEST, len(CONTENT), 0),), parts)
    assert sum(mute.taken[1:]) == len(CONTENT)  # the first says what comes
