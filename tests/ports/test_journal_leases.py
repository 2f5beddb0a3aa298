"""One suite for every journal: who conducts a run, and whose writes are refused."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from journal_names import OTHER, RUN
from journal_values import advance, began, digest, files, first, push, reply, together, visible

from tideline.core.errors import Overtaken, Unreachable
from tideline.core.run import Digest, RunId
from tideline.engine.coordinator.scheduler import Leases
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Lease, Status
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.adapters import ManualClock


@pytest.fixture(autouse=True)
def begun(journal: Journal) -> None:
    """In every test two runs have begun."""
    began(journal)
    began(journal, OTHER)


def held(journal: Journal, holder: str, run: RunId = RUN) -> Lease:
    """Take a run's lease."""
    [lease] = journal.claim(journal.leases(run), holder, 15.0)
    return lease


def test_a_run_begins_with_a_lease_that_nobody_holds(journal: Journal) -> None:
    """Each has its own, and one that has ended shows none."""
    assert journal.leases() == (Lease(RUN), Lease(OTHER)) and journal.leases(OTHER) == (Lease(OTHER),)
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 9.0)
    assert journal.leases() == (Lease(OTHER),) and journal.leases(RUN) == () == journal.leases(RunId("unknown"))


def test_each_holder_has_a_higher_token(journal: Journal) -> None:
    """The token rises whoever takes it, also when the same holder takes it again."""
    assert held(journal, "one") == Lease(RUN, "one", 1, 0, 15.0)
    assert held(journal, "two") == Lease(RUN, "two", 2, 0, 15.0) and held(journal, "two").token == 3
    assert journal.leases(OTHER) == (Lease(OTHER),)


def test_a_lease_that_moved_is_not_taken(journal: Journal) -> None:
    """Who saw it before another took it, or before its holder's sign of life, gets nothing."""
    seen = journal.leases()
    first = held(journal, "one")
    assert [lease.run for lease in journal.claim(seen, "two", 15.0)] == [OTHER]
    before = journal.leases(RUN)
    assert journal.renew([first]) == (Lease(RUN, "one", 1, 1, 15.0),)
    assert journal.claim(before, "two", 15.0) == () == journal.claim((), "two", 15.0)


def test_of_many_who_take_a_lease_at_once_one_gets_it(journal: Journal) -> None:
    """However they meet, the token has risen by one."""
    for at in range(1, 6):
        seen = journal.leases(RUN)
        won = together(*(lambda i=i, seen=seen: journal.claim(seen, f"holder {i}", 15.0) for i in range(4)))
        assert sorted(map(len, won)) == [0, 0, 0, 1] and journal.leases(RUN)[0].token == at


def test_a_lease_with_an_older_token_is_neither_renewed_nor_left(journal: Journal) -> None:
    """What was held once says nothing of now."""
    old = held(journal, "one")
    new = held(journal, "two")
    assert journal.renew([old]) == ()
    journal.release([old])
    assert journal.leases(RUN) == (new,)
    journal.release([new])
    assert journal.leases(RUN) == (Lease(RUN, "", 2, 0, 15.0),)


WRITES: dict[str, Callable[[Journal, int], object]] = {
    "a closed round": lambda journal, token: journal.advance(advance(JOIN, files("m"), files("s"), token=token)),
    "the last round": lambda journal, token: journal.advance(advance(JOIN, status=Status.COMPLETED, token=token)),
    "a stall": lambda journal, token: journal.set_status(RUN, OPEN, Status.STALLED, "too few", 9.0, token),
    "a failure": lambda journal, token: journal.set_status(RUN, OPEN, Status.FAILED, "broken", 9.0, token),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_older_token_writes_nothing(journal: Journal, write: Callable[[Journal, int], object]) -> None:
    """After any pause: the writer is told who conducts the run now, and the newest token writes."""
    old, new = held(journal, "one").token, held(journal, "two").token
    before = visible(journal)
    with pytest.raises(Overtaken, match=f"{RUN} has been conducted by two since"):
        write(journal, old)
    assert visible(journal) == before and write(journal, new)


def test_an_older_token_is_refused_before_the_cursor_is_looked_at(journal: Journal) -> None:
    """A run that went on elsewhere tells its former scheduler so, and not that somebody was first."""
    old, new = held(journal, "one").token, held(journal, "two").token
    assert journal.advance(advance(JOIN, token=new))
    with pytest.raises(Overtaken):
        journal.advance(advance(JOIN, token=old))
    assert not journal.advance(advance(JOIN, token=new))


def test_a_persons_word_needs_no_lease(journal: Journal) -> None:
    """Cancelling a run that somebody conducts."""
    held(journal, "one")
    assert journal.set_status(RUN, OPEN, Status.CANCELLED, "by a person", 9.0)


def test_a_step_whose_part_is_gone_is_not_written(journal: Journal) -> None:
    """It is told which; with the part back, it is written. Asked about are the parts that were dropped, and no others."""
    dropped_once(journal, "m", "s", "old")
    before, lacking = visible(journal), digest("m")
    with pytest.raises(Unreachable, match=lacking[:12]):
        journal.advance(advance(1, files("m", "new"), files("s")), lambda part: part != lacking)
    assert visible(journal) == before
    asked: list[Digest] = []
    assert journal.advance(advance(1, files("m", "new"), files("s")), lambda part: not asked.append(part))
    assert sorted(asked) == sorted([digest("m"), digest("s")])
    assert journal.advance(advance(2, files("m"), files("new"), retain_from=1), asked.append), "they are known to be there now"
    assert len(asked) == 2


def test_a_reply_whose_part_is_gone_is_not_written(journal: Journal) -> None:
    """Though the part has a row: who pushed it may have found it there just before it was dropped."""
    dropped_once(journal, "r")
    push(journal, files("r", "new"))
    before, asked = visible(journal), list[Digest]()

    def here(part: Digest) -> bool:
        asked.append(part)
        return len(asked) > 1

    def report() -> OrderStatus | None:
        return journal.answer(first(cursor=1), reply(first(cursor=1), files("r", "new")), OrderStatus.ANSWERED, 30.0, 1, 2, here)

    assert report() is None and visible(journal) == before and report() is OrderStatus.ANSWERED
    assert asked == [digest("r")] * 2
    assert journal.advance(advance(1, files("r"), retain_from=JOIN), asked.append)  # type: ignore[arg-type]
    assert len(asked) == 2


@pytest.mark.parametrize(("seconds", "times"), [(86_399.0, 1), (86_401.0, 0)])
def test_after_a_day_a_drop_is_forgotten(journal: Journal, seconds: float, times: int) -> None:
    """Nobody holds on to a part for so long between he has looked and he refers to it."""
    dropped_once(journal, "m")
    journal.collect(seconds)
    asked: list[Digest] = []
    assert journal.advance(advance(1, files("m")), lambda part: not asked.append(part)) and len(asked) == times


def dropped_once(journal: Journal, *names: object) -> None:
    """Parts that were sent with the first round, and have been collected since."""
    journal.advance(advance(JOIN, files(*names)))
    journal.advance(advance(0, retain_from=1))
    assert set(journal.collect(0.0)) == {digest(name) for name in names}


def test_a_collection_drops_parts_while_nobody_can_refer_to_them(journal: Journal) -> None:
    """All that it forgets at once. If dropping fails, they are still known."""
    journal.advance(advance(JOIN, files("m"), files("s")))
    journal.advance(advance(0, retain_from=1))
    dropped: list[Collection[Digest]] = []
    assert set(journal.collect(0.0, dropped.append)) == {digest("m"), digest("s")}
    assert [set(some) for some in dropped] == [{digest("m"), digest("s")}]
    journal.advance(advance(1, files("n"), files("t")))
    journal.advance(advance(2, retain_from=3))

    def broken(some: Collection[Digest]) -> None:
        raise Unreachable("The disk is away")

    with pytest.raises(Unreachable, match="disk"):
        journal.collect(0.0, broken)
    assert set(journal.collect(0.0)) == {digest("n"), digest("t")}
    assert journal.collect(0.0, broken) == (), "nothing is to be dropped"


# Those who hold leases


def watcher(journal: Journal, holder: str, clock: ManualClock) -> Leases:
    """A coordinator's leases, of 15 s."""
    return Leases(journal, clock, holder, 15.0)


def test_the_first_who_looks_holds_every_run(journal: Journal) -> None:
    """A second gets nothing while the first gives signs of life, however long that lasts."""
    clock = ManualClock()
    one, two = watcher(journal, "one", clock), watcher(journal, "two", clock)
    assert one.poll() == {RUN, OTHER}
    for _ in range(20):
        assert two.poll() == frozenset() and two.take(RUN) is None
        clock.advance(one.pause)
        assert one.poll() == {RUN, OTHER}
    assert two.elsewhere and not one.elsewhere and one.take(RUN) == 1


def test_a_silent_holder_loses_its_runs(journal: Journal) -> None:
    """After its time, by the other's clock, who tells of it; its token then writes nothing, and it holds nothing from then on."""
    clock, taken = ManualClock(), list[Lease]()
    one, two = watcher(journal, "one", clock), Leases(journal, clock, "two", 15.0, taken.append)
    one.poll()
    assert two.poll() == frozenset()
    clock.advance(15.0)
    assert two.poll() == frozenset()
    clock.advance(0.1)
    assert two.poll() == {RUN, OTHER} and two.take(RUN) == 2
    assert {(lease.run, lease.holder) for lease in taken} == {(RUN, "one"), (OTHER, "one")} and len(taken) == 2
    with pytest.raises(Overtaken):
        journal.set_status(RUN, OPEN, Status.STALLED, "", 9.0, one.take(RUN))
    assert one.poll() == frozenset() and one.take(RUN) is None


def test_clocks_that_differ_take_nothing_early(journal: Journal) -> None:
    """No time stands in the journal: a clock that is a day ahead is as patient as any."""
    one, two = watcher(journal, "one", ManualClock()), watcher(journal, "two", ManualClock(86400.0))
    one.poll()
    assert two.poll() == frozenset() == two.poll()


def test_who_comes_back_under_his_name_takes_his_runs_at_once(journal: Journal) -> None:
    """A coordinator that was killed and started again need not wait for its own lease, and what it wrote before is fenced."""
    clock = ManualClock()
    before, after = watcher(journal, "one", clock), watcher(journal, "one", clock)
    before.poll()
    assert after.take(RUN) == 2 and after.poll() == {RUN, OTHER}
    with pytest.raises(Overtaken):
        journal.set_status(RUN, OPEN, Status.STALLED, "", 9.0, before.take(RUN))


def test_who_leaves_makes_room_at_once(journal: Journal) -> None:
    """Nobody waits for a coordinator that was stopped in order."""
    clock = ManualClock()
    one, two = watcher(journal, "one", clock), watcher(journal, "two", clock)
    one.poll()
    one.close()
    assert two.poll() == {RUN, OTHER}


def test_a_run_that_has_ended_is_held_by_nobody(journal: Journal) -> None:
    """And one that was overtaken is let go."""
    one = watcher(journal, "one", ManualClock())
    one.poll()
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 9.0)
    assert one.poll() == {OTHER} and one.take(RUN) is None
    one.lose(OTHER)
    held(journal, "two", OTHER)
    assert one.poll() == frozenset()
