"""Orders by polls: to the agent a stream as over gRPC, made of one call after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tideline_protos.v1 import federation_pb2 as pb

POLL_SECONDS = 40.0  # within which a poll is answered; a coordinator takes 15


class Polls:
    """Orders as they come, and a tick where a poll brought none. ask: makes one poll; raises as calls do."""

    def __init__(self, ask: Callable[[pb.PollRequest], pb.PollReply], asking: pb.OrdersRequest) -> None:
        self._ask, self._asking = ask, asking
        self._offered: list[str] | None = None
        self._come: deque[pb.Order] = deque()

    def __iter__(self) -> Iterator[pb.OrderOrTick]:
        return self

    def __next__(self) -> pb.OrderOrTick:
        if not self._come:
            self._poll()
        return pb.OrderOrTick(order=self._come.popleft()) if self._come else pb.OrderOrTick(tick=pb.Tick())

    def cancel(self) -> None:
        """Nothing: a poll ends by itself."""

    def _poll(self) -> None:
        request = pb.PollRequest(asking=self._asking) if self._offered is None else pb.PollRequest(offered=self._offered)
        reply = self._ask(request)
        self._offered = list(reply.open)
        self._come.extend(reply.orders)
