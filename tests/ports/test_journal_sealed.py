"""What sites seal for each other: every journal keeps it as long as somebody needs it, and no longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from journal_names import ANN, BOB, CYD, OTHER, RUN
from journal_values import advance, began, client, digest, files, invite, joins, order_row, push, run_row

from tests.engine.present import present
from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.model.accounts import Client, Handover, Keys
from tideline.engine.model.orders import Envelope, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.journal import Journal


def handle(who: ClientId, at: int, name: str = "h") -> Handle[Any]:
    """The handle of what a site made in a round."""
    return Handle(digest((who, at, name)), 1000 + at, who, "train", at)


def envelope(who: ClientId, at: int, name: str = "h") -> Envelope:
    """The same on its way."""
    cipher = digest(("cipher", who, at, name))
    return Envelope(handle(who, at, name), cipher, 1032 + at, {BOB: "ab" * 80, CYD: "cd" * 80}, {BOB: "ef" * 64, CYD: "01" * 64})


def brings(
    journal: Journal, cursor: int, who: ClientId, *sealed: Envelope, run: RunId = RUN, now: float = 30.0
) -> OrderStatus | None:
    """A site's reply brings values for its peers."""
    order = order_row(cursor, who, run=run)
    sent = files((who, cursor))
    push(journal, (*sent, *ciphers(sealed)), who, run)
    return journal.answer(order.id, Reply(order.id, sent, sealed=sealed), OrderStatus.ANSWERED, now, 1, 2)


def known(journal: Journal, *handles: Handle[Any], run: RunId = RUN) -> set[Handle[Any]]:
    """Which of these the journal still has."""
    return {each.handle for each in journal.envelopes(run, handles)}


def gone(journal: Journal, now: float = 1e9) -> set[Digest]:
    """What a collection takes, all at once."""
    taken: set[Digest] = set()
    while some := journal.collect(now):
        taken |= set(some)
    return taken


def test_an_envelope_comes_back_as_it_was(journal: Journal) -> None:
    """By its handle, in one order; others are not found, nor are those of another run."""
    began(journal)
    journal.create([run_row(OTHER)], joins(OTHER))
    first, second = envelope(ANN, 1), envelope(ANN, 1, "other")
    assert brings(journal, JOIN, ANN, first, second) is OrderStatus.ANSWERED
    assert journal.envelopes(RUN, [first.handle]) == (first,)
    found = journal.envelopes(RUN, [second.handle, first.handle, handle(BOB, 1)])
    assert sorted(found, key=str) == sorted([first, second], key=str)
    assert journal.envelopes(RUN, [second.handle, first.handle]) == journal.envelopes(RUN, [first.handle, second.handle])
    assert journal.envelopes(OTHER, [first.handle]) == () and journal.envelopes(RUN, []) == ()
    assert journal.envelopes(RUN, [replace(first.handle, round=2)]) == ()


def test_a_reply_whose_sealed_file_is_gone_is_not_written(journal: Journal) -> None:
    """As with its other files: it is sent again first."""
    began(journal)
    sealed, order = envelope(ANN, 1), order_row(JOIN, ANN)
    push(journal, files("root"), ANN)
    reply = Reply(order.id, files("root"), sealed=(sealed,))
    assert journal.answer(order.id, reply, OrderStatus.ANSWERED, 30.0, 1, 2) is None
    assert known(journal, sealed.handle) == set()


def test_orders_keep_what_they_name(journal: Journal) -> None:
    """Also when they are offered again."""
    began(journal)
    named = (handle(ANN, 1), handle(BOB, 1))
    step = advance(JOIN)
    journal.advance(replace(step, orders=tuple(replace(o, sealed=named) for o in step.orders)))
    assert [o.sealed for o in journal.orders(RUN, 0)] == [named] * 3
    assert journal.open_orders(ANN)[-1].sealed == named
    again = replace(order_row(0, ANN, attempt=2), sealed=named)
    journal.reissue([again])
    found = present(journal.order(again.id))
    assert found.sealed == named and journal.orders(RUN, JOIN)[0].sealed == ()


def test_a_value_lives_as_long_as_a_kept_state_names_it(journal: Journal) -> None:
    """Or as long as its round may be computed again; its file goes with it."""
    began(journal)
    first, second = envelope(ANN, 1), envelope(BOB, 1)
    brings(journal, JOIN, ANN, first)
    brings(journal, JOIN, BOB, second)
    named = {"sealed": (first.handle,)}
    journal.advance(advance(JOIN, state=files("state 0"), **named))
    journal.advance(advance(0, state=files("state 1"), retain_from=JOIN, **named))
    assert known(journal, first.handle, second.handle) == {first.handle, second.handle}
    journal.advance(advance(1, state=files("state 2"), retain_from=1, **named))
    assert known(journal, first.handle, second.handle) == {first.handle}
    taken = gone(journal)
    assert second.cipher in taken and first.cipher not in taken
    journal.advance(advance(2, state=files("state 3"), retain_from=2))
    assert known(journal, first.handle) == {first.handle}, "the state before may be needed once more"
    journal.advance(advance(3, state=files("state 4"), retain_from=4))
    assert known(journal, first.handle) == set() and first.cipher in gone(journal)


def test_a_run_that_has_ended_keeps_nothing_sealed(journal: Journal) -> None:
    """Whoever was to open it has done so; also where the last state names it."""
    began(journal)
    sealed = envelope(ANN, 1)
    brings(journal, JOIN, ANN, sealed)
    journal.advance(advance(JOIN, state=files("last"), status=Status.COMPLETED, sealed=(sealed.handle,)))
    assert known(journal, sealed.handle) == set()
    taken = gone(journal)
    assert sealed.cipher in taken and digest("last") not in taken


def test_the_first_of_two_envelopes_stays(journal: Journal) -> None:
    """A site that lost its home makes the same value again and seals it anew: who was told of the first can open it still."""
    began(journal)
    first = envelope(ANN, 1)
    again = replace(first, cipher=digest("sealed again"), keys={BOB: "12" * 80}, signatures={BOB: "34" * 64})
    assert brings(journal, JOIN, ANN, first) is OrderStatus.ANSWERED
    second = order_row(JOIN, ANN, attempt=2)
    journal.reissue([second])
    sent = files("sent again")
    push(journal, (*sent, *ciphers([again])), ANN)
    reply = Reply(second.id, sent, sealed=(again,))
    assert journal.answer(second.id, reply, OrderStatus.ANSWERED, 40.0, 1, 2) is OrderStatus.ANSWERED
    assert journal.envelopes(RUN, [first.handle]) == (first,) and first.cipher not in gone(journal)


def test_a_late_reply_brings_nothing(journal: Journal) -> None:
    """Nobody folds it, so nobody can name what it brought."""
    began(journal)
    journal.advance(advance(JOIN))
    sealed = envelope(CYD, 1)
    assert brings(journal, JOIN, CYD, sealed) is OrderStatus.EXPIRED and known(journal, sealed.handle) == set()


def test_who_answered_while_the_round_was_folded_leaves_no_file(journal: Journal) -> None:
    """It was not folded, so its value is in no state."""
    began(journal)
    sealed = envelope(CYD, 1)
    brings(journal, JOIN, CYD, sealed)
    journal.advance(advance(JOIN, state=files("state")))
    assert sealed.cipher in gone(journal)


def test_a_sites_own_sealed_file_is_its_own(journal: Journal) -> None:
    """It is told that it is here; whoever it is for is not: he is handed it by an order."""
    began(journal)
    sealed = envelope(ANN, 1)
    push(journal, ciphers([sealed]), ANN)
    assert journal.held(ciphers([sealed]), RUN, ANN, 20.0) == {sealed.cipher}
    assert journal.held(ciphers([sealed]), RUN, BOB, 20.0) == frozenset()
    brings(journal, JOIN, ANN, sealed)
    assert journal.held(ciphers([sealed]), RUN, ANN, 40.0) == {sealed.cipher}
    assert journal.held(ciphers([sealed]), RUN, BOB, 40.0) == frozenset()


def test_handovers_stand_with_a_clients_keys(journal: Journal) -> None:
    """From the first keys on, each with the signature of those before; keys without one cut the line."""
    first, second, third, fourth = (Keys(f"{n}" * 64, f"{n + 1}" * 64) for n in range(4))
    journal.add_invite(invite())
    who: Client = client(ANN, sign_key=first.sign, receive_key=first.receive)
    journal.enrol("token", who)
    assert journal.rekey(ANN, first.sign, second, 5.0, "aa" * 64)
    assert journal.rekey(ANN, second.sign, third, 6.0, "bb" * 64)
    found = present(journal.client(ANN))
    assert found.keys == third
    assert found.handovers == (Handover(first, ""), Handover(second, "aa" * 64), Handover(third, "bb" * 64))
    assert journal.rekey(ANN, third.sign, fourth, 7.0)
    found = present(journal.client(ANN))
    assert found.handovers == ()
