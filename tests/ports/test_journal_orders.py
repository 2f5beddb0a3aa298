"""One suite for every journal: orders, replies, and which of two answers counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from journal_names import ANN, BOB, CYD, OTHER, RUN
from journal_values import advance, answer, began, digest, files, first, joins, order_row, push, reply, together, visible

from tideline.core.run import OrderId
from tideline.engine.model.orders import Failure, Hold, OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal


@pytest.fixture(autouse=True)
def begun(journal: Journal) -> None:
    """In every test a run has begun."""
    began(journal)


def test_orders_are_sorted(journal: Journal) -> None:
    """By cursor, client and attempt; open ones of a client by age and id."""
    journal.advance(advance(JOIN))
    journal.reissue([order_row(0, BOB, attempt=2, created=3.0), order_row(0, ANN, attempt=2, created=90.0)])
    placed = [(o.cursor, o.client, o.attempt) for o in journal.orders(RUN)]
    assert placed == sorted(placed) and len(placed) == 8
    assert [(o.cursor, o.attempt) for o in journal.open_orders(BOB)] == [(0, 2), (0, 1)]
    assert [o.attempt for o in journal.open_orders(ANN)] == [1, 2] and journal.order(first(CYD)) is not None
    assert journal.order(OrderId("unknown")) is None


def test_an_answer_is_written_whole(journal: Journal) -> None:
    """The reply's files, metrics, facts and bytes are in the order's row, and an event tells of it."""
    journal.advance(advance(JOIN, files("m")))
    push(journal, files("r", "r2"))
    order = first(ANN, 0)
    given = reply(order, files("r", "r2"), facts={"labelled": True})
    assert journal.answer(order, given, OrderStatus.ANSWERED, 30.0, 11, 12) is OrderStatus.ANSWERED
    done = {"reply": files("r", "r2"), "metrics": {"loss": 0.25, "rows": 3}, "facts": {"labelled": True}, "answered": 30.0}
    wanted = replace(order_row(0, ANN, files("m"), created=19.0), **done, status=OrderStatus.ANSWERED, progress=1.0)
    assert journal.order(order) == replace(wanted, bytes_down=11, bytes_up=12)
    told = journal.events(RUN)[-1]
    assert (told.kind, dict(told.data)) == ("answered", {"client": ANN, "cursor": 0, "metrics": {"loss": 0.25, "rows": 3}})


def test_a_failure_is_an_answer(journal: Journal) -> None:
    """It settles the order with its reason; what comes later is stale."""
    failure = Failure("StepFailed", "the step raised ValueError")
    given = reply(first(), failure=failure, metrics={})
    assert journal.answer(first(), given, OrderStatus.FAILED, 30.0, 0, 0) is OrderStatus.FAILED
    row = journal.order(first())
    assert row is not None and (row.status, row.failure) == (OrderStatus.FAILED, failure)
    told = journal.events(RUN)[-1]
    assert (told.kind, told.data["what"]) == ("failed", failure.what)
    assert answer(journal, first()) is OrderStatus.CANCELLED


def test_the_first_answer_counts(journal: Journal) -> None:
    """A second one is stale and changes nothing, also where the first came at time zero."""
    assert answer(journal, first(), now=0.0) is OrderStatus.ANSWERED
    before = visible(journal)
    assert answer(journal, first(), now=31.0) is OrderStatus.CANCELLED and visible(journal) == before


def test_an_answer_to_a_cancelled_order_is_stale(journal: Journal) -> None:
    """Nothing is written."""
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 5.0)
    before = visible(journal)
    assert answer(journal, first()) is OrderStatus.CANCELLED and visible(journal) == before


def test_a_late_answer_is_recorded_and_not_kept(journal: Journal) -> None:
    """The order stays expired with its reply in the row, the event says late, and the reply's parts are soon collected."""
    journal.advance(advance(JOIN))
    push(journal, files("late"))
    assert answer(journal, first(), files("late")) is OrderStatus.EXPIRED
    row = journal.order(first())
    assert row is not None and (row.status, row.reply, row.answered) == (OrderStatus.EXPIRED, files("late"), 30.0)
    assert journal.events(RUN)[-1].kind == "late"
    assert answer(journal, first(), files("late")) is OrderStatus.CANCELLED and journal.collect(15.0) == ()
    assert journal.collect(16.0) == (digest("late"),)


def test_an_answer_that_the_closed_round_does_not_fold_is_late(journal: Journal) -> None:
    """It came while the round was folded without it. Those that were folded stay answered."""
    for who in (ANN, CYD):
        push(journal, files(who), who)
        assert answer(journal, first(who), files(who)) is OrderStatus.ANSWERED
    assert journal.advance(advance(JOIN))
    assert [o.status for o in journal.orders(RUN, JOIN)] == [OrderStatus.ANSWERED, OrderStatus.EXPIRED, OrderStatus.EXPIRED]
    row = journal.order(first(CYD))
    assert row is not None and (row.reply, row.answered) == (files(CYD), 30.0)
    told = journal.events(RUN)[-2]
    assert (told.kind, dict(told.data)) == ("late", {"client": CYD, "cursor": JOIN, "metrics": {"loss": 0.25, "rows": 3}})
    assert journal.last_answers(RUN, [CYD])[CYD] == JOIN and journal.collect(0.0) == (digest(CYD),)


def test_an_answer_whose_parts_are_gone_is_not_taken(journal: Journal) -> None:
    """Nothing is written; with its parts the same answer is taken."""
    push(journal, files("r"))
    before = visible(journal)
    assert answer(journal, first(), files("r", "lost")) is None and visible(journal) == before
    push(journal, files("r", "lost"))
    assert answer(journal, first(), files("r", "lost")) is OrderStatus.ANSWERED


def test_one_of_two_answers_at_once_wins(journal: Journal) -> None:
    """Of two answers to one order at the same moment exactly one is recorded."""
    for cursor in range(JOIN, 8):
        order = first(ANN, cursor)
        won = together(partial(answer, journal, order, now=40.0), partial(answer, journal, order, now=50.0))
        assert sorted(map(str, won)) == ["answered", "cancelled"]
        row = journal.order(order)
        assert row is not None and row.answered == (40.0 if won[0] is OrderStatus.ANSWERED else 50.0)
        assert [e.kind for e in journal.events(RUN)].count("answered") == cursor + 2
        journal.advance(advance(cursor))


def test_the_last_answer_counts_late_ones_and_not_failures(journal: Journal) -> None:
    """Work that was done counts, also at time zero; a failure does not; nobody's answer is before the join."""
    assert journal.last_answers(RUN, [ANN])[ANN] == JOIN - 1
    answer(journal, first(ANN), now=0.0)
    assert journal.last_answers(RUN, [ANN])[ANN] == JOIN
    journal.advance(advance(JOIN))
    journal.advance(advance(0))
    answer(journal, first(ANN, 0))
    assert journal.last_answers(RUN, [ANN])[ANN] == 0
    order = first(ANN, 1)
    journal.answer(order, reply(order, failure=Failure("StepFailed", "no")), OrderStatus.FAILED, 30.0, 0, 0)
    assert journal.last_answers(RUN, [ANN])[ANN] == 0 and journal.last_answers(OTHER, [ANN])[ANN] == JOIN - 1


def test_reissued_orders_are_offered_beside_the_old(journal: Journal) -> None:
    """A new attempt is open; its message is known to the client again."""
    journal.reissue([order_row(JOIN, ANN, files("m"), attempt=2)])
    assert [o.attempt for o in journal.orders(RUN, JOIN) if o.client == ANN] == [1, 2]
    assert journal.held(files("m"), RUN, ANN, 5.0) == {digest("m")}


def test_reissuing_never_undoes_an_answer(journal: Journal) -> None:
    """An order whose name is known stays as it is, answered or not."""
    answer(journal, first(ANN))
    before = visible(journal)
    journal.reissue(joins())
    assert visible(journal) == before


def test_nothing_is_reissued_in_a_run_that_has_ended(journal: Journal) -> None:
    """Else somebody would work for a run that is over."""
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 5.0)
    before = visible(journal)
    journal.reissue([order_row(JOIN, ANN, attempt=2)])
    assert visible(journal) == before


def test_a_beat_notes_progress_and_names_what_is_over(journal: Journal) -> None:
    """Unknown, settled and other clients' orders are given back, in the order asked; open ones are noted."""
    answer(journal, first(BOB))
    unknown = OrderId("unknown")
    assert journal.beat(BOB, {first(BOB): 0.5, unknown: 0.5, first(ANN): 0.5}, 8.0) == (first(BOB), unknown, first(ANN))
    assert journal.beat(ANN, {first(ANN): 0.5}, 8.0) == ()
    assert journal.order(first(ANN)) == replace(order_row(JOIN, ANN), progress=0.5, beat=8.0)
    assert journal.beat(ANN, {}, 9.0) == ()


def test_a_site_says_why_an_order_waits(journal: Journal) -> None:
    """Of its own open orders alone; its next progress says that it waits no longer, and an answer is one as any."""
    answer(journal, first(BOB))
    held = {first(ANN): Hold.APPROVAL, first(BOB): Hold.HOURS, OrderId("unknown"): Hold.QUOTA}
    assert journal.hold(ANN, held, 8.0) == (first(BOB), OrderId("unknown"))
    assert journal.order(first(ANN)) == replace(order_row(JOIN, ANN), held="approval", beat=8.0)
    assert {line.client: line.held for line in journal.order_lines(RUN, JOIN)}[ANN] == "approval"
    assert journal.hold(ANN, {first(ANN): Hold.QUOTA}, 9.0) == () and journal.hold(ANN, {}, 9.0) == ()
    assert journal.order(first(ANN)).held == "quota"  # type: ignore[union-attr]
    journal.beat(ANN, {first(ANN): 0.5}, 10.0)
    assert journal.order(first(ANN)) == replace(order_row(JOIN, ANN), progress=0.5, beat=10.0)


def test_beats_of_many_clients_are_noted_together(journal: Journal) -> None:
    """Each gets what it should give up; another's order is not noted for it, and those who have nothing are not named."""
    answer(journal, first(BOB))
    told = {ANN: {first(ANN): 0.25}, BOB: {first(BOB): 0.5, first(CYD): 0.75}, CYD: {}}
    assert journal.beat_all(told, 8.0) == {BOB: (first(BOB), first(CYD))}
    assert journal.order(first(ANN)) == replace(order_row(JOIN, ANN), progress=0.25, beat=8.0)
    assert journal.order(first(CYD)) == order_row(JOIN, CYD) and journal.beat_all({}, 9.0) == {}
