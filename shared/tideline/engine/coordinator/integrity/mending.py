"""Makes the coordinator's parts again that were damaged or are gone, from whatever else is kept of them.

    a reply of the open exchange,   its site is asked again, and answers with the same bytes from its vault
    and what came sealed with it
    a state, a message              the round that they came of is folded once more, from the state before and its replies
    a user's weights, all else      nobody here has them: the run stalls, and its cause says what it was and what to bring back

Parts are named by their bytes, so nothing here can change a result: what is made again is the part, or it is not.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tideline.archive.errors import PartDamaged, PartMissing
from tideline.archive.layout import parse
from tideline.core.errors import Diverged, PartLost, StepFailed, Unreachable
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.audit import entries
from tideline.engine.coordinator.history import again, begin_again, next_attempt
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.scores import scored_state
from tideline.engine.model.orders import Files, OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, RoundRow, RunRow, Status
from tideline.engine.model.totals import newest
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.clock import Bell, Clock
from tideline.engine.ports.compute import Compute, NextRound
from tideline.engine.ports.journal import Journal

MOST_TIMES = 3  # that one part is made again: a disk that damages it more often than that is no place for it
DEEPEST = 64  # rounds behind each other that are folded once more for one part
FOLDED_AGAIN, ASKED_AGAIN = "the round that made it was folded again", "{client} was asked for it again"
RESUME = "then resume the run with `tideline run resume {run}`"
BRING = "Bring a good copy of {part} back to its place there, such as from a backup, and {resume}; or begin the run again"
BRING_RESULT = (
    "Bring a good copy of {part} back to its place there, such as from a backup; or start the same experiment with the same seed"
    " once more, which ends in the same bytes and writes them there again"
)
EITHER = "A good copy of either part will do"
NOTHING = "a part that nothing here makes again"
UPLOAD = "Upload the same file again (PUT /weights/{part}), and {resume}"


@dataclass(frozen=True)
class Mending:
    """What came of it. asked: the site that sends the part again, if it is one's."""

    asked: ClientId | None = None


class Mender:
    """Any number of threads, and of coordinators: one part at a time is made here, and whoever comes later finds it."""

    def __init__(self, journal: Journal, part_store: PartStore, compute: Compute, bell: Bell, clock: Clock) -> None:
        self.journal, self.part_store, self.compute, self.bell, self.clock = journal, part_store, compute, bell, clock
        self._lock = threading.Lock()
        self._times: Counter[tuple[RunId, Digest]] = Counter()

    def mend(self, run_id: RunId, error: PartMissing) -> Mending:
        """Make the part again that an error says to be damaged or gone, or ask for it.

        Raises PartLost where nobody has it, and Unreachable where the store of parts as a whole is away.
        """
        digest, run = error.context.get("digest"), self.journal.run(run_id)
        if run is None or not isinstance(digest, str):
            raise PartLost(error.what, error.todo) from error
        self.part_store.check_here()
        damaged = isinstance(error, PartDamaged)
        with self._lock:
            if run.status is not Status.COMPLETED:
                return self._mend(run, Digest(digest), damaged, DEEPEST)
            try:
                return self._mend(run, Digest(digest), damaged, deep=1)
            except PartLost as lost:  # what it was made of is dropped when a run completes: nobody is to look for that
                raise self._lost(run, Digest(digest), damaged, NOTHING) from lost

    def stall(self, run: RunId, lost: PartLost) -> None:
        """Let a person look at a run that cannot go on without a part."""
        if self.journal.set_status(run, OPEN, Status.STALLED, str(lost), self.clock.now()):
            self.bell.ring(f"run:{run}")

    def _mend(self, run: RunRow, digest: Digest, damaged: bool, deep: int) -> Mending:
        if self.part_store.parts.has(digest):
            return Mending()  # another was faster
        self._still_worth_it(run, digest, damaged)
        if digest == run.spec.initial_weights:
            raise self._lost(run, digest, damaged, "the weights that a user brought for the run", UPLOAD)
        orders = newest(self.journal.orders(run.id, run.cursor))
        if (answer := next((o for o in orders if digest in self._came_with(o)), None)) is not None:
            self._ask_again(run, answer, digest)
            return Mending(asked=answer.client)
        if (client := self._asked_for(run, orders, digest)) is not None:
            return Mending(asked=client)
        self._fold_again(run, orders, digest, damaged, deep)
        self._note(run, digest, FOLDED_AGAIN)
        return Mending()

    def _still_worth_it(self, run: RunRow, digest: Digest, damaged: bool) -> None:
        """Raises PartLost for one that was made again often enough; whoever resumes the run gets as many tries once more."""
        if self._times[run.id, digest] >= MOST_TIMES:
            del self._times[run.id, digest]
            what = f"a part that was made again {MOST_TIMES} times, and did not stay whole: look at the disk"
            raise self._lost(run, digest, damaged, what)

    def _came_with(self, order: OrderRow) -> frozenset[Digest]:
        """What a site sent as its answer, with the values that it sealed for others."""
        files = named(answered(order))
        if not files or not self.part_store.parts.has(order.reply[0][0]):
            return files
        try:
            handles = parse(self.part_store.parts.view(order.reply[0][0])).handles
        except PartMissing:
            return files  # it is asked for again when it is missed itself
        return files | named([ciphers(self.journal.envelopes(order.run, handles))]) if handles else files

    def _asked_for(self, run: RunRow, orders: Sequence[OrderRow], digest: Digest) -> ClientId | None:
        """The site that was asked for a part and has not answered yet: a scrub or another thread met the same damage before."""
        waited_for = {order.client for order in orders if order.status is OrderStatus.OPEN and order.attempt > 1}
        earlier = (o for o in self.journal.orders(run.id, run.cursor) if o.client in waited_for)
        return next((order.client for order in earlier if digest in self._came_with(order)), None)

    def _ask_again(self, run: RunRow, answer: OrderRow, digest: Digest) -> None:
        """Offer an order once more that was answered: the site remembers its answer."""
        last = self.journal.last_answers(run.id, {answer.client})[answer.client]
        self.journal.reissue([next_attempt(answer, last, self.clock.now())])
        self._note(run, digest, ASKED_AGAIN.format(client=answer.client), answer.client)
        self.bell.ring(f"client:{answer.client}")

    def _fold_again(self, run: RunRow, orders: Sequence[OrderRow], digest: Digest, damaged: bool, deep: int) -> None:
        """Fold the round once more whose state or messages have the part; what that needs is mended first. Raises PartLost."""
        ended = run.status is Status.COMPLETED  # what it was folded from is dropped, but other runs may have the same
        rounds = self.journal.rounds(run.id) if ended else self.journal.recent_rounds(run.id)
        at = self._first_made(run, digest, rounds, orders)
        if at is None or not deep:
            raise self._lost(run, digest, damaged, NOTHING)
        while not self.part_store.parts.has(digest):
            try:
                self._compare(run, self._made_again(run, rounds, at, orders), rounds, at, orders)
            except PartMissing as other:
                needed = other.context.get("digest")
                if not isinstance(needed, str) or needed == digest:
                    raise self._lost(run, digest, damaged, NOTHING) from other
                self._mend_first(run, Digest(needed), isinstance(other, PartDamaged), digest, deep)
            except (Diverged, StepFailed) as other:
                raise self._lost(run, digest, damaged, f"a part that is not made again ({other.what})") from other

    def _first_made(self, run: RunRow, digest: Digest, rounds: Sequence[RoundRow], orders: Sequence[OrderRow]) -> int | None:
        """The first round that wrote a part and can be folded again. A later one may have left it as it was, and needs it."""
        for at, closed in enumerate(rounds):
            can_be = closed.cursor == JOIN or any(before.state for before in rounds[:at])
            if can_be and digest in named(self._made(run, rounds, at, orders)):
                return at
        return None

    def _mend_first(self, run: RunRow, needed: Digest, damaged: bool, wanted: Digest, deep: int) -> None:
        """Mend what it takes to mend another part. Raises PartLost, which names both: a good copy of either will do."""
        try:
            self._mend(run, needed, damaged, deep - 1)
        except PartLost as lost:
            if EITHER in lost.todo:
                raise
            role = self._role(run, wanted)
            what = f"{lost.what}. It is needed to make part {wanted} again, which is damaged or gone, too, and is {role}"
            raise PartLost(what, f"{lost.todo}. {EITHER}", digest=needed) from lost

    def _made(self, run: RunRow, rounds: Sequence[RoundRow], at: int, orders: Sequence[OrderRow]) -> Iterator[Files]:
        """What the fold of a round wrote: the state, and the messages of the next exchange."""
        yield rounds[at].state
        following = orders if at + 1 == len(rounds) else newest(self.journal.orders(run.id, rounds[at + 1].cursor))
        yield from (order.files for order in following)

    def _made_again(self, run: RunRow, rounds: Sequence[RoundRow], at: int, orders: Sequence[OrderRow]) -> NextRound:
        """A round closed once more, from the last state before it; who was asked then is asked again. Raises PartMissing."""
        asked = frozenset(rounds[at + 1].asked) if at + 1 < len(rounds) else frozenset(order.client for order in orders)
        if rounds[at].cursor == JOIN:
            return self.compute.begin(begin_again(run, asked))
        return self.compute.close(again(self.journal, run, rounds[: at + 1], asked))

    def _compare(self, run: RunRow, made: NextRound, rounds: Sequence[RoundRow], at: int, orders: Sequence[OrderRow]) -> None:
        """What is made again must be what was made. Raises Diverged."""
        asked = rounds[at + 1].asked if at + 1 < len(rounds) else {o.client: o.message for o in orders if o.message}
        same = {client: files[0][0] for client, files in made.orders.items()} == dict(asked)
        if not same or (rounds[at].state and rounds[at].state != made.state):
            what = f"round {rounds[at].round} of {rounds[at].phase} folded again gives other bytes than it gave"
            raise Diverged(what, "The machine's numerics changed (torch version, processor, threads); begin the run again")

    def role(self, run_id: RunId, digest: Digest) -> str:
        """What a part is to a run, in words; empty for one that it does not need, or needs no longer."""
        run = self.journal.run(run_id)
        return "" if run is None else self._role(run, digest)

    def _role(self, run: RunRow, digest: Digest) -> str:
        if digest == run.spec.initial_weights:
            return "the weights that a user brought for the run"
        if run.status is Status.COMPLETED:
            return self._role_at_the_end(run, digest)
        rounds = self.journal.recent_rounds(run.id)
        for closed in reversed(rounds):
            if digest in named([closed.state]):
                return f"the state after {round_of(run, closed.cursor)}"
        least = rounds[0].cursor if rounds else JOIN
        for order in reversed(self.journal.orders(run.id)):
            if order.cursor >= least and (role := self._role_in(run, order, digest)):
                return role
        return self._role_in_states(run, rounds, digest) or self._role_at_the_end(run, digest)

    def _role_in_states(self, run: RunRow, rounds: Sequence[RoundRow], digest: Digest) -> str:
        """Of a sealed value that a state names, to be handed out later."""
        for closed in reversed(rounds):
            if closed.state and self.part_store.parts.has(closed.state[0][0]):
                with suppress(PartMissing):
                    handles = parse(self.part_store.parts.view(closed.state[0][0])).handles
                    found = self.journal.envelopes(run.id, handles) if handles else ()
                    if holder := next((each.handle.holder for each in found if each.cipher == digest), ""):
                        state = f"the state after {round_of(run, closed.cursor)}"
                        return f"a value that {holder} sealed for other sites, which {state} names"
        return ""

    def _role_at_the_end(self, run: RunRow, digest: Digest) -> str:
        """Of what a run leaves: its last state, and that of its best round."""
        if run.status is Status.COMPLETED and digest in named([self.journal.recent_rounds(run.id)[-1].state]):
            return f"the final state of run {run.id}, which has completed"
        best = () if run.best is None else scored_state(self.journal.rounds(run.id), run.best)
        return f"the state of run {run.id} that its best round scored" if digest in named([best]) else ""

    def _role_in(self, run: RunRow, order: OrderRow, digest: Digest) -> str:
        """Of an order, its answer, and the sealed values that it brings."""
        when = round_of(run, order.cursor)
        if digest in named(answered(order)):
            return f"the reply of {order.client} to {when}{', which has closed' if order.cursor < run.cursor else ''}"
        if digest in self._came_with(order):
            return f"a value that {order.client} sealed for other sites in {when}"
        if digest in named([order.files]):
            return f"what {order.client} is sent in {when}"
        envelopes = self.journal.envelopes(run.id, order.sealed) if order.sealed else ()
        holder = next((each.handle.holder for each in envelopes if each.cipher == digest), "")
        return f"a value that {holder} sealed for {order.client}, which is sent in {when}" if holder else ""

    def _lost(self, run: RunRow, digest: Digest, damaged: bool, what: str, todo: str = BRING) -> PartLost:
        where = self.part_store.parts.where
        state = f"is damaged, and was put aside in {where}/damaged" if damaged else "is gone"
        role = self._role(run, digest)
        words = f"Part {digest} in {where} {state}: {what}" + (f". It is {role}" if role and role not in what else "")
        todo = BRING_RESULT if run.status is Status.COMPLETED else todo
        return PartLost(words, todo.format(part=digest, resume=RESUME.format(run=run.id)), digest=digest)

    def _note(self, run: RunRow, digest: Digest, how: str, client: str = "") -> None:
        self._times[run.id, digest] += 1
        now = self.clock.now()
        self.journal.event(run.id, entries.PART_MENDED, {"part": digest, "how": how}, now)
        self.journal.record([entries.part_mended(run.id, digest, how, client, now)])
        self.bell.ring(f"run:{run.id}")


def round_of(run: RunRow, cursor: int) -> str:
    """An exchange of a run, in words."""
    return f"round {run.plan[cursor].round} of {run.plan[cursor].phase}" if cursor >= 0 else "the join"


def answered(order: OrderRow) -> tuple[Files, ...]:
    return (order.reply,) if order.status is OrderStatus.ANSWERED else ()


def named(many: Iterable[Files]) -> frozenset[Digest]:
    return frozenset(digest for files in many for digest, _ in files)


class MendedParts:
    """The coordinator's parts as they are handed out for a run: one that is gone, or known to be damaged, is made again first.

    sure: hold parts to their names before, too: who was sent bytes asks again for them.
    """

    def __init__(self, mender: Mender, run: RunId, sure: bool) -> None:
        self._mender, self._run = mender, run
        self._look = mender.part_store.parts.view if sure else mender.part_store.parts.peek

    def peek(self, digest: Digest) -> memoryview:
        """As of any store. Raises Unreachable, and lets the run stall, where the part cannot be made again."""
        try:
            return self._look(digest)
        except PartMissing as error:
            mended_or_stalled(self._mender, self._run, error)
        try:
            return self._look(digest)
        except PartMissing as error:
            raise Unreachable(error.what, "It is tried again by itself") from error


def mended_or_stalled(mender: Mender, run: RunId, error: PartMissing) -> None:
    """Mend a part that a site waits for. Raises Unreachable where that cannot be: the site asks again until it is back."""
    try:
        mender.mend(run, error)
    except PartLost as lost:
        mender.stall(run, lost)
        raise Unreachable("The coordinator lacks a part of the run, and its admin has to look", "It is asked again") from lost
