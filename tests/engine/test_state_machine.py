"""Runs, rounds and leases under random misfortune: whatever happens, in any order, what is promised holds."""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.budgets import examples
from tests.engine.endings import ending, undisturbed
from tests.engine.fates import CALM, Fate, Life, Task
from tests.engine.present import present
from tests.engine.toys import ROSTER, Diary
from tests.engine.witness import Shown, root
from tests.engine.world import Coordinator, World, worked
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.run import ClientId, RunId
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import OPEN, RunRow, Status

AT_NIGHT = pytest.mark.nightly(job="services")

LONG = bool(os.environ.get("TIDELINE_LONG"))
RAM = Path("/dev/shm")
SHELF = RAM if RAM.is_dir() else None
ROUNDS = 4
ENOUGH = 12  # sweeps in which nothing goes wrong: more than a run has rounds
RULES = (
    {"deadline": 60.0},
    {"min_replies": 2, "deadline": 60.0},
    {"target_replies": 2, "min_replies": 1, "deadline": 100.0},
    {"target_replies": 1, "deadline": 9000.0},
    {"min_replies": 1, "deadline": 9000.0},
)
SECONDS = (6.0, 16.0, 61.0, 101.0, 101.0, 4000.0)  # signs of life, a lease, deadlines, the time for which loose parts are kept
OFTEN, SELDOM = ("sites answer", "others wait", "time is up"), ("parts are forgotten", "a site dies", "a person cancels")
PERSONS = ("a person cancels", "a person resumes")
# On the way of a turn; what stands twice is drawn more often.
CLOSING = ("advance", "advance", "close", "begin", "recent_rounds", "last_answers", "set_status", "set_status")
CONDUCTING = (*CLOSING, "advance", "advance", "claim", "run", "orders", "collect", "event")
LOOKING = ("claim", "claim", "renew", "leases", "release")
DELIVERING = ("committed", "pushed", "report", "order", "check", "answer")  # on the way of an answer
ANSWERING = (*DELIVERING, "answer", "answer", "fetch", "commit", "reported", "push", "held", "add_parts")
SMALL = st.integers(0, 11)
EVERY = st.integers(1, 3)
OTHERS = st.lists(st.sampled_from(OFTEN * 2 + SELDOM), max_size=3)
LATE = st.just(["sites answer"])  # after the round was looked at, before it is written
OTHER_PEOPLE = st.lists(st.sampled_from(PERSONS + OFTEN), max_size=3)


def one_of(options: list[Any], at: int) -> list[Any]:
    """One of the options, if there is any."""
    return [pick(options, at)] if options else []


def fates(whats: tuple[str, ...], places: tuple[str, ...]) -> st.SearchStrategy[Fate]:
    """Often nothing, else a misfortune at a place by its name or its number."""
    return st.just(CALM) | st.builds(Fate, st.sampled_from(whats), st.sampled_from(places) | st.integers(0, 24))


WHO = st.sampled_from([ClientId(name) for name in sorted(ROSTER)])
TEAM = st.permutations(sorted(ROSTER)).flatmap(
    lambda names: st.sampled_from((0, 0, 1, 2, 3)).map(lambda n: [ClientId(c) for c in names[:n]])
)
MEANWHILE = st.tuples(st.lists(SMALL, max_size=1), st.lists(WHO, max_size=1))
ANY = ("freeze", "freeze", "twice", "twice", "crash", "cut", "lost")
TURNS = fates(ANY, CONDUCTING)
TWICE = st.just(Fate("twice", "advance"))  # the write that must count once
LOOKS = fates(ANY, LOOKING)
ORDERS = fates((*ANY, "fail"), ANSWERING)
PEOPLE = fates(ANY, ("run", "orders", "set_status", "reopen"))


def pick(options: Any, at: int) -> Any:
    """One of the options."""
    return options[at % len(options)]


DRAWN: dict[str, st.SearchStrategy[Any]] = {}
MOVES: list[str] = []


def move(weight: int = 1, **drawn: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Something that may happen, as often as its weight says, with what is drawn for it."""

    def known(function: Any) -> Any:
        DRAWN[function.__name__] = st.fixed_dictionaries(drawn)
        MOVES.extend([function.__name__] * weight)
        return function

    return known


def moves() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """One of the moves."""
    return st.sampled_from(MOVES).flatmap(lambda name: st.tuples(st.just(name), DRAWN[name]))


class Machine(RuleBasedStateMachine):
    """Two or three coordinators, three sites, two runs, and people.

    There is one rule, which chooses among the moves: of many rules only some would take part in each life.
    """

    stored = False

    @initialize(three=st.booleans(), twins=st.booleans(), rules=st.permutations(RULES), every=st.tuples(EVERY, EVERY), far=EVERY)
    def begin(self, three: bool, twins: bool, rules: list[dict[str, Any]], every: tuple[int, int], far: int) -> None:
        """Two runs have begun: with parts of their own or, as twins, with the same ones."""
        self.folder = tempfile.TemporaryDirectory(dir=SHELF) if self.stored else None
        self.world = World(Path(self.folder.name) if self.folder else None, 2 + three)
        self.store, self.seen, self.times = self.world.parts(), list[Shown](), dict[Any, int]()
        for at, name in enumerate(("run-a", "run-b")):
            more = {"seed": 7 + at * (not twins), "waiting": rules[at], "checkpoint_every": every[at]}
            self.world.start(name, config={"rounds": ROUNDS}, **more)
        for _ in range(far - 1):
            self.world.sweep()

    @rule(what=st.deferred(moves), then=MEANWHILE)
    def happens(self, what: tuple[str, dict[str, Any]], then: tuple[list[int], list[ClientId]]) -> None:
        """A move; and life goes on beside it: some coordinators look and take their turns, then some sites answer."""
        self.seen = []
        getattr(self, what[0])(**what[1])
        self.meanwhile(*then)

    # What coordinators do

    @move(2, at=SMALL, patience=st.sampled_from((0.0, 10.0, 16.0)), fate=LOOKS)
    def look(self, at: int, patience: float, fate: Fate) -> None:
        """A coordinator gives its signs of life and takes what is free, or what has been silent before its eyes."""
        for c in one_of(self.up(), at):
            if patience:
                self.world.play(c.life, "look", c.leases.poll)
                c.clock.advance(patience)
            self.world.play(c.life, "look", c.leases.poll, fate)

    @move(at=SMALL, others=OTHERS, fate=LOOKS)
    def slow_look(self, at: int, others: list[str], fate: Fate) -> None:
        """A look is frozen on its way, maybe with a free lease in sight, while others take it or its holder gives a sign."""
        self.look(at, 16.0, Fate("freeze", "claim"))
        self.while_frozen(others, fate)

    @move(2, who=TEAM, at=SMALL, run=SMALL, fate=TURNS | TWICE)
    def turn(self, who: list[ClientId], at: int, run: int, fate: Fate) -> None:
        """Some sites answer, or time is up, and a coordinator takes a turn on a run: most often the one that holds it."""
        self.meanwhile([], who)
        row = self.row(pick(self.world.runs, run))
        holders = {lease.holder for lease in self.world.witness.truth.leases(row.id)}
        for c in one_of([c for c in self.up() if c.name in holders] * 4 + self.up(), at):
            if not who:
                c.clock.advance(max(row.deadline_at - c.clock.now(), 0.0))
            self.world.turn(c, row.id, fate)

    @move(4, who=TEAM, at=SMALL, run=SMALL, where=st.sampled_from(CLOSING), others=OTHERS | LATE, fate=TURNS)
    def slow_turn(self, who: list[ClientId], at: int, run: int, where: str, others: list[str], fate: Fate) -> None:
        """A turn is frozen on its way, maybe with a closed round in hand, while others go on."""
        self.turn(who, at, run, Fate("freeze", where))
        self.while_frozen(others, fate)

    @move(2, at=SMALL, others=OTHERS, fate=TURNS | ORDERS)
    def wake(self, at: int, others: list[str], fate: Fate) -> None:
        """What was frozen goes on, maybe after others have gone on for a while."""
        for task in one_of(self.world.frozen, at):
            self.world.frozen.append(self.world.frozen.pop(self.world.frozen.index(task)))
            self.while_frozen(["nothing", *others], fate)

    @move(at=SMALL, how=st.sampled_from(("kill", "kill", "stop", "cut off")), fate=LOOKS)
    def lose(self, at: int, how: str, fate: Fate) -> None:
        """A coordinator is killed, is stopped in order, or loses the journal. What it has under way may still end."""
        for c in one_of(self.up(), at):
            if how == "kill":
                self.world.bury(c.life)
            if how == "stop":
                c.stopped = True
                self.world.play(c.life, "stop", c.leases.close, fate)
            c.away = how == "cut off"

    @move()
    def recover(self) -> None:
        """Whatever is down is started under its old name, and finds the journal."""
        self.world.recover()

    @move(at=SMALL, fate=fates(ANY, ("collect",)))
    def collect(self, at: int, fate: Fate) -> None:
        """A coordinator forgets parts."""
        for c in one_of(self.up(), at):
            self.world.play(c.life, "collect", c.part_store.collect, fate)

    @move(2, at=st.none() | SMALL, seconds=st.sampled_from(SECONDS))
    def time(self, at: int | None, seconds: float) -> None:
        """Time passes, for one or for all."""
        for each in self.world.coordinators if at is None else one_of(self.world.coordinators, at):
            each.clock.advance(seconds)

    # What sites do

    @move(who=WHO, run=SMALL, to=SMALL, fate=ORDERS)
    def answer(self, who: ClientId, run: int, to: int, fate: Fate) -> None:
        """A site lives the orders that it is offered, over some coordinator: one of them with bad luck."""
        site = self.world.sites[who]
        site.line.at = to
        for order in site.orders():
            self.world.answer(site, order, fate if order.run == pick(self.world.runs, run) else CALM)

    @move(3, who=WHO, run=SMALL, to=SMALL, where=st.sampled_from(DELIVERING), others=OTHERS, fate=ORDERS)
    def slow_answer(self, who: ClientId, run: int, to: int, where: str, others: list[str], fate: Fate) -> None:
        """An answer is frozen on its way, maybe until its round has closed."""
        self.answer(who, run, to, Fate("freeze", where))
        self.while_frozen(others, fate)

    @move(who=WHO, at=SMALL, fate=ORDERS)
    def offer_again(self, who: ClientId, at: int, fate: Fate) -> None:
        """A site is offered an order that it has heard of before, however long ago."""
        site = self.world.sites[who]
        for order in one_of(site.offered[::-1], at):
            self.world.answer(site, order, fate)

    @move(who=WHO, at=SMALL, to=SMALL, fate=ORDERS)
    def report_again(self, who: ClientId, at: int, to: int, fate: Fate) -> None:
        """A report that was sent before comes again, however late, at any coordinator."""
        for c in one_of(self.up(), to):
            for reply in one_of(self.world.sites[who].line.posted[::-1], at):
                self.world.play(Life("echo"), "order", partial(c.agent_service.report, who, reply), fate)

    @move(who=WHO)
    def fail(self, who: ClientId) -> None:
        """A site's step fails."""
        self.answer(who, 0, self.world.sites[who].line.at, Fate("fail"))

    @move(who=WHO)
    def crash(self, who: ClientId) -> None:
        """A site's process dies and is started again."""
        self.world.bury(self.world.sites[who].life)
        self.world.sites[who].build()

    # What people do

    @move(at=SMALL, run=SMALL, fate=PEOPLE)
    def ask(self, at: int, run: int, fate: Fate) -> None:
        """A person resumes what has stalled or, seldom, ends what has not."""
        row = self.row(pick([t.subject for t in self.world.frozen if t.subject] + self.world.runs, run))
        for c in one_of(self.up(), at):
            wish = c.run_service.cancel if row.status in OPEN and at > 9 else c.run_service.resume
            self.world.play(c.life, "person", partial(wish, row.id), fate)

    @move(at=SMALL, run=SMALL, others=OTHER_PEOPLE, fate=PEOPLE)
    def slow_resume(self, at: int, run: int, others: list[str], fate: Fate) -> None:
        """A person's wish to resume a stalled run is frozen on its way, while others resume or cancel it."""
        stalled = [row.id for row in self.world.witness.runs() if row.status is Status.STALLED]
        for c, one in zip(one_of(self.up(), at), one_of(stalled, run), strict=False):
            self.world.play(c.life, "person", partial(c.run_service.resume, one), Fate("freeze", "reopen"), one)
            self.while_frozen(others, fate)

    # What goes on beside it

    def meanwhile(self, scheduler_loop: list[int], answering: list[ClientId]) -> None:
        """Some coordinators look and take their turns, then some sites answer."""
        for at in scheduler_loop:
            for c in one_of(self.up(), at):
                self.world.conduct(c)
        for name in answering:
            self.world.live(self.world.sites[name])

    def while_frozen(self, others: list[str], fate: Fate) -> None:
        """What was frozen last goes on after these have happened, or does not yet where nothing has."""
        for task in self.world.frozen[-1:] if others else []:
            for each in others:
                self.befall(each, [c for c in self.up() if c.life is not task.life], task)
            if task in self.world.frozen:
                self.world.wake(task, fate)

    def befall(self, what: str, others: list[Coordinator], task: Task) -> None:
        """Something happens while an activity is frozen."""
        if what == "sites answer":
            self.meanwhile([], list(self.world.sites))
        if what == "a site dies" and task.life in (site.life for site in self.world.sites.values()):
            self.crash(ClientId(task.life.name))
        for c in others:
            if what in PERSONS and task.subject:
                wish = c.run_service.cancel if what == "a person cancels" else c.run_service.resume
                self.world.play(c.life, "person", partial(wish, task.subject))
            if what in ("others wait", "time is up"):
                self.look(self.up().index(c), 16.0 if what == "others wait" else 101.0, CALM)
                self.world.conduct(c)
            if what == "parts are forgotten":
                c.clock.advance(4000.0)
                self.world.play(c.life, "collect", c.part_store.collect)

    def row(self, run: RunId) -> RunRow:
        """A run as it is."""
        return present(self.world.witness.truth.run(run))

    def up(self) -> list[Coordinator]:
        """The coordinators that serve."""
        return [c for c in self.world.coordinators if c.up and not c.away]

    # What is promised

    def shown(self) -> list[Shown]:
        """What the journal shows, read once after each step."""
        if not self.seen:
            self.seen = self.world.witness.shown()
        return self.seen

    def told(self, what: str) -> None:
        """The witness has seen nothing wrong."""
        assert [words for each, words in self.world.witness.faults if each == what] == []

    @invariant()
    def r1_each_reply_counts_once(self) -> None:
        """A round is closed once, with one reply of each whom it folds, and these replies stay what they were."""
        self.told("R1")
        for run in self.shown():
            orders, cursors = {o.id: o for o in run.orders}, [r.cursor for r in run.rounds]
            assert cursors == sorted(set(cursors))
            for r in run.rounds:
                folds = self.world.witness.folds[r.run, r.cursor]
                assert sorted(r.folded) == sorted(folds)
                for client, (order, reply) in folds.items():
                    o = orders[order]
                    assert (o.client, o.cursor, o.status, root(o.reply)) == (client, r.cursor, OrderStatus.ANSWERED, reply)

    @invariant()
    def r1_a_site_works_once_at_each_place(self) -> None:
        """Its memory moves on by one step for each exchange."""
        for site, run in itertools.product(self.world.sites.values(), self.world.runs):
            cursors, head = worked(site, run), site.vault.head(run)
            assert cursors == sorted(set(cursors))
            if head is not None:
                memory = head.memory[0][0]
                if memory not in self.times:
                    self.times[memory] = decode(Diary, memory, site.vault.parts(run), LAX).times
                assert self.times[memory] == sum(0 <= cursor < ROUNDS for cursor in cursors)

    @invariant()
    def r2_the_newest_holder_writes(self) -> None:
        """Tokens rise, each is one process's, and who has an older one writes nothing."""
        self.told("R2")
        for run in self.shown():
            assert [lease.token for lease in run.leases] in ([], [self.world.witness.tokens.get(run.row.id, 0)])

    @invariant()
    def r7_whatever_waits_says_for_what(self) -> None:
        """An open run says whom it awaits and until when; another has a reason; nobody is asked for a round that has closed."""
        self.told("R7")
        for run in self.shown():
            awaited = [o for o in run.orders if o.status is OrderStatus.OPEN]
            assert all(o.cursor == run.row.cursor for o in awaited)
            if run.row.status in OPEN:
                words = result_of(self.world.witness.truth, run.row.id, self.world.coordinators[0].clock.now())["waits_for"]
                names = ", ".join(sorted(o.client for o in awaited))
                assert (f"({names}); gives up in" if names else "sites have answered; waiting for a coordinator") in words
                assert 1000.0 < run.row.deadline_at < math.inf
            else:
                assert run.row.status in (Status.STALLED, Status.COMPLETED, Status.CANCELLED)  # nothing here fails a run
                assert (run.row.cause == "") == (run.row.status is Status.COMPLETED)
                assert run.row.status is Status.STALLED or not awaited

    @invariant()
    def r8_late_is_late(self) -> None:
        """Rounds close by their rules; a reply that is not folded is told to be late; who fails has a reason of his own."""
        self.told("R8")
        for run in self.shown():
            assert run.left_out() == [] and run.late()[0] == run.late()[1]
            assert {o.failure.kind for o in run.orders if o.failure and o.status is OrderStatus.FAILED} <= {"StepFailed"}

    @invariant()
    def parts_that_are_needed_are_there(self) -> None:
        """No collection takes what an open or stalled run refers to, nor what a completed one ended in."""
        for run in self.shown():
            wanted = {run.row.state_digest} - {None}
            if run.row.status in (*OPEN, Status.STALLED):
                wanted |= run.needed()
            assert {digest for digest in wanted if not self.store.has(digest)} == set()

    def teardown(self) -> None:
        """Once nothing goes wrong any more, every run comes to its end, and it is the end that it would have come to anyway."""
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.end()
        finally:
            self.world.close()
            if self.folder is not None:
                self.folder.cleanup()

    def end(self) -> None:
        """A fair ending."""
        self.world.mend()
        self.promises()
        for _ in range(3):
            self.until_all_rest()
            for run in [row.id for row in self.world.witness.runs() if row.status is Status.STALLED]:
                self.world.coordinators[0].run_service.resume(run)
        for row in self.world.witness.runs():
            assert row.status in (Status.COMPLETED, Status.CANCELLED)
            assert ending(self.world, row) == undisturbed(self.world, row, ROUNDS)

    def until_all_rest(self) -> None:
        """Everybody answers, looks and takes turns, until no run is open."""
        for _ in range(ENOUGH):
            if all(row.status not in OPEN for row in self.world.witness.runs()):
                return
            self.world.sweep()
            self.promises()
            for each in self.world.coordinators:
                each.clock.advance(5.0)
        raise AssertionError(f"R7: a run never ends: {self.world.witness.runs()}")

    def promises(self) -> None:
        """All that is promised, now."""
        self.seen = []
        self.r1_each_reply_counts_once()
        self.r1_a_site_works_once_at_each_place()
        self.r2_the_newest_holder_writes()
        self.r7_whatever_waits_says_for_what()
        self.r8_late_is_late()
        self.parts_that_are_needed_are_there()


class StoredMachine(Machine):
    """The same over SQLite, where each coordinator opens the journal and the store for itself."""

    stored = True


def lives(machine: type[Machine], at: int) -> None:
    """A few lives of fifty moves. Of so few none is a variation of another; there are more where chance is fixed, too."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(max_examples=examples(9), stateful_step_count=50, deadline=None, suppress_health_check=checks)
    luck = at if chosen.derandomize else random.getrandbits(64)
    run_state_machine_as_test(seed(luck)(machine), settings=chosen)


@pytest.mark.parametrize("at", [*range(2), *(pytest.param(at, marks=AT_NIGHT) for at in range(2, 100 if LONG else 10))])
def test_what_is_promised_holds_whatever_happens(at: int) -> None:
    """Effects once (R1), fenced writers (R2), visible waits that end (R7), k of n (R8), and no part is lost."""
    lives(Machine, at)


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("at", range(12 if LONG else 2))
def test_it_holds_over_sqlite(at: int) -> None:
    """The same promises, where what one coordinator wrote another reads from the file."""
    lives(StoredMachine, at)
