"""Crowds that a client makes which is enrolled, and signs as it should."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import grpc

from tests.acceptance.hostile.siege.at_grpc import STREAMS, channel
from tests.acceptance.hostile.siege.attack import LATE_SECONDS, Attack, Outcome, Target, hold
from tests.acceptance.hostile.siege.http2 import Http2, lines_of, message
from tests.acceptance.raw import SERVICE
from tideline.archive.digests import digest_of
from tideline_protos.v1 import federation_pb2 as pb

CHUNK = 1 << 20


def orders(target: Target, size: int) -> Outcome:
    """Streams of orders; all but the newest end."""
    proof = target.liar.proof("Orders", b"")
    made = [Http2(target.grpc) for _ in range(-(-size // STREAMS))]
    for each in made:
        for _ in range(min(size, STREAMS)):
            each.call("Orders", *proof, content=message(b""), end=True)
    ended = sum(each.over(2.0) for each in made)
    return hold(target, lines_of(made), Outcome(tried=size, refused=ended))


def deaf_fetches(target: Target, size: int) -> Outcome:
    """Messages that are asked for and never read."""
    order = target.liar.at_work()
    wanted = [pb.Wanted(digest=each.digest) for each in order.files]
    body = pb.FetchRequest(order=order.id, parts=wanted).SerializeToString()
    proof = target.liar.proof("Fetch", body)
    made = [Http2(target.grpc, window=0) for _ in range(-(-size // STREAMS))]
    for each in made:
        for _ in range(min(size, STREAMS)):
            each.call("Fetch", *proof, content=message(body), end=True)
    heard = sum(each.over() for each in made)
    outcome = hold(target, lines_of(made), Outcome(tried=size, refused=heard))
    target.liar.over(order)
    return outcome


def pushed(target: Target, call: Any, head: pb.PushHead, chunks: int, outcome: Outcome) -> None:
    raw = head.SerializeToString()
    messages = iter([raw, *([bytes(CHUNK)] * chunks)])
    outcome.tried += 1
    try:
        call(messages, metadata=target.liar.proof("Push", raw), timeout=LATE_SECONDS)
    except grpc.RpcError as error:
        outcome.refused += 1
        outcome.words.add(error.code().name)


def at_joins(target: Target, size: int) -> Outcome:
    """Megabytes for the answer to a join, which has no files."""
    outcome, order = Outcome(), target.liar.asked()
    digest = digest_of([bytes(CHUNK) * 20])
    with channel(target) as made:
        call = made.stream_unary(SERVICE + "Push", None, pb.PushReply.FromString)
        for _ in range(size):
            pushed(target, call, pb.PushHead(order=order.id, parts=[pb.Arrival(digest=digest, size=20 * CHUNK)]), 20, outcome)
    target.liar.over(order)
    return outcome


def many_parts(target: Target, size: int) -> Outcome:
    """Other parts again and again for one step, none of which is ever reported, and all of which are cut short."""
    outcome, order = Outcome(), target.liar.at_work()
    with channel(target) as made:
        call = made.stream_unary(SERVICE + "Push", None, pb.PushReply.FromString)
        for at in range(size):
            digest = digest_of([f"{at}".encode()])
            pushed(target, call, pb.PushHead(order=order.id, parts=[pb.Arrival(digest=digest, size=40 * CHUNK)]), 1, outcome)
    assert target.liar.report(order, failure=pb.Failure(kind="StepFailed", what="given up")).verdict == "accepted"
    target.liar.over(order)
    return outcome


def beats(target: Target, size: int) -> Outcome:
    """Signs of life of thousands of orders, all at once."""
    outcome = Outcome()
    body = pb.BeatRequest(progress={f"{at:032x}": 0.5 for at in range(1200)}).SerializeToString()
    proof, until = target.liar.proof("Beat", body), target.until
    with channel(target) as made:
        while outcome.tried < size or time.monotonic() < until:
            under_way = [made.unary_unary(SERVICE + "Beat").future(body, metadata=proof, timeout=LATE_SECONDS) for _ in range(20)]
            for each in under_way:
                outcome.tried += 1
                outcome.refused += each.exception() is not None
    return outcome


def half_pushes(target: Target, size: int) -> Outcome:
    """Pushes with a head that is signed, and then nothing."""
    order = target.liar.at_work()
    head = pb.PushHead(order=order.id, parts=[pb.Arrival(digest="0" * 64, size=CHUNK)]).SerializeToString()
    proof, made = target.liar.proof("Push", head), [Http2(target.grpc) for _ in range(-(-size // STREAMS))]
    for each in made:
        for _ in range(min(size, STREAMS)):
            each.call("Push", *proof, content=message(head))
    heard = sum(each.over() for each in made)
    outcome = hold(target, lines_of(made), Outcome(tried=size, refused=heard))
    with contextlib.suppress(grpc.RpcError):
        target.liar.over(order)
    return outcome


SIGNED = (
    *(Attack("streams of orders", orders, 100, 2000), Attack("fetches that never read", deaf_fetches, 300, 2000)),
    *(Attack("pushes at a join", at_joins, 3, 20), Attack("parts that nobody reports", many_parts, 8, 100)),
    *(Attack("beats of a thousand orders", beats, 20, 200), Attack("pushes that stop", half_pushes, 300, 2000)),
)
