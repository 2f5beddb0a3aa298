"""One suite for every journal: which parts it knows, whom it tells, and what it lets go."""

from __future__ import annotations

import pytest
from journal_names import ANN, BOB, OTHER, RUN
from journal_values import advance, answer, began, digest, files, order_row, push, reply

from tideline.core.run import OrderId
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import MOST_DROPPED, Journal

LATER = 1000.0


@pytest.fixture(autouse=True)
def begun(journal: Journal) -> None:
    """In every test a run has begun."""
    began(journal)


def gone(journal: Journal, before: float = 0.0) -> set[str]:
    """What collections forget, until nothing is left."""
    found: list[str] = []
    while some := journal.collect(before):
        assert len(some) <= MOST_DROPPED
        found += some
    assert len(found) == len(set(found))
    return set(found)


def every(*names: object) -> set[str]:
    """The digests of these names."""
    return {digest(name) for name in names}


def test_a_pushed_part_is_held_by_who_pushed_it(journal: Journal) -> None:
    """Another client, or the same in another run, does not hear of it."""
    push(journal, files("p"))
    assert journal.held(files("p", "q"), RUN, ANN, 16.0) == every("p")
    assert journal.held(files("p"), RUN, BOB, 16.0) == frozenset()
    assert journal.held(files("p"), OTHER, ANN, 16.0) == frozenset()
    assert journal.held((), RUN, ANN, 16.0) == frozenset()


def test_a_sent_part_is_held_by_whom_it_was_sent_to(journal: Journal) -> None:
    """Every part of a message counts, and only for its addressee."""
    journal.reissue([order_row(JOIN, ANN, files("m", "m2"), attempt=2)])
    assert journal.held(files("m2", "m", "m"), RUN, ANN, 16.0) == every("m", "m2")
    assert journal.held(files("m"), RUN, BOB, 16.0) == frozenset()


def test_an_answer_speaks_for_what_was_pushed(journal: Journal) -> None:
    """From the answer on its files are held, as long as they are referred to; what else was pushed is not."""
    push(journal, files("r", "more"))
    answer(journal, OrderId(f"{RUN}/{JOIN}/{ANN}/1"), files("r"))
    assert journal.held(files("r", "more"), RUN, ANN, 16.0) == every("r")
    assert journal.held(files("r"), RUN, BOB, 16.0) == frozenset()
    journal.advance(advance(JOIN, retain_from=0))
    assert journal.held(files("r"), RUN, ANN, 16.0) == frozenset()


@pytest.mark.parametrize("status", [OrderStatus.FAILED, OrderStatus.ANSWERED])
def test_after_a_failure_or_a_late_answer_nothing_pushed_is_held(journal: Journal, status: OrderStatus) -> None:
    """What was pushed for it is no longer the client's; what others pushed stays theirs."""
    push(journal, files("r"))
    push(journal, files("r"), BOB)
    order = OrderId(f"{RUN}/{JOIN}/{ANN}/1")
    if status is OrderStatus.ANSWERED:
        journal.advance(advance(JOIN))
    journal.answer(order, reply(order), status, 30.0, 0, 0)
    assert journal.held(files("r"), RUN, ANN, 31.0) == frozenset()
    assert journal.held(files("r"), RUN, BOB, 31.0) == every("r")


def test_a_state_is_held_by_nobody(journal: Journal) -> None:
    """What the coordinator keeps for itself is known to no client."""
    journal.advance(advance(JOIN, files("m"), files("s", "m")))
    assert journal.held(files("s", "m"), RUN, ANN, 16.0) == every("m")


def test_a_part_that_was_collected_is_held_by_nobody(journal: Journal) -> None:
    """If another client brings it back, those who knew it before do not hear of it."""
    push(journal, files("p"))
    journal.reissue([order_row(JOIN, ANN, files("m", "p"), attempt=2)])
    journal.advance(advance(JOIN, retain_from=1))
    assert gone(journal, LATER) == every("m", "p")
    push(journal, files("p", "m"), BOB)
    assert journal.held(files("p", "m"), RUN, ANN, 16.0) == frozenset()
    assert journal.held(files("p", "m"), RUN, BOB, 16.0) == every("p", "m")


def test_a_message_of_which_a_part_is_gone_may_come_again(journal: Journal) -> None:
    """One part of it is collected, the other is a state's; whoever is sent it again holds both, and the old order is readable."""
    journal.reissue([order_row(JOIN, ANN, files("m", "shared"), attempt=2)])
    journal.advance(advance(JOIN, files("n"), files("shared"), retain_from=0))
    assert gone(journal) == every("m") and journal.held(files("m", "shared"), RUN, ANN, 16.0) == frozenset()
    journal.reissue([order_row(0, BOB, files("m", "shared"), attempt=at) for at in (2, 3)])
    assert journal.held(files("m", "shared"), RUN, BOB, 16.0) == every("m", "shared")
    assert journal.held(files("m", "shared"), RUN, ANN, 16.0) == frozenset() and gone(journal, LATER) == set()
    row = journal.order(OrderId(f"{RUN}/{JOIN}/{ANN}/2"))
    assert row is not None and row.files == files("m", "shared")


def test_two_messages_with_one_root_are_told_apart(journal: Journal) -> None:
    """What a client says of sizes never changes what another order says."""
    told = ((digest("root"), 1), (digest("part"), 10**30))
    true = ((digest("root"), 500), (digest("part"), 600))
    push(journal, true)
    assert answer(journal, OrderId(f"{RUN}/{JOIN}/{ANN}/1"), told) is OrderStatus.ANSWERED
    journal.reissue([order_row(JOIN, BOB, true, attempt=2)])
    assert [o.files for o in journal.open_orders(BOB)] == [(), true]
    assert journal.orders(RUN, JOIN)[0].reply == told


def test_a_pushed_part_waits_for_its_report(journal: Journal) -> None:
    """It is collected only if it was not touched since; asking whether it is held touches it."""
    push(journal, files("p"), now=15.0)
    assert gone(journal, 15.0) == set()
    journal.held(files("p"), RUN, ANN, 20.0)
    assert gone(journal, 20.0) == set() and gone(journal, 20.5) == every("p") and gone(journal, LATER) == set()


def test_who_may_not_know_a_part_does_not_keep_it(journal: Journal) -> None:
    """Another client's question touches nothing."""
    push(journal, files("p"), now=15.0)
    journal.held(files("p"), RUN, BOB, 20.0)
    assert gone(journal, 16.0) == every("p")


def test_referred_parts_stay_and_then_go_at_once(journal: Journal) -> None:
    """While a message, a reply or a state names a part it stays however old; when none does, it goes however young."""
    push(journal, files("r"))
    answer(journal, OrderId(f"{RUN}/{JOIN}/{ANN}/1"), files("r"))
    journal.advance(advance(JOIN, files("m"), files("s")))
    assert gone(journal, LATER) == set()
    journal.advance(advance(0, files("m2"), files("s2"), retain_from=1))
    assert gone(journal) == every("r", "m", "s") and gone(journal, LATER) == set()


def test_a_part_that_is_pushed_again_waits_again(journal: Journal) -> None:
    """What lost its last reference and is pushed before it is collected may wait for the report that names it."""
    journal.reissue([order_row(JOIN, ANN, files("m", "n"), attempt=2)])
    journal.set_status(RUN, OPEN, Status.FAILED, "", 14.0)
    began(journal, OTHER)
    push(journal, files("m"), run=OTHER, now=15.0)
    assert gone(journal, 15.0) == every("n") and gone(journal, 15.5) == every("m")


def test_a_part_that_is_asked_for_waits_again(journal: Journal) -> None:
    """The answer "held" is a promise until the report has come: a pushed part that lost its last reference stays a while."""
    push(journal, files("m"))
    journal.reissue([order_row(JOIN, ANN, files("m", "n"), attempt=2)])
    journal.advance(advance(JOIN, retain_from=1))
    assert journal.held(files("m"), RUN, ANN, 20.0) == every("m") and gone(journal, 20.0) == every("n")
    assert gone(journal, 20.5) == every("m")


def test_a_part_that_two_name_stays_for_the_second(journal: Journal) -> None:
    """One reference is enough, of whichever run."""
    began(journal, OTHER)
    journal.advance(advance(JOIN, files("m"), files("both")))
    journal.advance(advance(JOIN, files("m"), files("mine", "both"), OTHER))
    journal.set_status(OTHER, OPEN, Status.CANCELLED, "", 30.0)
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 30.0)
    assert gone(journal, LATER) == every("m")
    journal.create([], [])
    assert gone(journal, LATER) == set()


def test_an_ended_run_keeps_its_last_state(journal: Journal) -> None:
    """Everything else of it goes: replies, messages, earlier states."""
    journal.advance(advance(JOIN, files("m"), files("s0")))
    push(journal, files("r"))
    answer(journal, OrderId(f"{RUN}/0/{ANN}/1"), files("r"))
    journal.advance(advance(0, state=files("s1"), status=Status.COMPLETED, state_digest=digest("s1")))
    assert gone(journal) == every("m", "r", "s0")


def test_a_run_that_ends_before_it_has_a_state_keeps_nothing(journal: Journal) -> None:
    """All that was sent goes."""
    journal.reissue([order_row(JOIN, ANN, files("m"), attempt=2)])
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 30.0)
    assert gone(journal) == every("m")


def test_messages_of_a_thousand_parts(journal: Journal) -> None:
    """No statement is too long for a large message."""
    many, other = files(*range(1200)), files(*range(1300, 2500))
    journal.advance(advance(JOIN, many, other))
    push(journal, other)
    assert journal.held(many, RUN, ANN, 16.0) == {d for d, _ in many}
    assert answer(journal, OrderId(f"{RUN}/0/{ANN}/1"), many + other) is OrderStatus.ANSWERED
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 30.0)
    assert gone(journal, LATER) == {d for d, _ in many}


def test_the_first_marker_stands(journal: Journal) -> None:
    """None is there at first; a later one changes nothing, and the one that stands is told."""
    assert journal.marker() is None and journal.marker(digest("ours")) == digest("ours") == journal.marker()
    assert journal.marker(digest("theirs")) == digest("ours") == journal.marker()


def test_what_nobody_noted_is_adopted_once(journal: Journal) -> None:
    """With the time at which it was written; what is known stays as it is, and what is needed is never collected."""
    push(journal, files("p"), now=15.0)
    journal.advance(advance(JOIN, files("m")))
    found = {digest("p"): 1.0, digest("m"): 1.0, digest("old"): 2.0, digest("new"): 40.0}
    assert journal.adopt(found) == 2 and journal.adopt(found) == 0 == journal.adopt({})
    assert gone(journal, before=10.0) == every("old") and gone(journal, before=20.0) == every("p")
    assert gone(journal, before=LATER) == every("new")
    assert journal.held(files("m"), RUN, ANN, 50.0) == every("m")
