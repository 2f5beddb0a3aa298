"""One suite for every journal: weights that a run brings are referred to from its start until its first state is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from journal_values import ANN, JOIN, OTHER, RUN, advance, digest, files, joins, run_row, together

from tideline.core.errors import ConfigRefused
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.audit.log import About
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.experiment import UPLOADER, initial_weights_of
from tideline.engine.model.runs import OPEN, RunRow, Status
from tideline.engine.ports.journal import Journal

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
    assert initial_weights_of(bringing()) == ((W, 100),)
    assert initial_weights_of(run_row()) == ()


def test_an_upload_waits_until_it_is_too_old(journal: Journal) -> None:
    """It is held by nobody's run and by no site; a look puts its collection off."""
    upload(journal)
    assert gone(journal, UPLOADED) == set()
    assert journal.held(files("w"), RUN, ANN, NOW) == frozenset()
    assert journal.held(files("w", "v"), *UPLOADER, NOW) == {W}
    assert gone(journal, NOW) == set()
    assert gone(journal, NOW + 1.0) == {W}
    assert journal.held(files("w"), *UPLOADER, NOW) == frozenset()


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
    assert gone(journal, LATER) == set()
    assert journal.run(RUN) == bringing()
    assert journal.advance(advance(JOIN, files("m"), files("s")))
    assert gone(journal, NOW) == set()
    assert gone(journal, NOW + 1.0) == {W}


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.FAILED])
def test_a_run_that_ends_keeps_them_no_longer(journal: Journal, status: Status) -> None:
    """The same where it never began."""
    upload(journal)
    journal.create([bringing()], joins())
    journal.set_status(RUN, OPEN, status, "why", 30.0)
    assert gone(journal, NOW) == set()
    assert gone(journal, LATER) == {W}


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
