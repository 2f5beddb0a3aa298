"""An envelope over the wire: both ends write and read the same message."""

from __future__ import annotations

from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.model.orders import Envelope, Order, Reply
from tideline.engine.peers.sealing import sealed_in, sealed_out
from tideline_agent.link.wire import order_in, reply_out
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc.wire import order_out, reply_in

ANN, BOB = ClientId("ann"), ClientId("bob")
HANDLE: Handle[object] = Handle("b3-" + "d" * 64, 2**40, ANN, "train", 7)
ENVELOPE = Envelope(HANDLE, Digest("c" * 64), 2**40 + 48, {ANN: "ab" * 80, BOB: "cd" * 80}, {ANN: "ef" * 64, BOB: "01" * 64})
EMPTY = Envelope(HANDLE, Digest("c" * 64), 48, {}, {})


def test_an_envelope_comes_back() -> None:
    """With all that is in it, also where that is nothing."""
    for envelope in (ENVELOPE, EMPTY):
        assert sealed_in(pb.Sealed.FromString(sealed_out(envelope, pb.Sealed()).SerializeToString())) == envelope


def test_replies_and_orders_bring_envelopes() -> None:
    """What an agent reports the coordinator reads, and what the coordinator hands out the agent reads."""
    reply = Reply(OrderId("order"), sealed=(ENVELOPE, EMPTY))
    assert reply_in(reply_out(reply).SerializeToString()).sealed == reply.sealed
    order = Order(OrderId("order"), RunId("run"), 3, "train", "work", 4, (), 1, 2, 9.0, {}, (ENVELOPE, EMPTY))
    assert order_in(pb.Order.FromString(order_out(order).SerializeToString())).sealed == order.sealed
