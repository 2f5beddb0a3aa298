"""One suite for every journal: keys, approval and revocation."""

from __future__ import annotations

from functools import partial

from journal_values import ANN, BOB, OTHER, RUN, answer, began, client, first, invite, together, two_rounds_old

from tideline.core.run import OrderId
from tideline.engine.model.accounts import Keys, Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.journal import Journal

KEYS, OTHERS = Keys("aa", "bb"), Keys("cc", "dd")


def enrolled(journal: Journal, **changes: object) -> None:
    """Ann is enrolled."""
    journal.add_invite(invite())
    assert journal.enrol("token", client(ANN, **changes))


def test_whether_an_invite_holds(journal: Journal) -> None:
    """It is kept with the invite."""
    journal.add_invite(invite(hold=True))
    assert journal.invite("token") == invite(hold=True)


def test_a_client_is_kept_as_it_is(journal: Journal) -> None:
    """Keys, standing and what is asked of it come back."""
    enrolled(journal, standing=Standing.PENDING, rotate=True)
    known = journal.client(ANN)
    assert known is not None and known.keys == KEYS and known.standing is Standing.PENDING and known.rotate
    assert journal.clients() == (known,)


def test_keys_are_bound_once(journal: Journal) -> None:
    """Only to a client that has still those from before; the wish for others goes."""
    enrolled(journal)
    journal.ask_rotation(ANN)
    assert journal.rekey(ANN, "aa", OTHERS)
    bound = client(ANN, sign_key="cc", receive_key="dd")
    assert journal.client(ANN) == bound
    assert not journal.rekey(ANN, "aa", KEYS) and not journal.rekey(BOB, "cc", KEYS)
    assert journal.client(ANN) == bound
    assert journal.rekey(ANN, "cc", KEYS)
    assert journal.client(ANN) == client(ANN)


def test_of_two_rotations_at_once_one_is_done(journal: Journal) -> None:
    """Both know the same key from before."""
    enrolled(journal)
    done = together(*(partial(journal.rekey, ANN, "aa", Keys(new, new)) for new in ("x", "y")))
    assert sorted(done, key=bool) == [False, True]


def test_a_wish_for_new_keys(journal: Journal) -> None:
    """It is noted; for a stranger nothing is."""
    enrolled(journal)
    journal.ask_rotation(ANN)
    journal.ask_rotation(BOB)
    assert journal.clients() == (client(ANN, rotate=True),)


def test_approval_is_for_pending_clients(journal: Journal) -> None:
    """Neither one that is revoked nor a stranger is approved."""
    enrolled(journal, standing=Standing.PENDING)
    assert journal.approve(ANN) and not journal.approve(ANN) and not journal.approve(BOB)
    assert journal.client(ANN) == client(ANN)
    journal.revoke(ANN, "left", 5.0)
    assert not journal.approve(ANN)


def test_revocation_ends_open_orders(journal: Journal) -> None:
    """In one transaction: the client's standing, its open orders, and an event for each. Others' orders stay."""
    enrolled(journal)
    began(journal)
    ended = journal.revoke(ANN, "left", 86400.0)
    assert [(order.id, order.status, order.answered) for order in ended] == [(first(), OrderStatus.FAILED, 86400.0)]
    known = journal.client(ANN)
    assert known == client(ANN, standing=Standing.REVOKED, revoked=86400.0, reason="left")
    failed = journal.order(first())
    assert failed == ended[0] and failed.failure is not None
    assert (failed.failure.kind, failed.failure.what) == ("Revoked", "ann was revoked on 1970-01-02 00:00 UTC: left")
    assert journal.open_orders(ANN) == () and len(journal.open_orders(BOB)) == 1
    event = journal.events(RUN)[-1]
    assert (event.kind, event.data["client"], event.data["kind"]) == ("failed", ANN, "Revoked")
    assert answer(journal, first()) is OrderStatus.CANCELLED, "nothing of it counts any more"


def test_revoking_twice(journal: Journal) -> None:
    """The first date and reason stay; orders that came since are ended."""
    enrolled(journal)
    journal.revoke(ANN, "left", 5.0)
    two_rounds_old(journal)
    ended = journal.revoke(ANN, "another reason", 50.0)
    assert [order.id for order in ended] == [OrderId(f"{RUN}/1/{ANN}/1")]
    assert journal.client(ANN) == client(ANN, standing=Standing.REVOKED, revoked=5.0, reason="left")
    assert journal.revoke(ANN, "", 60.0) == ()


def test_who_is_barred(journal: Journal) -> None:
    """A revoked client with an open order of the run; not one without, of another run, or that is not revoked."""
    enrolled(journal)
    began(journal, OTHER)
    journal.revoke(ANN, "left", 5.0)
    assert journal.barred(OTHER) == ()
    began(journal)
    assert (journal.barred(RUN), journal.barred(OTHER)) == ((ANN,), ())
    answer(journal, first(ANN))
    assert journal.barred(RUN) == ()


def test_nobody_is_revoked_who_is_not_there(journal: Journal) -> None:
    """A stranger's name changes nothing."""
    began(journal)
    assert journal.revoke(ANN, "left", 5.0) == () and journal.client(ANN) is None
    assert len(journal.orders(RUN, JOIN)) == 3 and journal.open_orders(ANN) != ()


def test_a_revoked_name_may_enrol_again(journal: Journal) -> None:
    """With another invite, and as a new client; the first stays used."""
    enrolled(journal)
    journal.add_invite(invite("two"))
    assert not journal.enrol("two", client(ANN, version="9"))
    journal.revoke(ANN, "left", 5.0)
    again = client(ANN, version="9", sign_key="cc", receive_key="dd")
    assert not journal.enrol("token", again), "that one is used"
    assert journal.enrol("two", again)
    assert journal.client(ANN) == again
