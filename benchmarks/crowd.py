"""A run with many members and rounds, as a journal has it: written through the journal, without agents or numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from tideline.core.asked.world import World
from tideline.core.privacy import TO_COORDINATOR, Clause, Exposure
from tideline.core.run import ClientId, Digest, Member, Role, RunId, RunSpec, Waiting
from tideline.engine.model.orders import Files, OrderRow, OrderStatus, Reply, new_order
from tideline.engine.model.runs import JOIN, PhaseFact, RoundRow, RunRow, Status
from tideline.engine.ports.journal import Advance, Journal

RUN = RunId("crowd")
PHASES = ("train", "score")  # in turns
METRICS = {"train": {"loss": 0.25, "samples": 40.0}, "score": {"accuracy": 0.5}}
CONTRACT = (
    Clause("train", "train", "model", "n", Exposure.WEIGHTS, TO_COORDINATOR),
    Clause("train", "train", "metrics.loss", "", Exposure.METRIC, TO_COORDINATOR),
    Clause("train", "train", "metrics.samples", "", Exposure.METRIC, TO_COORDINATOR),
    Clause("score", "score", "metrics.accuracy", "", Exposure.METRIC, TO_COORDINATOR),
)


@dataclass(frozen=True)
class Crowd:
    """So many members and rounds; the last round is open. run: its id."""

    members: int
    rounds: int
    run: RunId = RUN

    @property
    def names(self) -> tuple[ClientId, ...]:
        return tuple(ClientId(f"site-{at:05d}") for at in range(self.members))

    def row(self) -> RunRow:
        """The run, as it begins."""
        plan = tuple(PhaseFact(PHASES[at % 2], PHASES[at % 2], at // 2 + 1) for at in range(self.rounds))
        spec = RunSpec(
            id=self.run,
            method="crowd",
            config={"rounds": self.rounds},
            world=World((4,), 2),
            seed=1,
            contract=Digest(""),
            keeps=True,
            waiting=Waiting(deadline=1e9),
        )
        return RunRow(
            id=self.run,
            name="crowd",
            method="crowd",
            spec=spec,
            roster={name: Role.TARGET if at % 4 == 3 else Role.SOURCE for at, name in enumerate(self.names)},
            plan=plan,
            contract=CONTRACT,
            created=1.0,
            deadline_at=1e12,
        )

    def orders(self, cursor: int) -> tuple[OrderRow, ...]:
        """What everybody is asked: the same message."""
        sent = () if cursor == JOIN else parts(self.run, cursor)
        return tuple(new_order(self.run, cursor, name, sent, 1, cursor - 1, 2.0 + cursor) for name in self.names)

    def step(self, cursor: int) -> Advance:
        """Close a round that everybody has answered, and ask for the next."""
        fact = self.row().fact(cursor)
        asked = {order.client: order.files[0][0] for order in self.orders(cursor) if order.files}
        at = 2.0 + cursor
        closed = RoundRow(
            run=self.run,
            cursor=cursor,
            phase=fact.phase,
            round=fact.round,
            opened=at,
            closed=at + 1.0,
            folded=self.names,
            next_cursor=cursor + 1,
            state=parts("state", cursor),
            asked=asked,
        )
        members = tuple(Member(name, role, role is Role.SOURCE) for name, role in self.row().roster.items())
        return Advance(
            run=self.run,
            from_cursor=cursor,
            closed=closed,
            orders=self.orders(cursor + 1),
            cursor=cursor + 1,
            deadline_at=1e12,
            status=Status.RUNNING,
            members=members if cursor == JOIN else None,
            retain_from=cursor,
        )

    def answers(self, cursor: int) -> Iterator[tuple[OrderRow, Reply]]:
        """What everybody answers, each with a part of its own."""
        for order in self.orders(cursor):
            own = () if cursor == JOIN else parts(order.id, cursor)
            metrics = {} if cursor == JOIN else dict(METRICS[PHASES[cursor % 2]])
            yield order, Reply(order.id, own, metrics, {"labelled": True} if cursor == JOIN else {})


def parts(*name: object) -> Files:
    """A message's two parts; nobody has their bytes."""
    return tuple((Digest(hashlib.sha256(f"{name} {at}".encode()).hexdigest()), 1000 + at) for at in range(2))


def answer(journal: Journal, order: OrderRow, reply: Reply) -> OrderStatus | None:
    """One answer, with what comes before it: the parts are pushed."""
    if reply.files:
        journal.add_parts([digest for digest, _ in reply.files], order.run, order.client, order.created)
    return journal.answer(order.id, reply, OrderStatus.ANSWERED, order.created + 0.5, 2000, 2000)


def fill(journal: Journal, crowd: Crowd, answered: bool = True) -> None:
    """Play a run up to its last round, which stays open. answered: else, which is quicker, all orders before it expire."""
    journal.create([crowd.row()], crowd.orders(JOIN))
    for cursor in range(JOIN, crowd.rounds - 1):
        for order, reply in crowd.answers(cursor) if answered else ():
            answer(journal, order, reply)
        journal.advance(crowd.step(cursor))
