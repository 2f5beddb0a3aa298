"""Who sees every write to the journal, and tells what should not have been: by rules of its own, not by the engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.engine.fates import current
from tests.engine.present import present
from tideline.core.errors import Overtaken, Unreachable
from tideline.core.run import ClientId, Digest, OrderId, RunId, Waiting
from tideline.engine.model.orders import Files, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, OPEN, Event, Lease, RoundRow, RunRow, Status
from tideline.engine.ports.compute import BeginRequest, CloseRequest, Compute, NextRound
from tideline.engine.ports.journal import Advance, Journal, Present, all_present

Orders = Mapping[ClientId, OrderRow]
Replies = Mapping[ClientId, Digest | None]
ANSWERED, EXPIRED = OrderStatus.ANSWERED, OrderStatus.EXPIRED


def root(files: Files) -> Digest | None:
    """The name of a message; a join has none."""
    return files[0][0] if files else None


def last(orders: Iterable[OrderRow]) -> dict[ClientId, OrderRow]:
    """The last attempt of each client."""
    return {o.client: o for o in sorted(orders, key=lambda o: o.attempt)}


def answered(orders: Orders) -> dict[ClientId, Digest | None]:
    """Who has answered, and what."""
    return {client: root(o.reply) for client, o in orders.items() if o.status is ANSWERED}


def rule(row: RunRow, asked: int) -> tuple[int, int]:
    """How many replies close a round of the run at once, and with how many it may be closed at all."""
    waiting = row.spec.waiting if row.cursor != JOIN else Waiting()
    target = min(waiting.target_replies or asked, asked)
    return target, min(waiting.min_replies or target, asked)


class Shown(NamedTuple):
    """What a journal shows of a run."""

    row: RunRow
    orders: tuple[OrderRow, ...]
    rounds: tuple[RoundRow, ...]
    events: tuple[Event, ...]
    leases: tuple[Lease, ...]

    def late(self) -> tuple[int, int]:
        """How many replies were told to be late, and how many there are."""
        return sum(e.kind == "late" for e in self.events), sum(
            o.status is EXPIRED and o.answered is not None for o in self.orders
        )

    def left_out(self) -> list[OrderRow]:
        """Replies that count as accepted, and that their closed round did not fold."""
        folded = {(r.cursor, client) for r in self.rounds for client in r.folded}
        done = {r.cursor for r in self.rounds}
        return [o for o in self.orders if o.status is ANSWERED and o.cursor in done and (o.cursor, o.client) not in folded]

    def needed(self) -> set[Digest]:
        """The parts without which an open or stalled run could not go on, even if every worker had forgotten it."""
        if not self.rounds:
            return set()
        at = max(i for i, r in enumerate(self.rounds) if r.state)
        since = {r.cursor: r.folded for r in self.rounds[at + 1 :]}
        live = [o for o in self.orders if o.cursor == self.row.cursor or o.cursor in since]
        files = [self.rounds[at].state, *(o.files for o in live)]
        files += [o.reply for o in live if o.status is ANSWERED and o.client in since.get(o.cursor, (o.client,))]
        return {digest for each in files for digest, _ in each}


class Witness:
    """Reads the journal beside everybody. What it finds wrong stands in `faults`, under the number of a requirement."""

    def __init__(self, truth: Journal) -> None:
        self.truth = truth
        self.faults: list[tuple[str, str]] = []
        self.tokens: dict[RunId, int] = {}
        self.holders: dict[tuple[RunId, int], object] = {}
        self.sighted: dict[tuple[object, Lease], float] = {}
        self.folds: dict[tuple[RunId, int], dict[ClientId, tuple[OrderId, Digest | None]]] = {}

    def expect(self, good: bool, what: str, words: str) -> None:
        """Note a fault, unless all is well."""
        if not good:
            self.faults.append((what, words))

    def shown(self) -> list[Shown]:
        """All that the journal shows of the runs."""
        j = self.truth
        return [Shown(r, j.orders(r.id), j.rounds(r.id), j.events(r.id), j.leases(r.id)) for r in self.runs()]

    def runs(self) -> list[RunRow]:
        """Every run."""
        return [row for run in self.truth.run_ids() if (row := self.truth.run(run))]

    def asked(self, row: RunRow) -> Orders:
        """The last orders of a run's open round."""
        return last(self.truth.orders(row.id, row.cursor))

    def due(self, row: RunRow, have: int, now: float) -> bool:
        """Whether a run's round may be closed with so many replies."""
        orders = self.asked(row)
        target, quorum = rule(row, len(orders))
        awaited = any(o.status is OrderStatus.OPEN for o in orders.values())
        return have >= quorum and (have >= target or not awaited or now >= row.deadline_at)

    def closing(self, run: RunId, cursor: int, replies: Replies, now: float) -> None:
        """A scheduler sets about folding these replies."""
        task, row = current(), self.truth.run(run)
        assert task is not None and row is not None
        task.notes["fold"] = (run, cursor, replies)
        if row.cursor == cursor and row.status in OPEN:  # else its write will be refused
            self.expect(self.due(row, len(replies), now), "R8", f"{run} is closed at {cursor} with {sorted(replies)}")
            lacking = set(task.notes.get((run, cursor), ())) - set(replies)
            self.expect(not lacking, "R1", f"{run} at {cursor}: {sorted(lacking)} had answered before, and are left out")

    def looked(self, row: RunRow | None) -> None:
        """A scheduler reads a run: whoever has answered by now must be folded."""
        task = current()
        if task is not None and task.kind == "turn" and row is not None:
            task.notes[row.id, row.cursor] = answered(self.asked(row))

    def given(self, lease: Lease, before: Lease | None, life: object, now: float) -> None:
        """Somebody takes a lease."""
        rises = lease.token > self.tokens.get(lease.run, 0) and (lease.run, lease.token) not in self.holders
        self.expect(rises, "R2", f"the token {lease.token} of {lease.run} was given before")
        if before is not None and before.holder not in ("", lease.holder):
            silent = now - self.sighted.get((life, before), now)
            self.expect(silent >= before.seconds, "R2", f"{lease.holder} takes {before} after {silent} s of silence")
        self.tokens[lease.run] = max(lease.token, self.tokens.get(lease.run, 0))
        self.holders[lease.run, lease.token] = life

    def written(self, run: RunId, token: int | None, write: Callable[[], bool]) -> bool:
        """A scheduler's write: with the newest token or not at all."""
        newest, before = token == self.tokens.get(run, 0), self.shown()
        try:
            done = write()
        except (Overtaken, Unreachable) as error:
            self.expect(not newest or not isinstance(error, Overtaken), "R2", f"the newest token {token} of {run} was refused")
            self.expect(self.shown() == before, "R2", f"a refused write to {run} changed something")
            raise
        self.expect(newest, "R2", f"{run} was written with the token {token}; the newest is {self.tokens.get(run)}")
        self.expect(done or self.shown() == before, "R2", f"a write to {run} that came too late changed something")
        return done

    def closed(self, step: Advance, before: RunRow, orders: Orders) -> None:
        """A round has been closed."""
        task = present(current())
        run, cursor, replies = task.notes["fold"]
        place, folded = (step.run, step.from_cursor), step.closed.folded
        self.expect(place == (run, cursor), "R1", f"{place} is written with what was worked out for {(run, cursor)}")
        self.expect(place not in self.folds, "R1", f"{place} was closed before")
        self.expect(before.status in OPEN, "R7", f"{place} is closed though the run is {before.status}")
        self.expect(sorted(folded) == sorted(replies), "R1", f"{place} says that {folded} were folded; it was {sorted(replies)}")
        there = answered(orders)
        self.expect(all(c in there and there[c] == r for c, r in replies.items()), "R1", f"{place} folds what nobody answered")
        self.expect(len(folded) >= rule(before, len(orders))[1], "R8", f"{place} is closed without a quorum")
        self.folds[place] = {c: (orders[c].id, root(orders[c].reply)) for c in folded if c in orders}

    def waits(self, run: RunId, now: float) -> None:
        """A run waits from now on for as long as its rules say: no round has what another has left of its time."""
        row = present(self.truth.run(run))
        seconds = row.deadline_at - now
        self.expect(row.status not in OPEN or seconds == row.spec.waiting.deadline, "R7", f"{run} waits for {seconds} s")

    def turned(self, run: RunId, life: object, now: float) -> None:
        """A scheduler has taken a turn, and nothing was in its way: whatever was due in a run that is its own has been done."""
        row = self.truth.run(run)
        if row is None or row.status not in OPEN or self.holders.get((run, self.tokens.get(run, 0))) is not life:
            return
        orders = self.asked(row)
        awaited = any(o.status is OrderStatus.OPEN for o in orders.values())
        self.expect(not self.due(row, len(answered(orders)), now), "R8", f"{run} may be closed at {row.cursor}, and is not")
        self.expect(awaited and now < row.deadline_at, "R7", f"{run} waits on at {row.cursor}, for nobody or beyond its time")

    def asked_again(self, run: RunId, before: Orders) -> None:
        """A run was resumed: whoever had answered is not asked again, and his reply stays. The others are asked the same."""
        row = present(self.truth.run(run))
        after = self.asked(row)
        lost = set(answered(before)) - set(answered(after))
        self.expect(not lost, "R1", f"{sorted(lost)} of {run} had answered at {row.cursor}, and are asked again")
        others = [c for c, o in after.items() if (o.files, o.seed) != (before[c].files, before[c].seed)]
        self.expect(not others, "R1", f"{others} of {run} are asked something else at {row.cursor}")

    def stalled(self, row: RunRow, now: float) -> None:
        """A scheduler gives a run up."""
        task, orders = current(), self.asked(row)
        assert task is not None
        had = len(task.notes.get((row.id, row.cursor), ()))
        awaited = any(o.status is OrderStatus.OPEN for o in orders.values())
        self.expect(not awaited or now >= row.deadline_at, "R8", f"{row.id} stalls before its time")
        self.expect(had < rule(row, len(orders))[1], "R8", f"{row.id} stalls though {had} had answered")

    def reported(self, before: OrderRow, run: RunRow, after: OrderStatus | None) -> None:
        """A reply has been recorded, or not."""
        if after is ANSWERED:
            good = before.status is OrderStatus.OPEN and before.cursor == run.cursor
            self.expect(good, "R8", f"a reply to {run.id} at {before.cursor} is accepted; the run is at {run.cursor}")
        if after is EXPIRED:
            self.expect(self.truth.events(run.id)[-1].kind == "late", "R8", f"a late reply to {run.id} is not recorded as late")

    def acknowledged(self, order: OrderId, verdict: str) -> None:
        """A site was told that its reply, or the reason why there is none, is accepted: then it is written down."""
        row = self.truth.order(order)
        kept = row is not None and row.answered is not None
        self.expect(kept or verdict != "accepted", "R1", f"the answer to order {order[:8]} is accepted and nowhere written down")


class Witnessed:
    """A coordinator's journal, with the witness beside it."""

    def __init__(self, journal: Journal, at: Any, witness: Witness) -> None:
        self._journal, self._clock, self._life, self._witness = journal, at.clock, at.life, witness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def run(self, run: RunId) -> RunRow | None:
        found = self._journal.run(run)
        self._witness.looked(found)
        return found

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        found = self._journal.leases(run)
        for lease in found:
            self._witness.sighted.setdefault((self._life, lease), self._clock.now())
        return found

    def claim(self, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
        before = {lease.run: lease for lease in self._witness.truth.leases()}
        taken = self._journal.claim(seen, holder, seconds)
        for lease in taken:
            self._witness.given(lease, before.get(lease.run), self._life, self._clock.now())
        return taken

    def renew(self, held: Iterable[Lease]) -> tuple[Lease, ...]:
        before = set(self._witness.truth.leases())
        kept = self._journal.renew(held)
        for lease in kept:
            own = self._witness.holders.get((lease.run, lease.token)) is self._life
            self._witness.expect(own, "R2", f"a sign of life for {lease}, which is another's")
            self._witness.expect(lease not in before, "R2", f"a sign of life for {lease} that nobody can see")
        return kept

    def release(self, held: Iterable[Lease]) -> None:
        before = set(self._witness.truth.leases())
        self._journal.release(held)
        for lease in set(self._witness.truth.leases()) - before:
            own = self._witness.holders.get((lease.run, lease.token)) is self._life
            self._witness.expect(own, "R2", f"{lease.run} is let go of by one who does not hold it")

    def advance(self, step: Advance, here: Present = all_present) -> bool:
        before = present(self._witness.truth.run(step.run))
        orders = last(self._witness.truth.orders(step.run, step.from_cursor))
        done = self._witness.written(step.run, step.token, lambda: self._journal.advance(step, here))
        if done:
            self._witness.closed(step, before, orders)
            self._witness.waits(step.run, step.closed.closed)
        return done

    def set_status(
        self, run: RunId, among: Iterable[Status], status: Status, cause: str, now: float, token: int | None = None, by: str = ""
    ) -> bool:
        task, before = current(), self._witness.truth.run(run)
        if task is None or task.kind != "turn":
            return self._journal.set_status(run, among, status, cause, now, token, by)
        done = self._witness.written(run, token, lambda: self._journal.set_status(run, among, status, cause, now, token))
        if done and status is Status.STALLED and before is not None:
            self._witness.stalled(before, self._clock.now())
        return done

    def reopen(self, run: RunId, status: Status, cause: str, now: float, *rest: Any) -> bool:
        row = present(self._witness.truth.run(run))
        before = self._witness.asked(row)
        done = self._journal.reopen(run, status, cause, now, *rest)
        if done:
            self._witness.expect(row.status is Status.STALLED, "R7", f"{run} is resumed though it was {row.status}")
            self._witness.waits(run, now)
            self._witness.asked_again(run, before)
        return done

    def answer(
        self, order: OrderId, reply: Reply, status: OrderStatus, now: float, down: int, up: int, here: Present = all_present
    ) -> OrderStatus | None:
        before = present(self._journal.order(order))
        run = present(self._journal.run(before.run))
        after = self._journal.answer(order, reply, status, now, down, up, here)
        self._witness.reported(before, run, after)
        return after


class WatchedCompute:
    """A coordinator's numbers; the witness sees what is to be folded."""

    def __init__(self, compute: Compute, at: Any, witness: Witness) -> None:
        self._compute, self._clock, self._witness = compute, at.clock, witness
        self.methods, self.describe, self.draft = compute.methods, compute.describe, compute.draft
        self.check = compute.check

    def begin(self, asked: BeginRequest) -> NextRound:
        joined = dict.fromkeys((member.id for member in asked.roster), None)
        self._witness.closing(asked.spec.id, JOIN, joined, self._clock.now())
        return self._compute.begin(asked)

    def close(self, asked: CloseRequest) -> NextRound:
        self._witness.closing(asked.spec.id, asked.closing.cursor, asked.closing.replies, self._clock.now())
        return self._compute.close(asked)
