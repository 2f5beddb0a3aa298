"""Calls of a signed client that lie: about orders, parts, sizes and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.acceptance.conftest import WORLD
from tests.acceptance.hostile.liar import Liar, Lie, Told
from tests.acceptance.raw import SECONDS, SERVICE, refused
from tests.archive.values import file, head
from tideline_protos.v1 import federation_pb2 as pb

PART = file(head())
DIGEST = "b3-" + "0" * 64
HUGE = (1 << 64) - 1


def pushed(**said: Any) -> Callable[[Liar], Told]:
    """A part that is announced otherwise than it is."""
    more = said.pop("more", b"")

    def tell(liar: Liar) -> Told:
        order = liar.at_work()
        told = refused(lambda: liar.push(order, PART, more, **said))
        liar.over(order)
        return told

    return tell


def at_join(liar: Liar) -> Told:
    """A part for the answer to a join, which has none."""
    order = liar.asked()
    told = refused(lambda: liar.push(order, PART))
    liar.over(order)
    return told


def too_much(liar: Liar) -> Told:
    """Many parts, none of them large, of a reply that may have one model."""
    order = liar.at_work()
    parts = [pb.Arrival(digest=f"b3-{at:064x}", size=1 << 20) for at in range(4000)]
    head = pb.PushHead(order=order.id, parts=parts).SerializeToString()
    told = refused(lambda: liar.stream([head]))
    liar.over(order)
    return told


def reported(**said: Any) -> Callable[[Liar], Told]:
    return lambda liar: liar.verdict(liar.asked(), **said)


def worked(**said: Any) -> Callable[[Liar], Told]:
    return lambda liar: liar.verdict(liar.at_work(), **said)


def ordered(order: str) -> Callable[[Liar], Told]:
    """An answer to an order that nobody gave."""
    return lambda liar: liar.verdict(pb.Order(id=order))


def fetched(digest: str) -> Callable[[Liar], Told]:
    """A part that the order does not name."""

    def tell(liar: Liar) -> Told:
        order = liar.asked()
        return refused(lambda: liar.fetched(order, digest))

    return tell


def headed(parts: int) -> Callable[[Liar], Told]:
    """A push that announces empty parts."""
    head = pb.PushHead(order="f" * 32, parts=[pb.Arrival()] * parts).SerializeToString()
    return lambda liar: refused(lambda: liar.stream([head]))


def asked_for(parts: int) -> Callable[[Liar], Told]:
    body = pb.FetchRequest(order="f" * 32, parts=[pb.Wanted()] * parts).SerializeToString()

    def tell(liar: Liar) -> Told:
        call = liar.channel.unary_stream(SERVICE + "Fetch", None, None)
        return refused(lambda: list(call(body, metadata=liar.proof("Fetch", body), timeout=SECONDS)))

    return tell


def neighbours(liar: Liar) -> Told:
    """An order of another client, whose id was guessed."""
    with liar.federation.journal() as journal:
        run = liar.federation.run({"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"a": "source"}})
        (row,) = journal.orders(run, -1)  # type: ignore[arg-type]
    told = liar.verdict(pb.Order(id=row.id))
    liar.over(pb.Order(run=run))
    return told


def enrolling(call: str = "Enrol", **said: Any) -> Callable[[Liar], Told]:
    """An enrolled agent that comes back and says something else of itself."""

    def tell(liar: Liar) -> Told:
        sign_key, receive_key = liar.public
        who: dict[str, Any] = {"protocol": 2, "name": liar.name, "sign_key": sign_key, "receive_key": receive_key}
        return refused(lambda: liar.ask(call, pb.EnrolRequest(**who | said), pb.EnrolReply))

    return tell


CALLS: Mapping[str, Lie] = {
    "endless role": Lie(enrolling(roles=["x" * 50_000]), "Malformed", "a role that there is not, or one twice"),
    "one role again and again": Lie(enrolling(roles=["source"] * 5_000), "Malformed", "a role that there is not, or one twice"),
    "endless version": Lie(enrolling(version="9" * 50_000), "Malformed", "version has 50000 characters"),
    "version with a NUL": Lie(enrolling(version="9\0"), "Malformed", "that cannot be printed"),
    "endless token": Lie(enrolling("Check", token="x" * 50_000), "Malformed", "token has 50000 characters"),
    "digest of other bytes": Lie(pushed(digest=DIGEST), "DigestMismatch", ""),
    "announced too small": Lie(pushed(size=len(PART) - 1), "TooLarge", "1 bytes follow the last part"),
    "announced too large": Lie(pushed(size=len(PART) + 1), "DataTruncated", "1 bytes before the end"),
    "one part more": Lie(pushed(more=PART), "TooLarge", "follow the last part that was announced"),
    "empty part": Lie(pushed(size=0), "TooLarge", "A part of 0 bytes is announced"),
    "part of exabytes": Lie(pushed(size=HUGE), "TooLarge", "the limit is 1099511627776"),
    "part at a join": Lie(at_join, "Undeclared", "The answer to a join brings no files"),
    "parts beyond the contract": Lie(too_much, "TooLarge", "4194304000 bytes in 4000 parts are pushed"),
    "offset beyond the part": Lie(pushed(offset=HUGE), "Stale", "is here up to 0"),
    "digest that is a path": Lie(pushed(digest="../../../coordinator.db"), "BadName", "is not a digest"),
    "digest with a NUL": Lie(pushed(digest="a\0b"), "BadName", "is not a digest"),
    "part of nobody's order": Lie(fetched(DIGEST), "NotFound", "names no part"),
    "part that is a path": Lie(fetched("../../admin.key"), "NotFound", "names no part"),
    "order that nobody gave": Lie(ordered("f" * 32), "NotFound", "There is no order"),
    "order with odd characters": Lie(ordered("'; DROP TABLE orders; --\0\u202e"), "NotFound", "There is no order"),
    "order that is a path": Lie(ordered("../../../etc/passwd"), "NotFound", "There is no order"),
    "order of another client": Lie(neighbours, "IdentityRefused", "is not addressed to"),
    "file that is a path": Lie(worked(files=[pb.File(digest="../x", size=1)]), "BadName", "is not a digest"),
    "file with a NUL": Lie(worked(files=[pb.File(digest="\0" * 64, size=1)]), "BadName", "is not a digest"),
    "reply without a message": Lie(worked(), "PartMissing", "names no message"),
    "metric that nobody declared": Lie(worked(metrics={"x\0": 1.0}), "Undeclared", "is not declared by the step"),
    "thousands of metrics": Lie(
        worked(metrics={f"m{i}": 1.0 for i in range(5_000)}), "TooLarge", "5000 metrics come at once; at most 1000 may"
    ),
    "sixty thousand metrics": Lie(
        worked(metrics={f"m{i}": 1.0 for i in range(60_000)}), "TooLarge", "bytes of one ReportRequest come at once"
    ),
    "thousands of files": Lie(worked(files=[pb.File()] * 50_000), "TooLarge", "50000 files come at once; at most 8193 may"),
    "half a million files": Lie(worked(files=[pb.File()] * 600_000), "TooLarge", "at most 1048576 may"),
    "push of thousands of parts": Lie(headed(50_000), "TooLarge", "50000 parts come at once; at most 8193 may"),
    "push of half a million parts": Lie(headed(600_000), "TooLarge", "bytes of one PushHead come at once"),
    "fetch of thousands of parts": Lie(asked_for(50_000), "TooLarge", "50000 parts come at once; at most 8193 may"),
    "half a million roles": Lie(
        lambda liar: refused(lambda: liar.ask("Enrol", pb.EnrolRequest(roles=[""] * 600_000), pb.EnrolReply)),
        "TooLarge",
        "1200000 bytes of one EnrolRequest come at once; at most 65536 may",
    ),
    "work at a million orders": Lie(
        lambda liar: refused(lambda: liar.beat(**{f"{i:x}": 0.5 for i in range(70_000)})), "TooLarge", "at most 65536 may"
    ),
    "metric that is no number": Lie(worked(metrics={"loss": float("nan")}), "NotFinite", "The metric loss is nan"),
    "infinite metric": Lie(worked(metrics={"loss": float("-inf")}), "NotFinite", "The metric loss is -inf"),
    "metric at a join": Lie(reported(metrics={"loss": 1.0}), "Undeclared", "is not declared by the step join"),
    "facts at a step": Lie(worked(facts='{"labelled": true}'), "Undeclared", "they belong to the join"),
    "facts that are no JSON": Lie(reported(facts="{"), "Malformed", "are no JSON object"),
    "facts that are a list": Lie(reported(facts="[1]"), "Malformed", "are no JSON object"),
    "deep facts": Lie(reported(facts="[" * 100_000), "Malformed", "are no JSON object"),
    "flood of facts": Lie(
        reported(facts='{"labelled": [' + "[]," * 100_000 + "[]]}"), "Undeclared", "whether the site has labels"
    ),
    "fact of a million digits": Lie(reported(facts='{"labelled": ' + "9" * 1_000_000 + "}"), "Malformed", "are no JSON object"),
    "fact more": Lie(reported(facts='{"labelled": true, "rows": 7}'), "Undeclared", "whether the site has labels"),
    "fact of the wrong type": Lie(reported(facts='{"labelled": 1}'), "Undeclared", "whether the site has labels"),
}
