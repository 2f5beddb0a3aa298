"""A coordinator that is not to be trusted: it admits any agent, and tells it whatever a test likes."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc

from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc import SERVICE

PATIENCE_SECONDS, TELLINGS = 60.0, 12


class FalseCoordinator:
    """Gives out `orders`, sends `parts` to whoever fetches, and notes every report. `receipts` come before acceptance."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[pb.Order] = queue.SimpleQueue()
        self.reports: queue.SimpleQueue[pb.ReportRequest] = queue.SimpleQueue()
        self.receipts: queue.SimpleQueue[pb.Receipt] = queue.SimpleQueue()
        self.parts: Iterable[bytes] = []
        self.gone: list[str] = []
        self.over: list[str] = []
        self.deaf, self._over = False, threading.Event()
        self.beats: queue.SimpleQueue[pb.BeatRequest] = queue.SimpleQueue()
        self._server = grpc.server(ThreadPoolExecutor(8))
        unary, down = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        calls = {
            "Hello": unary(lambda raw, context: self.hello(raw, pb.HelloReply)),
            "Enrol": unary(lambda raw, context: self.hello(raw, pb.EnrolReply, name="a", standing="approved")),
            "Orders": down(self.tell),
            "Fetch": down(lambda raw, context: iter(self.parts)),
            "Report": unary(self.hear),
            "Beat": unary(self.beat),
            "SendNotes": unary(self.noted),
            "Push": grpc.stream_unary_rpc_method_handler(self.take),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def hello(self, raw: bytes, kind: Any, **more: str) -> bytes:
        return bytes(kind(protocol=2, oldest=2, version="1", time_ms=int(time.time() * 1000), **more).SerializeToString())

    def tell(self, raw: bytes, context: Any) -> Iterator[bytes]:
        yield pb.OrderOrTick(tick=pb.Tick()).SerializeToString()
        while context.is_active():
            try:
                yield pb.OrderOrTick(order=self.orders.get(timeout=0.2)).SerializeToString()
            except queue.Empty:
                continue

    def hear(self, raw: bytes, context: Any) -> bytes:
        self.reports.put(pb.ReportRequest.FromString(raw))
        try:
            return bytes(self.receipts.get_nowait().SerializeToString())
        except queue.Empty:
            return bytes(pb.Receipt(verdict="accepted").SerializeToString())

    def beat(self, raw: bytes, context: Any) -> bytes:
        """Note a sign of life; `gone` is what is to be given up, `over` the runs that have ended."""
        self.beats.put(pb.BeatRequest.FromString(raw))
        return bytes(pb.BeatReply(gone=self.gone, over=self.over).SerializeToString())

    def noted(self, raw: bytes, context: Any) -> bytes:
        """Take notes; one that is deaf never says so."""
        if self.deaf:
            self._over.wait()
        return b""

    def take(self, chunks: Iterator[bytes], context: Any) -> bytes:
        """Take in what is pushed, and forget it."""
        for _ in chunks:
            continue
        return b""

    def answered(self, order: pb.Order) -> pb.ReportRequest:
        """What an agent says to an order. Told anew while no answer comes: what an agent is still busy with, it passes over."""
        for _ in range(TELLINGS):
            self.orders.put(order)
            found = self.reported(order)
            if found is not None:
                return found
        raise AssertionError(f"{order.id} was told {TELLINGS} times and not answered")

    def reported(self, order: pb.Order) -> pb.ReportRequest | None:
        """The next report about an order, if one comes; older ones, about others, are passed over."""
        with suppress(queue.Empty):
            while (report := self.reports.get(timeout=PATIENCE_SECONDS / TELLINGS)).order != order.id:
                pass
            return report
        return None

    def close(self) -> None:
        self._over.set()
        self._server.stop(None).wait()


def altered(order: pb.Order, brief: Any = None, **said: Any) -> pb.Order:
    """A copy of an order that lies: in its brief, or elsewhere."""
    made = pb.Order()
    made.CopyFrom(order)
    if brief is not None:
        made.brief = brief if isinstance(brief, str) else json.dumps(json.loads(order.brief) | brief)
    for name, value in said.items():
        if name == "files":
            made.files.extend(value)
        else:
            setattr(made, name, value)
    return made
