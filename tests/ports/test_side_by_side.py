"""Writers of several processes side by side in Postgres: what they share is never lost, and no run waits for another."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from functools import partial

import psycopg
import pytest
from journal_names import ANN, BOB
from journal_values import advance, answer, client, digest, files, invite, joins, push, reply, run_row, together

from tests.postgres import needed, run, with_options
from tideline.core.errors import Unreachable
from tideline.core.run import Digest, OrderId, RunId
from tideline.engine.model.orders import Files, OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline_server.store import SqlJournal

RUNS = tuple(RunId(f"run-{letter}") for letter in "abcd")
ROUNDS = 20
WAITING_NO_MORE = "SELECT digest FROM parts WHERE once_referred OR touched < 1e8"
REFERRED = "SELECT DISTINCT digest FROM members JOIN refs USING (listing)"


@pytest.fixture
def journals(address: str) -> Iterator[tuple[SqlJournal, SqlJournal]]:
    """The journals of two coordinators on one database."""
    needed()
    with closing(SqlJournal(address)) as one, closing(SqlJournal(address)) as two:
        one.create([run_row(each) for each in RUNS], [order for each in RUNS for order in joins(each)])
        yield one, two


class SiteData:
    """The bytes of parts, which both coordinators see."""

    def __init__(self) -> None:
        self.there: set[Digest] = set()

    def put(self, digests: Iterator[Digest] | frozenset[Digest]) -> None:
        """Keep what is not kept yet, as a worker does."""
        self.there.update(digest for digest in digests if digest not in self.there)

    def collect(self, journal: SqlJournal) -> tuple[Digest, ...]:
        """Let a journal take what nobody needs; what a try took that failed comes back."""
        taken: set[Digest] = set()

        def drop(digests: Collection[Digest]) -> None:
            self.there.update(taken)
            taken.clear()
            taken.update(digests)
            self.there.difference_update(digests)

        gone: tuple[Digest, ...] = ()
        with suppress(Unreachable):
            gone = journal.collect(1e8, drop)
        self.there.update(taken - set(gone))
        return gone


def insist(write: Callable[[], object], before: Callable[[], object]) -> None:
    """Write until it is written, each time from the beginning."""
    while True:
        before()
        try:
            assert write()
            return
        except Unreachable:
            continue


def live_a_run(journal: SqlJournal, other: SqlJournal, site_data: SiteData, name: RunId) -> None:
    """Close rounds whose few parts come back again and again, and answer orders; now and then `other` collects in between."""
    dice = random.Random(name)

    def lay(parts: frozenset[Digest]) -> None:
        site_data.put(parts)
        if dice.random() < 0.5:
            site_data.collect(other)

    for cursor in range(JOIN, ROUNDS):
        step = advance(cursor, files(dice.randrange(20)), files(dice.randrange(20), dice.randrange(20)), name, retain_from=cursor)
        insist(lambda step=step: journal.advance(step, site_data.there.__contains__), lambda step=step: lay(step.digests))
        assert step.digests <= site_data.there
        sent = files(dice.randrange(20))
        order = OrderId(f"{name}/{cursor + 1}/{ANN}/1")

        def keep(sent: object = sent) -> None:
            lay(frozenset(part for part, _ in sent))  # type: ignore[attr-defined]
            push(journal, sent, run=name, now=1e9)  # type: ignore[arg-type]

        def report(order: OrderId = order, sent: Files = sent) -> OrderStatus:
            """As the agent service does: a part that was dropped lately is looked for, and sent again if it is gone."""
            here = site_data.there.__contains__
            done = journal.answer(order, reply(order, sent), OrderStatus.ANSWERED, 30.0, 11, 12, here)
            if done is None:
                raise Unreachable("A part was collected before the report came")
            return done

        insist(report, keep)


@pytest.mark.nightly(job="services")
def test_no_part_is_collected_that_somebody_refers_to(journals: tuple[SqlJournal, SqlJournal], address: str) -> None:
    """Four runs write and forget the same few parts on two coordinators, and both collect all the time."""
    site_data, over = SiteData(), threading.Event()
    taken: list[Digest] = []

    def collect(journal: SqlJournal) -> None:
        while not over.is_set():
            taken.extend(site_data.collect(journal))

    collectors = [threading.Thread(target=collect, args=(journal,)) for journal in journals]
    for thread in collectors:
        thread.start()
    try:
        together(
            *(lambda i=i, r=name: live_a_run(journals[i % 2], journals[1 - i % 2], site_data, r) for i, name in enumerate(RUNS))
        )
    finally:
        over.set()
        for thread in collectors:
            thread.join()
    referred = {Digest(str(row[0])) for row in run(address, REFERRED)}
    assert referred <= site_data.there
    assert len(taken) > ROUNDS, "the collectors had something to do"
    site_data.collect(journals[0])
    assert {Digest(str(row[0])) for row in run(address, WAITING_NO_MORE)} == referred, "nothing is left lying"
    assert run(address, "SELECT count(*) FROM loose") == [(0,)]
    assert [len(journals[0].rounds(name)) for name in RUNS] == [ROUNDS + 1] * len(RUNS)


def test_the_same_listing_is_written_once(journals: tuple[SqlJournal, SqlJournal], address: str) -> None:
    """Runs that send the same files at the same moment, new and forgotten ones, share a listing."""
    for turn in range(8):
        sent = files("shared", turn // 2)
        steps = [advance(JOIN + turn, sent, (), name, retain_from=JOIN + turn + 1) for name in RUNS]
        assert together(*(lambda j=journals[i % 2], s=s: j.advance(s) for i, s in enumerate(steps))) == [True] * len(RUNS)
        assert all(journals[0].orders(name, JOIN + turn + 1)[0].files == sent for name in RUNS)
        names = run(address, "SELECT count(*), count(DISTINCT name) FROM listings")
        assert names[0][0] == names[0][1] == 1 + turn // 2
        assert not journals[0].collect(1e8) or turn % 2 == 0


def test_of_two_agents_with_one_name_one_is_enrolled(journals: tuple[SqlJournal, SqlJournal]) -> None:
    """With tokens of their own, at two coordinators at once; the other's token stays unused."""
    for turn in range(10):
        for token in ("x", "y"):
            journals[0].add_invite(invite(f"{token}{turn}"))
        calls = zip(journals, (f"x{turn}", f"y{turn}"), strict=True)
        won = together(*(partial(journal.enrol, token, client(f"ann-{turn}")) for journal, token in calls))
        assert sorted(won, key=bool) == [False, True]
        used = [journals[0].invite(f"{token}{turn}").used_by for token in ("x", "y")]  # type: ignore[union-attr]
        assert sorted(used) == ["", f"ann-{turn}"]


def test_of_two_agents_with_one_token_one_is_enrolled(journals: tuple[SqlJournal, SqlJournal]) -> None:
    """The one who comes second is refused and is not there."""
    for turn in range(10):
        journals[0].add_invite(invite(f"z{turn}"))
        calls = zip(journals, (f"ann-{turn}", f"bob-{turn}"), strict=True)
        won = together(*(partial(journal.enrol, f"z{turn}", client(name)) for journal, name in calls))
        assert sorted(won, key=bool) == [False, True]
    assert len(journals[1].clients()) == 10


def test_a_frozen_write_holds_up_its_own_run_only(journals: tuple[SqlJournal, SqlJournal], address: str) -> None:
    """Whatever one run's transaction has locked, another run begins, goes on, is answered and ends, and parts are collected."""
    one, two = journals
    with psycopg.connect(address) as frozen:
        frozen.execute("SELECT * FROM runs JOIN leases ON run = id WHERE id = 'run-a' FOR UPDATE")
        assert [lease.run for lease in two.claim(two.leases(), "two", 15.0)] == list(RUNS[1:])
        assert two.advance(advance(JOIN, files("m"), files("s"), RUNS[1]))
        assert answer(two, OrderId(f"{RUNS[1]}/0/{BOB}/1")) is not None
        assert two.set_status(RUNS[2], OPEN, Status.CANCELLED, "by a person", 9.0)
        two.create([run_row(RunId("run-e"))], joins(RunId("run-e")))
        two.saw(ANN, 5.0)
        two.collect(0.0)
        assert set(two.run_ids()) >= {RUNS[0], RunId("run-e")}
        frozen.rollback()
    assert one.advance(advance(JOIN)) and digest("m") in two.held(files("m"), RUNS[1], ANN, 1.0)


def in_a_write(
    journals: tuple[SqlJournal, SqlJournal], meanwhile: Callable[[SqlJournal], object], token: int | None = None
) -> list[object]:
    """What comes of something that another coordinator does while the first is within a write of run A."""
    one, two = journals
    one.advance(advance(JOIN, files("dropped"), run=RUNS[0], token=token))
    one.advance(advance(0, run=RUNS[0], retain_from=1, token=token))
    assert two.collect(0.0) == (digest("dropped"),)
    found: list[object] = []
    assert one.advance(advance(1, files("dropped"), run=RUNS[0], token=token), lambda part: not found.append(meanwhile(two)))
    return found


def test_nobody_takes_a_lease_between_a_write_and_its_commit(journals: tuple[SqlJournal, SqlJournal]) -> None:
    """The token that was the newest when the write began is so when it ends."""
    one, two = journals
    (lease,) = one.claim(one.leases(RUNS[0]), "one", 15.0)
    assert in_a_write(journals, lambda other: other.claim(other.leases(RUNS[0]), "two", 15.0), lease.token) == [()]
    assert two.leases(RUNS[0]) == (lease,)
    assert [taken.token for taken in two.claim((lease,), "two", 15.0)] == [lease.token + 1]


def test_a_sign_of_life_waits_for_no_write(journals: tuple[SqlJournal, SqlJournal], address: str) -> None:
    """The run that is being written lives without one; the others get theirs."""
    held = journals[0].claim(journals[0].leases(), "one", 15.0)
    with closing(SqlJournal(with_options(address, "-c lock_timeout=3s"))) as impatient:
        (kept,) = in_a_write((journals[0], impatient), lambda other: other.renew(held), held[0].token)
    assert [(lease.run, lease.token, lease.beats) for lease in kept] == [  # type: ignore[attr-defined]
        (name, 1, 0 if name == RUNS[0] else 1) for name in RUNS
    ]
    assert [lease.beats for lease in journals[1].renew(held)] == [1, 2, 2, 2]


def test_a_lease_that_is_being_taken_is_missed_at_the_next_look(journals: tuple[SqlJournal, SqlJournal], address: str) -> None:
    """Nobody is waited for who may not even commit."""
    one, _ = journals
    held = one.claim(one.leases(), "one", 15.0)
    with psycopg.connect(address) as other:
        other.execute("UPDATE leases SET token = token + 1, holder = 'two' WHERE run = 'run-b'")
        assert [lease.run for lease in one.renew(held)] == list(RUNS)
        other.commit()
    assert [lease.run for lease in one.renew(held)] == [name for name in RUNS if name != RUNS[1]]
