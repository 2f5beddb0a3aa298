"""The agents' doors of a federation's coordinators. When one does not answer, the next is asked."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from tideline_protos.v1 import federation_pb2 as pb

SERVICE = "/tideline.v1.Federation/"
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A coordinator that is frozen, or whose machine has vanished, is found out by a ping: after twenty seconds at most.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A fixed window, widened to a chunk when one is awaited: a bound on what a busy agent buffers.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2 << 20),
)


class Line:
    """One coordinator's door and its calls."""

    def __init__(self, address: str, ca: Path | None) -> None:
        self.address = address
        self._channel = open_channel(address, ca)
        unary, down, up = self._channel.unary_unary, self._channel.unary_stream, self._channel.stream_unary
        self.enrol = unary(SERVICE + "Enrol", pb.EnrolRequest.SerializeToString, pb.EnrolReply.FromString)
        self.orders = down(SERVICE + "Orders", pb.OrdersRequest.SerializeToString, pb.OrderOrTick.FromString)
        self.fetch = down(SERVICE + "Fetch", pb.FetchRequest.SerializeToString, None)
        self.push = up(SERVICE + "Push", None, pb.PushReply.FromString)
        self.report = unary(SERVICE + "Report", pb.ReportRequest.SerializeToString, pb.Receipt.FromString)
        self.beat = unary(SERVICE + "Beat", pb.BeatRequest.SerializeToString, pb.BeatReply.FromString)

    def close(self) -> None:
        """End every call."""
        self._channel.close()


class Lines:
    """Lines to all coordinators, one of them in use. Any number of threads.

    Agents begin at different ones, by their names, so that no coordinator has all of them.
    """

    def __init__(self, addresses: Sequence[str], name: str, ca: Path | None) -> None:
        self._lines = [Line(address, ca) for address in addresses]
        self._at = zlib.crc32(name.encode()) % len(self._lines)
        self._lock = threading.Lock()

    @property
    def now(self) -> Line:
        """The line in use."""
        return self._lines[self._at]

    def leave(self, line: Line) -> None:
        """A line's other end does not answer. Of several calls that find it out, the first changes to the next line."""
        with self._lock:
            if line is self.now:
                self._at = (self._at + 1) % len(self._lines)

    def close(self) -> None:
        """End every call on every line."""
        for line in self._lines:
            line.close()


def open_channel(address: str, ca: Path | None) -> Any:
    """A channel, over TLS where a certificate is given."""
    if ca is None:
        return grpc.insecure_channel(address, OPTIONS)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.read_bytes()), OPTIONS)
