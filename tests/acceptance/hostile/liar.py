"""An enrolled client that signs as it should, and says what no agent of ours would."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import Net
from tests.acceptance.raw import SECONDS, SERVICE, Raw, refused
from tideline.archive.digests import digest_of
from tideline_protos.v1 import federation_pb2 as pb

NAME, PUPIL = "liar", "pupil"
TAUGHT = {"method": "feddadil", "preset": "tiny", "config": {"encoder_rounds": 0, "head_rounds": 0}, "reference": None}
CHUNK = 1 << 20
Told = tuple[str, str]  # the kind of an error, and its words


@dataclass(frozen=True)
class Lie:
    """What is told, the kind of error that answers it, and words that stand in it."""

    tell: Callable[[Any], Any]
    kind: str
    words: str


class Liar(Raw):
    """It takes part in runs of its own, so that no other site waits for it."""

    pupil: Liar | None = None

    def begin(self, federation: Net, name: str = NAME, role: str = "source") -> Liar:
        self.federation, self.name = federation, name
        self.enrol(federation.client().post("/invites", {"name": name, "ttl_seconds": 600})["token"], roles=[role])
        return self

    def asked(self) -> pb.Order:
        """The order to join a run that is new."""
        given = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {self.name: "source"}, "reference": None}
        return self.next_order(self.federation.run(given), -1)

    def at_work(self) -> pb.Order:
        """The order of a run's first step: the join was answered as it should be."""
        order = self.asked()
        assert self.report(order, facts='{"labelled": true}').verdict == "accepted"
        return self.next_order(order.run, 0)

    def teaching(self) -> pb.Order:
        """The order of the first step of a run that has a target too, which joins and says nothing more."""
        if self.pupil is None:
            self.pupil = type(self)(self.channel).begin(self.federation, f"{self.name}-{PUPIL}", "target")
        run = self.federation.run(
            {**TAUGHT, "world": {**WORLD, "model": "linear"}, "roster": {self.name: "source", self.pupil.name: "target"}}
        )
        for site, labelled in ((self, "true"), (self.pupil, "false")):
            assert site.report(site.next_order(run, -1), facts=f'{{"labelled": {labelled}}}').verdict == "accepted"
        return self.next_order(run, 0)

    def next_order(self, run: str, cursor: int) -> pb.Order:
        """An order of a run, as soon as it comes."""
        stream = self.channel.unary_stream(SERVICE + "Orders", None, pb.OrderOrTick.FromString)
        call = stream(b"", metadata=self.proof("Orders", b""), timeout=SECONDS)
        try:
            return next(each.order for each in call if each.order.run == run and each.order.cursor >= cursor)
        finally:
            call.cancel()

    def over(self, order: pb.Order) -> None:
        self.federation.client().post(f"/runs/{order.run}/cancel")

    def push(self, order: pb.Order, content: bytes, more: bytes = b"", **said: Any) -> str:
        """A part of these bytes; `said` lies about it. Gives its digest."""
        digest = digest_of([content])
        arrival = pb.Arrival(**{"digest": digest, "size": len(content)} | said)
        head = pb.PushHead(order=order.id, parts=[arrival]).SerializeToString()
        told = content + more
        self.stream([head, *(told[at : at + CHUNK] for at in range(0, len(told), CHUNK))])
        return digest

    def report(self, order: pb.Order, **said: Any) -> pb.Receipt:
        return self.ask("Report", pb.ReportRequest(**{"order": order.id} | said), pb.Receipt)

    def verdict(self, order: pb.Order, **said: Any) -> Told:
        """The error with which a report is answered, by a status or by a receipt."""
        found: list[pb.Receipt] = []

        def call() -> None:
            found.append(self.report(order, **said))

        try:
            return refused(call)
        except BaseException:
            if not found or found[0].verdict != "refused":
                raise
        return found[0].error.kind, found[0].error.what

    def fetched(self, order: pb.Order, digest: str) -> bytes:
        body = pb.FetchRequest(order=order.id, parts=[pb.Wanted(digest=digest)]).SerializeToString()
        call = self.channel.unary_stream(SERVICE + "Fetch", None, None)
        return b"".join(call(body, metadata=self.proof("Fetch", body), timeout=SECONDS))

    def pushed(self, order: pb.Order, *contents: bytes) -> list[pb.File]:
        return [pb.File(digest=self.push(order, each), size=len(each)) for each in contents]

    def answered(self, order: pb.Order, *contents: bytes) -> Told:
        """The error for a reply of these files, of which the first is the root."""
        told = self.verdict(order, files=self.pushed(order, *contents))
        self.over(order)
        return told

    def replied(self, content: bytes) -> Told:
        """The error for a reply of this file, in a run of its own."""
        return self.answered(self.at_work(), content)


class Poller(Liar):
    """The same over HTTP, where orders are asked for."""

    def next_order(self, run: str, cursor: int) -> pb.Order:
        """An order of a run, as soon as it comes."""
        end, offered = time.monotonic() + SECONDS, list[str]()
        while time.monotonic() < end:
            reply = self.ask("Poll", pb.PollRequest(offered=offered), pb.PollReply)
            found = [each for each in reply.orders if each.run == run and each.cursor >= cursor]
            if found:
                return found[0]
            offered = list(reply.open)
        raise AssertionError(f"no order of run {run} came")
