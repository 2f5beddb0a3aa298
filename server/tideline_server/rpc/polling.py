"""Orders for agents that ask for them again and again, as HTTP wants it: an answer comes soon, or says that there is nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tideline.core.run import OrderId
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import Order
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc.callers import Rekeyed
from tideline_server.rpc.wire import Context, order_out, parsed

if TYPE_CHECKING:
    from tideline_server.rpc.servicer import Servicer

POLL_SECONDS = 15.0  # that a poll waits: proxies cut what is silent for longer than 30 to 60
MOST_ANSWERED = 4 << 20  # bytes of orders in one answer, beyond the first


class Polling:
    """Answers polls. What an agent was offered it says itself, so any replica may answer the next one."""

    def __init__(self, servicer: Servicer) -> None:
        self._servicer = servicer

    async def poll(self, raw: bytes, context: Context) -> pb.PollReply:
        """The open orders that were not offered yet, or nothing after a while. Raises as all calls do."""
        client = await self._servicer.caller("Poll", raw, context)
        request = parsed(pb.PollRequest, raw)
        if request.HasField("asking"):
            await self._servicer.shown(client, request.asking)
        before = frozenset(map(OrderId, request.offered))
        try:
            with self._servicer.hearing(client) as over:
                async with ended_by(over, self._servicer.closing) as ending:
                    return answered(*await self._news(client, before, ending))
        except Rekeyed:
            return pb.PollReply(open=before)  # the agent asks again, with its new keys

    async def _news(
        self, client: Client, before: frozenset[OrderId], ending: asyncio.Future[Any]
    ) -> tuple[tuple[Order, ...], frozenset[OrderId]]:
        """What `AgentService.news` gives, as soon as there is an order, or at the end of a poll."""
        servicer, topic, clock = self._servicer, f"client:{client.name}", asyncio.get_running_loop()
        until = clock.time() + POLL_SECONDS
        while True:
            seen = servicer.bell.count(topic)
            await servicer.callers.still(client)
            offered, known = await servicer.run(servicer.agent_service.news, client.name, before)
            if offered or ending.done() or clock.time() >= until:
                return offered, known
            before = known
            if not await servicer.moved(client, topic, seen, ending):
                return (), known


def answered(offered: Iterable[Order], known: frozenset[OrderId]) -> pb.PollReply:
    """Some of the orders, in bounds: those that are left over were not offered."""
    reply, nbytes, left = pb.PollReply(), 0, set[str]()
    for order in offered:
        message = order_out(order)
        nbytes += message.ByteSize()
        if reply.orders and nbytes > MOST_ANSWERED:
            left.add(order.id)
        else:
            reply.orders.append(message)
    reply.open.extend(sorted(known - left))
    return reply


@asynccontextmanager
async def ended_by(*events: asyncio.Event) -> AsyncIterator[asyncio.Future[Any]]:
    """Done as soon as one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    ending = asyncio.ensure_future(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
    try:
        yield ending
    finally:
        for each in (ending, *waiting):
            each.cancel()
