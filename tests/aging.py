"""Runs of long ago in a database, with parts on disk: what rules of age are tried on."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tideline.archive.folder import FolderParts
from tideline.core.asked.world import World
from tideline.core.run import ClientId, Digest, OrderId, Role, RunId, RunSpec, Waiting
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.model.orders import OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, PhaseFact, RoundRow, RunRow, Status
from tideline.engine.ports.journal import Advance
from tideline_server.store import SqlJournal

DAY = 86400.0
SITES = (ClientId("ann"), ClientId("bob"))
PART_BYTES = 3000


class Now:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()


def store_of(journal: SqlJournal, folder: Path) -> PartStore:
    """The parts of a coordinator whose home has them there."""
    store = PartStore(FolderParts(folder), journal, Now())
    store.own(str(folder))
    return store


def write_run(store: PartStore, name: str, days: float) -> None:
    """A run that was over so many days ago: each site was sent a part, answered with one of its own, and the state stays."""
    journal, run, ended = store.journal, RunId(name), time.time() - DAY * days
    sent = store.parts.put([os.urandom(PART_BYTES)])
    orders = [
        OrderRow(OrderId(f"{name}/{who}"), run, JOIN, 1, who, ((sent, PART_BYTES),), seed=1, after=JOIN - 1, created=ended)
        for who in SITES
    ]
    journal.add_parts([sent], run, SITES[0], ended)
    journal.create([row_of(run, ended)], orders)
    for order in orders:
        answer = store.parts.put([os.urandom(PART_BYTES)])
        journal.add_parts([answer], run, order.client, ended)
        reply = Reply(order.id, ((answer, PART_BYTES),), {"loss": 0.5})
        assert journal.answer(order.id, reply, OrderStatus.ANSWERED, ended, 1, 1) is OrderStatus.ANSWERED
    for at in range(5):
        journal.event(run, "held_up", {"why": f"reason {at}"}, ended)
    state = store.parts.put([os.urandom(PART_BYTES)])
    closed = RoundRow(
        run=run,
        cursor=JOIN,
        phase="train",
        round=1,
        opened=ended,
        closed=ended,
        folded=SITES,
        next_cursor=0,
        state=((state, PART_BYTES),),
    )
    step = Advance(
        run, JOIN, closed, orders=(), cursor=0, deadline_at=ended, status=Status.COMPLETED, state_digest=state, retain_from=0
    )
    assert journal.advance(step)


def row_of(run: RunId, created: float) -> RunRow:
    """A run that waits for its sites."""
    spec = RunSpec(
        id=run,
        method="fedavg",
        config={"rounds": 2},
        world=World((1, 8, 8)),
        seed=7,
        contract=Digest("c"),
        keeps=True,
        waiting=Waiting(deadline=60.0),
    )
    return RunRow(
        run,
        name=f"name of {run}",
        method="fedavg",
        spec=spec,
        roster=dict.fromkeys(SITES, Role.PEER),
        plan=(PhaseFact("train", "train", 1, None),),
        contract=(),
        created=created,
        deadline_at=created + 60.0,
        opened=created,
    )


def parts_on_disk(folder: Path) -> set[str]:
    """The parts that lie in a folder; those that wait to be written over are none."""
    return set(map(str, FolderParts(folder).digests()))
