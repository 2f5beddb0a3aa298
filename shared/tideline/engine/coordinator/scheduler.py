"""Moves runs forward: reads the journal, and closes what is ready. Everything it knows, it reads; a restart is a no-op."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tideline.archive.errors import PartMissing
from tideline.core.asked.sampling import Draw
from tideline.core.asked.scoring import Selection
from tideline.core.errors import Diverged, FederationError, Overtaken, PartLost, StepFailed, StorageFull, Unreachable
from tideline.core.phase import VALIDATION
from tideline.core.run import ClientId, Member, Roster, RunId, Waiting
from tideline.core.settings import EMPTY, Plain
from tideline.engine.coordinator.history import messages, next_attempt, recorded, since_checkpoint
from tideline.engine.coordinator.integrity.mending import Mender
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.rounds.rules import amid_sum, floor_of, lacking, waiting_of
from tideline.engine.coordinator.scores import news, scored_state
from tideline.engine.epsilon.spending import epsilons
from tideline.engine.model.accounts import Standing
from tideline.engine.model.orders import Hold, OrderRow, OrderStatus, Purpose, new_order, seed_for
from tideline.engine.model.runs import FINAL, JOIN, OPEN, Lease, RoundRow, RunRow, Status
from tideline.engine.model.totals import AnyOrder, RoundTotals, newest
from tideline.engine.peers.relay import shut_out
from tideline.engine.ports.clock import SILENT, Bell, Clock, Meter
from tideline.engine.ports.compute import BeginRequest, CloseRequest, Compute, NextRound
from tideline.engine.ports.journal import Advance, Journal


class Verdict(StrEnum):
    """What to do with an open round."""

    WAIT = "wait"
    CLOSE = "close"
    STALL = "stall"


@dataclass(frozen=True)
class Progress:
    """Who of the asked is still awaited, who has answered and who has failed, with the reason; and which of the awaited wait for
    their own owners.
    """

    waiting: frozenset[ClientId] = frozenset()
    answered: frozenset[ClientId] = frozenset()
    failed: tuple[tuple[ClientId, str], ...] = ()
    held: tuple[tuple[ClientId, Hold], ...] = ()

    @property
    def asked(self) -> int:
        return len(self.waiting) + len(self.answered) + len(self.failed)

    @property
    def counted(self) -> RoundTotals:
        return RoundTotals(open=len(self.waiting), answered=len(self.answered), failed=len(self.failed))


def verdict(standing: RoundTotals, rules: Waiting, floor: int | None = None, expired: bool = False) -> Verdict:
    """Close at the target, or when nobody is awaited any more or time is up and the quorum is there; else stall."""
    target = standing.asked if rules.target_replies is None else min(rules.target_replies, standing.asked)
    have = standing.answered
    if have >= target and have >= quorum(standing, rules, floor):
        return Verdict.CLOSE
    if standing.open and not expired:
        return Verdict.WAIT
    return Verdict.CLOSE if have >= quorum(standing, rules, floor) else Verdict.STALL


def quorum(standing: RoundTotals | Progress, rules: Waiting, floor: int | None) -> int:
    """The least number of replies that a round may close with: the run's rule, never less than the phase's floor.

    A phase whose floor is 0 may close without any, where the run's rule says how few will do.
    """
    if floor == 0 and rules.min_replies is not None:
        return 0
    least = rules.min_replies if rules.min_replies is not None else rules.target_replies
    wanted = standing.asked if least is None else min(least, standing.asked)
    return max(wanted, floor or 0)


def progress_of(orders: Iterable[AnyOrder]) -> Progress:
    """The progress that the newest order of each client tells."""
    latest = newest(orders)
    return Progress(
        frozenset(o.client for o in latest if o.status is OrderStatus.OPEN),
        frozenset(o.client for o in latest if o.status is OrderStatus.ANSWERED),
        tuple(sorted((o.client, reason(o)) for o in latest if o.status not in (OrderStatus.OPEN, OrderStatus.ANSWERED))),
        tuple((o.client, Hold(o.held)) for o in latest if o.status is OrderStatus.OPEN and o.held),
    )


def reason(order: AnyOrder) -> str:
    return order.failure.what if order.failure else f"no answer ({order.status.value})"


def waits_for(progress: Progress, rules: Waiting, seconds_left: float, floor: int | None = None) -> str:
    """What a run that is open waits for, and until when. A site that is held is waited for longer only where nobody can go on
    without it. floor: the open phase's.
    """
    if not progress.waiting:  # seen for a moment, or until another replica takes over from the one that conducted the run
        return f"all {progress.asked} sites have answered; waiting for a coordinator to close the round"
    names, held = ", ".join(sorted(progress.waiting)), held_words(progress.held)
    enough = len(progress.answered) >= quorum(progress, rules, floor)
    ends = f"gives up in {duration(seconds_left + (rules.held if held else 0.0))}"
    if held and enough:
        ends = f"goes on without them in {duration(seconds_left)}"
    if len(progress.held) == len(progress.waiting):
        return f"waiting for {'; for '.join(held)}; {ends}"
    more = f", of them for {'; for '.join(held)}" if held else ""
    return f"waiting for {len(progress.waiting)} of {progress.asked} sites ({names}){more}; {ends}"


HOLDS = {
    Hold.APPROVAL: "the approval of {}",
    Hold.HOURS: "the hours at which the owners of {} let runs work",
    Hold.QUOTA: "tomorrow, for {} have let out as much as their owners allow in a day",
    Hold.PAUSED: "{}, which their owners have paused",
}


def held_words(held: Iterable[tuple[ClientId, Hold]]) -> list[str]:
    """What sites wait for by their owners' word, in words."""
    known = tuple(held)
    by_reason = {why: [client for client, each in known if each is why] for why in Hold}
    return [HOLDS[why].format(", ".join(names)) for why, names in by_reason.items() if names]


def duration(seconds: float) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{max(seconds, 0):.0f} s"


MOST_NAMED = 10  # sites in a cause
LEFT_OUT = "it had stalled, and was given up when the rest of the rehearsal had ended: {cause}"
HELD_SECONDS, HELD_FRESH_SECONDS = 30.0, 180.0  # between looks at a late round that is held; since the site last said so
ROUNDING_SECONDS = 0.001  # by which a difference of two times may be off
HEARD_SECONDS = 90.0  # a client that lives is written down as seen at least twice in this time


class Scheduler:
    """One for all runs of a coordinator. `turn` may be called at any time, for any run, any number of times."""

    def __init__(
        self, journal: Journal, part_store: PartStore, compute: Compute, bell: Bell, clock: Clock, meter: Meter = SILENT
    ) -> None:
        self.journal, self.part_store, self.compute, self.bell, self.clock = journal, part_store, compute, bell, clock
        self.meter = meter
        self.mender = Mender(journal=journal, part_store=part_store, compute=compute, bell=bell, clock=clock)

    def turn(self, run_id: RunId, token: int | None = None) -> float | None:
        """Close every round that is ready. The time of the next call at the latest; None when the run is not open.

        token: of the caller's lease on the run, held against the newest in each write's own transaction; None where there
        is no other coordinator. Raises Overtaken: leave the run alone; Unreachable and StorageFull: call it again later.
        """
        while True:
            run = self.journal.run(run_id)
            if run is None or run.status not in OPEN:
                return None
            if self.held(run):  # the next of its children that ends tells
                return max(run.deadline_at, self.clock.now() + run.spec.waiting.deadline)
            what = self.judge(run)
            if what is Verdict.WAIT:
                return max(run.deadline_at, self.clock.now() + HELD_SECONDS) if self.late(run) else run.deadline_at
            orders = newest(self.journal.orders(run.id, run.cursor))
            if what is Verdict.STALL:
                if not self.ask_again(run, orders):
                    self.stall(run, progress_of(orders), token)
            else:
                self.try_close(run, orders, token)

    def held(self, run: RunRow) -> bool:
        """Whether a run still waits for others: one that compares them begins when each has ended, or stalled."""
        if run.cursor != JOIN or not run.spec.children:
            return False
        rows = map(self.journal.run, run.spec.children)
        return any(row is not None and row.status in OPEN for row in rows)

    def leave_out(self, run: RunRow) -> None:
        """The runs that stalled are not waited for any more."""
        for name in run.spec.children:
            row = self.journal.run(name)
            if row is not None and row.status is Status.STALLED:
                cause = LEFT_OUT.format(cause=row.cause)
                self.journal.set_status(name, (Status.STALLED,), Status.CANCELLED, cause, self.clock.now())
                self.bell.ring(f"run:{name}")

    def rings(self, run: RunRow) -> None:
        """Tell whoever follows the run, and who conducts the one that it belongs to."""
        self.bell.ring(f"run:{run.id}")
        if run.parent is not None:
            self.bell.ring(f"run:{run.parent}")

    def judge(self, run: RunRow) -> Verdict:
        """From counts alone: this is asked after every reply."""
        standing = self.journal.standing(run.id, run.cursor)
        if standing.open and (barred := self.journal.barred(run.id)):
            for client in barred:
                self.journal.revoke(client, "", self.clock.now())
            standing = self.journal.standing(run.id, run.cursor)
        floor = floor_of(run, self.journal)
        rules = waiting_of(run, floor)
        wanted = standing.open and standing.answered < quorum(standing, rules, floor)  # else the round goes on without them
        expired = self.late(run) and not (wanted and self.held_by_owners(run))
        return verdict(standing, rules, floor, expired=expired)

    def late(self, run: RunRow) -> bool:
        return self.clock.now() >= run.deadline_at

    def held_by_owners(self, run: RunRow) -> bool:
        """Whether a round that is late still waits for sites whose owners let it: they live, and say so."""
        now = self.clock.now()
        if now >= run.deadline_at + run.spec.waiting.held:
            return False
        lines = newest(self.journal.order_lines(run.id, run.cursor))
        return any(o.held and o.status is OrderStatus.OPEN and now - o.beat < HELD_FRESH_SECONDS for o in lines)

    def ask_again(self, run: RunRow, orders: Iterable[OrderRow]) -> bool:
        """Ask sites again whose failure is of before the run was resumed, if there are any: what they lacked then may be back.

        Their orders were open while the run was stalled, so that whoever resumed it could not have asked them again.
        """
        before = run.deadline_at - run.spec.waiting.deadline - ROUNDING_SECONDS  # when the round was opened, or opened again
        failed = [o for o in orders if o.status is OrderStatus.FAILED and o.created < before]
        if not failed or self.late(run):
            return False
        last = self.journal.last_answers(run.id, {o.client for o in failed})
        self.journal.reissue([next_attempt(o, last[o.client], self.clock.now()) for o in failed])
        for order in failed:
            self.bell.ring(f"client:{order.client}")
        return True

    def stall(self, run: RunRow, progress: Progress, token: int | None) -> None:
        reasons = [f"{client}: {why}" for client, why in progress.failed]
        reasons += [f"{client}: no answer in time" for client in sorted(progress.waiting)]
        came = f"{len(progress.answered)} of {progress.asked} sites answered"
        came += lacking(run, len(progress.answered), floor_of(run, self.journal))
        cause = f"{place(run)}: {came}. {'; '.join(reasons)}"
        self.set_stalled(run, cause, token)

    def try_close(self, run: RunRow, asked: tuple[OrderRow, ...], token: int | None) -> None:
        """asked: the newest order of each client that the round asks."""
        answered = [o for o in asked if o.status is OrderStatus.ANSWERED]
        try:
            ended = self.close(run, asked, answered, token)
        except (Unreachable, StorageFull, Overtaken):
            raise  # not the run's trouble: nothing was written, and a later turn, here or elsewhere, does it
        except PartMissing as error:
            self.mend(run, error, token)
            ended = False
        except FederationError as error:
            self.part_store.check_here()
            self.fail(run, error, token, () if run.cursor == JOIN else tuple(o.client for o in answered))
            ended = True
        self.part_store.tidy(at_once=ended)

    def mend(self, run: RunRow, error: PartMissing, token: int | None) -> None:
        """See that a part is here again that the fold lacks; the round is judged anew then. Else a person has to look."""
        try:
            mending = self.mender.mend(run.id, error)
        except PartLost as lost:
            self.set_stalled(run, f"{place(run)}: {lost}", token)
            return
        if mending.asked is not None and self.late(run):
            cause = f"{place(run)}: the reply of {mending.asked} was damaged here, and is asked for again. Resume the run"
            self.set_stalled(run, cause, token)

    def set_stalled(self, run: RunRow, cause: str, token: int | None) -> None:
        self.journal.set_status(run.id, OPEN, Status.STALLED, cause, self.clock.now(), token)
        self.rings(run)

    def close(self, run: RunRow, asked: tuple[OrderRow, ...], answered: list[OrderRow], token: int | None) -> bool:
        """One fold and one transaction; whether the run has ended with it."""
        rounds = self.journal.recent_rounds(run.id)
        joined = run.cursor == JOIN
        members = run.members
        if joined:  # the roster is frozen: what each site said when it joined
            members = tuple(Member(o.client, run.roster[o.client], bool(o.facts["labelled"])) for o in answered)
        since = sum(1 for _ in itertools.takewhile(lambda r: not r.state, reversed(rounds)))  # the last checkpoint
        with_checkpoint = joined or (since + 1 >= run.spec.checkpoint_every and not amid_sum(run, self.journal))
        if joined:
            self.leave_out(run)
            made = self.compute.begin(BeginRequest(run.spec, members, with_checkpoint, self.available(run)))
        else:
            checkpoint, history = since_checkpoint(self.journal, run, rounds)
            closing = recorded(run.cursor, messages(asked), answered)
            made = self.compute.close(
                CloseRequest(
                    spec=run.spec,
                    roster=members,
                    checkpoint=checkpoint,
                    history=history,
                    closing=closing,
                    with_checkpoint=with_checkpoint,
                    available=self.available(run),
                )
            )
        closed = self.closed(run, answered, asked, made, self.clock.now())
        best = self.best(run, closed)
        step = replace(
            self.advance(run, (*rounds, closed), made, members),
            without=shut_out(asked),
            token=token,
            best=best,
            best_state=scored_state(rounds, run.cursor) if best else (),
            epsilon=epsilons(run, (*self.journal.rounds(run.id), closed)) if run.spec.privacy else EMPTY,
        )
        if self.journal.advance(step, self.part_store.parts.has):
            for order in step.orders:
                self.bell.ring(f"client:{order.client}")
            self.rings(run if step.status in FINAL else replace(run, parent=None))
            self.meter.closed(run, step.closed, step.epsilon, step.status in FINAL)
        return step.status in FINAL

    def best(self, run: RunRow, closed: RoundRow) -> dict[str, Plain] | None:
        """The round's score, where it is the best so far: whoever keeps the best model keeps this one."""
        selection = run.spec.scoring.selection
        if VALIDATION not in closed.tables or selection is Selection.NONE:
            return None
        before = None if run.best is None else self.journal.round(run.id, run.best)
        found = news(closed, before, selection, run.roster)
        return None if found is None else dict(vars(found))

    def available(self, run: RunRow) -> frozenset[ClientId]:
        """The members that were heard of lately, where cohorts are drawn by that."""
        if run.spec.sampling is None or run.spec.sampling.by is not Draw.AVAILABILITY:
            return frozenset()
        since = self.clock.now() - HEARD_SECONDS
        known = (c for c in self.journal.clients() if c.name in run.roster and c.standing is Standing.APPROVED)
        return frozenset(c.name for c in known if c.seen >= since)

    def advance(self, run: RunRow, rounds: Sequence[RoundRow], made: NextRound, members: Roster) -> Advance:
        """rounds: from the last checkpoint but one on, with the one that is being closed."""
        closed = rounds[-1]
        now, last = closed.closed, self.journal.last_answers(run.id, made.orders.keys())
        orders = []
        for client, files in made.orders.items():
            seed = seed_for(run.spec.seed, Purpose.STEP, made.cursor, client)
            order = new_order(run.id, made.cursor, client, files, seed, last[client], now)
            orders.append(replace(order, sealed=made.handles.get(client, ())))
        kept = [r.next_cursor for r in rounds if r.state]
        waits = waiting_of(run if made.done else replace(run, cursor=made.cursor)).deadline
        return Advance(
            run=run.id,
            from_cursor=run.cursor,
            closed=closed,
            orders=tuple(orders),
            cursor=made.cursor,
            deadline_at=now + waits,
            status=Status.COMPLETED if made.done else Status.RUNNING,
            state_digest=closed.state[0][0] if made.done else None,
            members=members if run.cursor == JOIN else None,
            fingerprint=made.fingerprint if run.cursor == JOIN else None,
            retain_from=kept[-2] if len(kept) > 1 else JOIN,
            sealed=made.sealed,
        )

    def closed(self, run: RunRow, answered: list[OrderRow], asked: Sequence[OrderRow], made: NextRound, now: float) -> RoundRow:
        fact = run.fact(run.cursor)
        return RoundRow(
            run=run.id,
            cursor=run.cursor,
            phase=fact.phase,
            round=fact.round,
            opened=run.opened,
            closed=now,
            folded=tuple(o.client for o in answered),
            next_cursor=made.cursor,
            state=made.state,
            asked=messages(asked),
            marks=made.marks,
            groups=made.groups,
            tables=made.tables,
        )

    def fail(self, run: RunRow, error: FederationError, token: int | None = None, folded: Sequence[ClientId] = ()) -> None:
        """End a run that cannot go on. folded: whose replies were at hand."""
        word = "diverged: " if isinstance(error, Diverged) else ""
        whose = suspects(folded) if folded and isinstance(error, StepFailed) else ""
        self.journal.set_status(run.id, OPEN, Status.FAILED, f"{place(run)}: {word}{error}{whose}", self.clock.now(), token)
        self.rings(run)


def suspects(folded: Sequence[ClientId]) -> str:
    """Where a fold fails, one of its replies may be why, though nothing that is declared was against it."""
    rest = len(folded) - MOST_NAMED
    others = f" and {rest} more" if rest > 0 else ""
    return f". Folded were the replies of {', '.join(folded[:MOST_NAMED])}{others}; each had kept its declaration"


def place(run: RunRow) -> str:
    if 0 <= run.cursor < len(run.plan):
        return f"Round {run.plan[run.cursor].round} of {run.plan[run.cursor].phase}"
    return "Gathering the sites"


BEATS = 3  # signs of life within a lease's time


class Leases:
    """Keeps the leases of one holder. Any number of threads.

    No clock is compared with another's: a lease ends for an observer who has seen no sign of life for its time by a clock of
    his own. Somebody who was frozen for longer finds out by his next write, which is refused. A holder's name belongs to one
    process at a time, so that one that was killed takes its runs up again at once.
    """

    def __init__(
        self, journal: Journal, clock: Clock, holder: str, seconds: float, taken: Callable[[Lease], None] | None = None
    ) -> None:
        self.journal, self.clock, self.holder, self.seconds, self.taken = journal, clock, holder, seconds, taken
        self._lock = threading.Lock()
        self._held: dict[RunId, Lease] = {}
        self.elsewhere = False  # whether others conduct open runs, as of the last look
        self._seen: dict[RunId, tuple[Lease, float]] = {}  # of others, and since when it has been as it is

    def poll(self) -> frozenset[RunId]:
        """Give a sign of life for what is held, take what is free; every run that is held now. Call it every `pause` seconds."""
        with self._lock:
            self._held = by_run(self.journal.renew(self._held.values()))
            found = self.journal.leases()
            self._held = {lease.run: self._held[lease.run] for lease in found if lease.run in self._held}
            self._claim(found)
            self._seen = {lease.run: self._seen[lease.run] for lease in found if lease.run in self._seen}
            self.elsewhere = any(lease.run not in self._held for lease in found)
            return frozenset(self._held)

    def take(self, run: RunId) -> int | None:
        """The token of a run's lease, taken now if it is free; None while another holds it, or if the run is not open."""
        known = self._held.get(run)  # without the lock, which is held for as long as all leases are looked at
        if known is not None:
            return known.token
        with self._lock:
            if run not in self._held:
                self._claim(self.journal.leases(run))
            return self._held[run].token if run in self._held else None

    def lose(self, run: RunId) -> None:
        with self._lock:
            self._held.pop(run, None)

    def close(self) -> None:
        """Leave every run to the others, who need not wait."""
        with self._lock:
            self.journal.release(self._held.values())
            self._held = {}

    @property
    def pause(self) -> float:
        return self.seconds / BEATS

    def _claim(self, found: Iterable[Lease]) -> None:
        free = [lease for lease in found if lease.run not in self._held and self._free(lease)]
        if free:
            claimed = by_run(self.journal.claim(free, self.holder, self.seconds))
            self._held |= claimed
            for lease in free:
                if self.taken and lease.run in claimed and lease.holder not in ("", self.holder):
                    self.taken(lease)

    def _free(self, lease: Lease) -> bool:
        """Nobody's, our own from before, or one whose holder has been silent for its time."""
        if lease.holder in ("", self.holder):
            return True
        now = self.clock.now()
        known, since = self._seen.get(lease.run, (None, now))
        if known != lease:
            since = now
        self._seen[lease.run] = (lease, since)
        return now - since > lease.seconds


def by_run(leases: Iterable[Lease]) -> dict[RunId, Lease]:
    return {lease.run: lease for lease in leases}
