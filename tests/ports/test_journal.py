"""One suite for every journal: runs, their rounds and their events, and who wins a race."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from journal_names import ANN, BOB, OTHER, RUN
from journal_values import advance, answer, began, digest, files, first, joins, order_row, run_row, together, visible

from tests.engine.present import present
from tideline.core.errors import ConfigRefused
from tideline.core.run import ClientId, Digest, Member, Role, RunId
from tideline.engine.audit.log import About
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.experiment import UPLOADER, initial_weights_of
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Headline, RunRow, Sought, Status
from tideline.engine.ports.journal import Journal


def test_a_run_comes_back_as_it_was_written(journal: Journal) -> None:
    """Every field of the run and of its orders survives, and the event says that it was created."""
    began(journal)
    assert journal.run(RUN) == run_row() and journal.orders(RUN) == tuple(joins())
    assert [(e.seq, e.kind, dict(e.data), e.at) for e in journal.events(RUN)] == [(1, "created", {"method": "fedavg"}, 1.5)]
    assert journal.rounds(RUN) == () and journal.run(OTHER) is None


def test_runs_are_listed_by_age(journal: Journal) -> None:
    """The oldest first; of two of one age, by id."""
    ages = {"z": 1.0, "c": 2.0, "b": 2.0, "a": 3.0}
    journal.create([run_row(RunId(name), created=age) for name, age in ages.items()], [])
    assert list(journal.run_ids()) == ["z", "b", "c", "a"]
    assert [line.id for line in journal.headlines()] == ["z", "b", "c", "a"]


def test_a_list_of_runs_has_pages(journal: Journal) -> None:
    """At most so many; those that follow a run, of its age too; after the last none, as after one that is not there."""
    ages = {"z": 1.0, "c": 2.0, "b": 2.0, "a": 3.0}
    journal.create([run_row(RunId(name), created=age) for name, age in ages.items()], [])

    def page(limit: int | None, after: str | None) -> str:
        return "".join(line.id for line in journal.headlines(limit, None if after is None else RunId(after)))

    assert [page(2, None), page(2, "b"), page(2, "a")] == ["zb", "ca", ""]
    assert [page(3, "z"), page(None, "z"), page(None, "c"), page(1, "b")] == ["bca", "bca", "a", "c"]
    assert [page(0, None), page(9, None), page(9, "nobody")] == ["", "zbca", ""]


def test_a_list_of_runs_is_searched(journal: Journal) -> None:
    """By status, by words in whatever letters, and without those that belong to others; from either end, page by page."""
    ages = {"z": 1.0, "c": 2.0, "b": 2.0, "a": 3.0}
    rows = [run_row(RunId(name), created=age, name=f"100%_{name.upper()}") for name, age in ages.items()]
    journal.create([*rows, run_row(RunId("kid"), created=4.0, parent=RunId("a"))], [])
    journal.set_status(RunId("b"), OPEN, Status.CANCELLED, "", 9.0)

    def found(limit: int | None = None, after: str | None = None, **sought: Any) -> str:
        asked = Sought(**sought)
        lines = journal.headlines(limit, None if after is None else RunId(after), sought=asked)
        assert limit is not None or after is not None or journal.count_runs(sought=asked) == len(lines)
        return " ".join(line.id for line in lines)

    assert [found(newest=True), found(2, newest=True), found(2, "a", newest=True)] == ["kid a c b z", "kid a", "c b"]
    assert [found(None, "z", newest=True), found(None, "nobody", newest=True)] == ["", ""]
    assert [found(statuses={Status.CANCELLED}), found(tops=True), found(tops=True, newest=True)] == ["b", "z b c a", "a c b z"]
    for words, names in (("_c", "c"), ("FEDAVG", "z b c a kid"), ("0%_", "z b c a"), ("%z", "")):
        assert found(words=words) == names
    assert found(2, "z", words="100", statuses={Status.WAITING}) == "c a"
    assert journal.count_runs("elsewhere") == 0 and journal.headlines(scope="elsewhere", sought=Sought(newest=True)) == ()


def test_the_last_event_is_known_by_its_number(journal: Journal) -> None:
    """In all, and before a time; 0 where there is none."""
    began(journal)
    for at in (2.0, 3.0, 4.0):
        journal.event(RUN, "note", {}, at)
    assert [journal.last_event(RUN), journal.last_event(RUN, 3.0), journal.last_event(RUN, 1.0)] == [4, 2, 0]
    assert journal.last_event(OTHER) == 0


def test_a_headline_says_how_far_a_run_is(journal: Journal) -> None:
    """All that a row says, but for the plan its length: of a new run, of one that goes on, and of one that has ended."""
    journal.create([run_row(), run_row(OTHER, created=2.5, parent=RUN, plan=())], joins())
    journal.advance(advance(JOIN))
    journal.set_status(OTHER, OPEN, Status.CANCELLED, "by a person", 9.0)
    row = journal.run(RUN)
    assert row is not None and (row.cursor, row.status) == (0, Status.RUNNING)
    told = Headline(RUN, f"name of {RUN}", "fedavg", Status.RUNNING, "", 0, 6, 1.5, None, None)
    ended = Headline(OTHER, f"name of {OTHER}", "fedavg", Status.CANCELLED, "by a person", -1, 0, 2.5, 9.0, RUN)
    assert journal.headlines() == (told, ended)
    assert all(type(line.status) is Status for line in journal.headlines())


def test_settling_needs_one_of_the_named_statuses(journal: Journal) -> None:
    """A run in another status is left alone, without an event."""
    began(journal)
    before = visible(journal)
    assert not journal.set_status(RUN, (Status.STALLED,), Status.RUNNING, "resumed", 9.0)
    assert visible(journal) == before


def test_a_stalled_run_keeps_its_open_orders(journal: Journal) -> None:
    """Stalling and going on change status, cause and deadline, and say so; new attempts are offered, known ones left alone."""
    began(journal)
    assert journal.set_status(RUN, OPEN, Status.STALLED, "too few", 9.0)
    assert journal.run(RUN) == run_row(status=Status.STALLED, cause="too few")
    again = order_row(JOIN, BOB, files("m"), attempt=2)
    assert journal.reopen(RUN, Status.WAITING, "resumed", 10.0, 70.0, [again, order_row(JOIN, ANN, files("other"))])
    assert journal.run(RUN) == run_row(cause="resumed", deadline_at=70.0)
    assert [e.kind for e in journal.events(RUN)] == ["created", "stalled", "waiting"]
    assert journal.open_orders(ANN) == (order_row(JOIN, ANN),)
    assert journal.open_orders(BOB) == (order_row(JOIN, BOB), again)
    assert journal.held(files("m"), RUN, BOB, 11.0) == {digest("m")}


def test_a_run_is_reopened_with_fewer_replies(journal: Journal) -> None:
    """The number stays until another is given; the event and the log's entry have it."""
    began(journal)
    for number, quorum in ((2, 2), (2, None), (1, 1)):
        assert journal.set_status(RUN, OPEN, Status.STALLED, "too few", 9.0)
        assert journal.reopen(RUN, Status.WAITING, "resumed", 10.0, 70.0, [], "ann", quorum)
        row = journal.run(RUN)
        assert row is not None and row.quorum == number
    assert [e.data.get("min_replies") for e in journal.events(RUN) if e.kind == "waiting"] == [2, None, 1]
    assert [e.details["min_replies"] for e in journal.audit() if e.kind == "run_resumed"] == [2, 2, 1]


@pytest.mark.parametrize("status", [Status.RUNNING, Status.CANCELLED])
def test_only_a_stalled_run_is_reopened(journal: Journal, status: Status) -> None:
    """Another has gone on or ended meanwhile: nothing is written, no order either."""
    began(journal)
    journal.set_status(RUN, OPEN, status, "", 9.0)
    before = visible(journal)
    assert not journal.reopen(RUN, Status.WAITING, "resumed", 10.0, 70.0, [order_row(JOIN, BOB, attempt=2)])
    assert visible(journal) == before


@pytest.mark.smoke
def test_of_a_cancel_and_a_resume_at_once_both_are_whole(journal: Journal) -> None:
    """Whichever comes first, a cancelled run has no open order."""
    began(journal)
    journal.set_status(RUN, OPEN, Status.STALLED, "", 9.0)
    again = order_row(JOIN, BOB, attempt=2)
    cancel = partial(journal.set_status, RUN, (*OPEN, Status.STALLED), Status.CANCELLED, "", 10.0)
    assert together(cancel, partial(journal.reopen, RUN, Status.WAITING, "", 10.0, 70.0, [again]))[0]
    run = journal.run(RUN)
    assert run is not None and run.status is Status.CANCELLED and journal.open_orders(BOB) == ()


def test_a_final_status_cancels_what_is_open(journal: Journal) -> None:
    """The run has an end, its open orders are cancelled, what was answered stays, other runs go on."""
    began(journal)
    began(journal, OTHER)
    answer(journal, first(ANN))
    assert journal.set_status(RUN, OPEN, Status.CANCELLED, "by a person", 40.0)
    assert journal.run(RUN) == run_row(status=Status.CANCELLED, cause="by a person", ended=40.0)
    assert [o.status for o in journal.orders(RUN)] == [OrderStatus.ANSWERED, OrderStatus.CANCELLED, OrderStatus.CANCELLED]
    assert len(journal.open_orders(BOB)) == 1
    assert not journal.set_status(RUN, OPEN, Status.FAILED, "again", 41.0)


def test_an_unknown_run_or_order_is_a_key_error(journal: Journal) -> None:
    """Whoever changes what is not there has a fault of its own."""
    with pytest.raises(KeyError):
        journal.set_status(RUN, OPEN, Status.FAILED, "", 1.0)
    with pytest.raises(KeyError):
        journal.advance(advance(JOIN))
    with pytest.raises(KeyError):
        answer(journal, first())


# Rounds


@pytest.mark.smoke
def test_a_closed_round_is_written_whole(journal: Journal) -> None:
    """The round, the run's new place, the next orders and the event are there; who had not answered is expired."""
    began(journal)
    answer(journal, first(ANN))
    members = (Member(ANN, Role.PEER, labelled=True),)
    step = advance(JOIN, files("m"), files("s"), members=members, fingerprint="cpu")
    assert journal.advance(step)
    assert journal.rounds(RUN) == (step.closed,) and step.closed.groups and step.closed.tables
    changes = {"status": Status.RUNNING, "cursor": 0, "deadline_at": 79.0, "opened": 19.0, "started": 19.0}
    assert journal.run(RUN) == run_row(members=members, fingerprint="cpu", **changes)
    assert journal.orders(RUN, 0) == step.orders
    assert [o.status for o in journal.orders(RUN, JOIN)] == [OrderStatus.ANSWERED, OrderStatus.EXPIRED, OrderStatus.EXPIRED]
    told = journal.events(RUN)[-1]
    assert (told.kind, told.at) == ("closed", 19.0)
    counted = {"phase": "train", "round": 1, "seconds": 1.0, "replies": 2, "cursor": 0, "asked": 3}
    assert dict(told.data) == counted | {"marks": {"chosen": [ANN], "left out": [BOB]}}


def test_a_round_is_closed_once(journal: Journal) -> None:
    """A second advance from the same cursor changes nothing."""
    began(journal)
    assert journal.advance(advance(JOIN))
    before = visible(journal)
    assert not journal.advance(advance(JOIN, now=99.0)) and visible(journal) == before


@pytest.mark.parametrize("status", [Status.STALLED, Status.CANCELLED, Status.FAILED])
def test_a_run_that_is_not_open_does_not_advance(journal: Journal, status: Status) -> None:
    """Stalled and ended runs stay where they are."""
    began(journal)
    journal.set_status(RUN, OPEN, status, "", 5.0)
    before = visible(journal)
    assert not journal.advance(advance(JOIN)) and visible(journal) == before


@pytest.mark.smoke
def test_one_of_two_advances_at_once_wins(journal: Journal) -> None:
    """Of two schedulers that close the same round at the same moment, exactly one writes it."""
    began(journal)
    for cursor in range(JOIN, 8):
        mine, yours = advance(cursor, now=50.0), advance(cursor, now=60.0)
        won = together(partial(journal.advance, mine), partial(journal.advance, yours))
        assert sorted(won, key=bool) == [False, True]
        assert journal.rounds(RUN)[-1] == (mine if won[0] else yours).closed
        assert len(journal.rounds(RUN)) == cursor + 2


def test_the_last_round_ends_the_run(journal: Journal) -> None:
    """A final advance sets digest and end, cancels what is open, and tells of both the round and the end."""
    began(journal)
    journal.advance(advance(JOIN, files("m"), files("s")))
    step = advance(0, state=files("t"), status=Status.COMPLETED, state_digest=digest("t"), now=33.0)
    assert journal.advance(step)
    run = present(journal.run(RUN))
    assert (run.status, run.ended, run.state_digest, run.cause) == (Status.COMPLETED, 33.0, digest("t"), "")
    assert [e.kind for e in journal.events(RUN)[-2:]] == ["closed", "completed"]
    assert journal.open_orders(ANN) == ()


def test_rounds_come_in_order_however_often_they_are_asked_for(journal: Journal) -> None:
    """A look between two rounds does not hide the second."""
    began(journal)
    for cursor in range(JOIN, 4):
        journal.advance(advance(cursor, state=files(cursor) if cursor % 2 else ()))
        assert [r.cursor for r in journal.rounds(RUN)] == list(range(JOIN, cursor + 1))
        assert journal.rounds(RUN)[-1].state == (files(cursor) if cursor % 2 else ())


def test_events_are_numbered_within_their_run(journal: Journal) -> None:
    """From 1, without gaps; a reader goes on after the last that it saw."""
    began(journal)
    began(journal, OTHER)
    for at in range(3):
        journal.event(RUN, "note", {"at": at}, float(at))
    assert [e.seq for e in journal.events(RUN)] == [1, 2, 3, 4]
    assert [e.data["at"] for e in journal.events(RUN, 2)] == [1, 2]
    assert journal.events(RUN, 4) == () == journal.events(RUN, 2**31 - 1) and len(journal.events(RUN, -1)) == 4
    assert len(journal.events(OTHER)) == 1


def test_events_written_at_once_have_different_numbers(journal: Journal) -> None:
    """Writers in several threads never share a number."""
    began(journal)
    for turn in range(10):
        together(*(partial(journal.event, RUN, "note", {"n": n}, 1.0) for n in range(4)))
        assert [e.seq for e in journal.events(RUN)] == list(range(1, 4 * turn + 6))


# One suite for every journal: weights that a run brings are referred to from its start until its first state is kept.
UPLOADED, NOW, LATER = 5.0, 20.0, 1e6
W = digest("w")


def bringing(run: RunId = RUN, name: object = "w", **changes: Any) -> RunRow:
    """A run that begins from weights of this name."""
    row = run_row(run, created=NOW, **changes)
    return run_row(run, created=NOW, spec=replace(row.spec, initial_weights=digest(name), initial_weights_bytes=100), **changes)


def upload(journal: Journal, name: object = "w", now: float = UPLOADED) -> None:
    """A person uploads weights."""
    journal.add_parts([digest(name)], *UPLOADER, now)


def gone(journal: Journal, before: float = 0.0) -> set[str]:
    """What collections forget, until nothing is left."""
    found: set[str] = set()
    while some := journal.collect(before):
        found |= set(some)
    return found


def absent(part: Digest) -> bool:
    """A store without bytes."""
    return False


def test_a_run_names_the_file_that_it_brings() -> None:
    """With its bytes; one without weights names none."""
    assert initial_weights_of(bringing()) == ((W, 100),) and initial_weights_of(run_row()) == ()


def test_an_upload_waits_until_it_is_too_old(journal: Journal) -> None:
    """It is held by nobody's run and by no site; a look puts its collection off."""
    upload(journal)
    assert gone(journal, UPLOADED) == set() and journal.held(files("w"), RUN, ANN, NOW) == frozenset()
    assert journal.held(files("w", "v"), *UPLOADER, NOW) == {W} and gone(journal, NOW) == set()
    assert gone(journal, NOW + 1.0) == {W} and journal.held(files("w"), *UPLOADER, NOW) == frozenset()


def test_what_a_site_pushed_is_nobodys_weights(journal: Journal) -> None:
    """Also where its bytes are here: who looks for weights does not hear of them, before they are uploaded."""
    journal.create([run_row()], joins())
    journal.add_parts([W], RUN, ANN, UPLOADED)
    assert journal.held(files("w"), *UPLOADER, NOW) == frozenset()
    upload(journal)
    assert journal.held(files("w"), *UPLOADER, NOW) == {W}


def test_a_run_keeps_its_weights_until_its_first_state_is_kept(journal: Journal) -> None:
    """However old they are; then they wait for another run as if they were uploaded when the run was started."""
    upload(journal)
    journal.create([bringing()], joins())
    assert gone(journal, LATER) == set() and journal.run(RUN) == bringing()
    assert journal.advance(advance(JOIN, files("m"), files("s"))) and gone(journal, NOW) == set()
    assert gone(journal, NOW + 1.0) == {W}


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.FAILED])
def test_a_run_that_ends_keeps_them_no_longer(journal: Journal, status: Status) -> None:
    """The same where it never began."""
    upload(journal)
    journal.create([bringing()], joins())
    journal.set_status(RUN, OPEN, status, "why", 30.0)
    assert gone(journal, NOW) == set() and gone(journal, LATER) == {W}


def test_a_stalled_run_keeps_them(journal: Journal) -> None:
    """It may go on, and has not begun."""
    upload(journal)
    journal.create([bringing()], joins())
    journal.set_status(RUN, OPEN, Status.STALLED, "why", 30.0)
    assert gone(journal, LATER) == set()


def test_two_runs_keep_them_until_both_have_begun(journal: Journal) -> None:
    """Such as a run and its reference."""
    upload(journal)
    journal.create([bringing(), bringing(OTHER, parent=RUN)], [*joins(), *joins(OTHER)])
    journal.advance(advance(JOIN, files("m"), files("s")))
    assert gone(journal, LATER) == set()
    journal.set_status(OTHER, OPEN, Status.CANCELLED, "why", 30.0)
    assert gone(journal, LATER) == {W}


def test_weights_that_are_also_a_runs_part_stay_with_it(journal: Journal) -> None:
    """Bytes are the same whoever names them."""
    upload(journal)
    journal.create([bringing()], joins())
    journal.advance(advance(JOIN, files("w"), files("s")))
    assert gone(journal, LATER) == set()


@pytest.mark.parametrize("once", [False, True])
def test_a_run_without_its_weights_is_not_written(journal: Journal, once: bool) -> None:
    """Nor is the other of the two, nor a word in the log; nothing that was there is changed."""
    if once:
        journal.reserve(IdempotencyRecord("key", "asked", "seed", 1.0, "me"))
    before = journal.audit_tip()

    def create() -> None:
        rows = [run_row(OTHER), bringing()]
        if once:
            journal.create_once("key", "me", rows, [*joins(), *joins(OTHER)])
        else:
            journal.create(rows, [*joins(), *joins(OTHER)])

    with pytest.raises(ConfigRefused, match="There are no weights") as refusal:
        create()
    assert refusal.value.context["path"] == "weights"
    assert journal.run_ids() == () and journal.open_orders(ANN) == () and journal.audit_tip() == before
    upload(journal)
    create()
    assert set(journal.run_ids()) == {RUN, OTHER}


def test_weights_that_were_dropped_lately_are_looked_for(journal: Journal) -> None:
    """Uploaded again, their row is there; whether their bytes are, the store tells. Then they are known to be there."""
    upload(journal)
    assert gone(journal, LATER) == {W}
    upload(journal, now=LATER)
    with pytest.raises(ConfigRefused, match="There are no weights"):
        journal.create([bringing()], joins(), "", absent)
    journal.create([bringing()], joins(), "", lambda part: True)
    journal.create([bringing(OTHER)], joins(OTHER), "", absent)


def test_a_run_started_once_refers_once(journal: Journal) -> None:
    """The second try of an idempotency record writes nothing, also when the weights are gone by then."""
    upload(journal)
    journal.reserve(IdempotencyRecord("key", "asked", "seed", 1.0, "me"))
    journal.create_once("key", "me", [bringing()], joins())
    journal.advance(advance(JOIN, files("m"), files("s")))
    assert gone(journal, LATER) == {W}
    journal.create_once("key", "me", [bringing()], joins())
    assert len(journal.orders(RUN, JOIN)) == 3


def test_the_log_names_the_weights_of_a_run(journal: Journal) -> None:
    """Of one that brings none it says nothing."""
    upload(journal)
    journal.create([bringing(), run_row(OTHER)], [], "alice")
    told = {entry.run: entry.details for entry in journal.audit(about=About(kind="run_started"))}
    assert told[RUN]["weights"] == W and "weights" not in told[OTHER]


def test_starting_beside_a_collection(journal: Journal) -> None:
    """Either the run is written and its weights stay, or they are gone and it is refused: never a run without its weights."""

    def start(run: RunId, name: object) -> bool:
        try:
            journal.create([bringing(run, name)], [])
        except ConfigRefused:
            return False
        return True

    for turn in range(4):
        upload(journal, turn)
        run = RunId(f"run-{turn}")
        began, dropped = together(lambda run=run, turn=turn: start(run, turn), lambda: journal.collect(LATER))  # type: ignore[misc]
        kept = digest(turn) not in set(dropped) | gone(journal, LATER)  # type: ignore[call-overload]
        assert began == kept, turn
        assert (journal.run(run) is not None) == began
    assert journal.held(files("x"), RUN, ClientId("users"), NOW) == frozenset()
