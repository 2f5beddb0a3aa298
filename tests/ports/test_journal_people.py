"""One suite for every journal: invites and clients."""

from __future__ import annotations

from functools import partial
from typing import Any

from journal_names import ANN, BOB, CYD, OTHER, RUN
from journal_values import answer, began, client, first, invite, joins, order_row, run_row, together, two_rounds_old

from tideline.core.run import ClientId, OrderId
from tideline.engine.audit.log import AuditEvent, Tip
from tideline.engine.audit.witness import RESTORED
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.access.user_sessions import RETAINED_SECONDS, UserSession
from tideline.engine.model.accounts import ApiKey, KeyRole, Keys, Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal


def test_an_invite_is_found_by_its_token(journal: Journal) -> None:
    """An invite comes back as it was written, and an unknown token is nobody's."""
    journal.add_invite(invite())
    assert journal.invite("token") == invite() and journal.invite("another") is None


def test_enrolment_uses_the_invite_and_adds_the_client(journal: Journal) -> None:
    """Both are written together, and the token serves once."""
    journal.add_invite(invite())
    assert journal.enrol("token", client(ANN)) and journal.client(ANN) == client(ANN)
    assert journal.invite("token") == invite(used_by=ANN) and not journal.enrol("token", client(BOB))
    assert journal.clients() == (client(ANN),)


def test_enrolment_under_a_taken_name_leaves_the_invite_unused(journal: Journal) -> None:
    """Neither the token nor the client of that name changes."""
    journal.add_invite(invite("one"))
    journal.add_invite(invite("two"))
    assert journal.enrol("one", client(ANN)) and not journal.enrol("two", client(ANN, version="9"))
    assert journal.invite("two") == invite("two") and journal.client(ANN) == client(ANN)


def test_enrolment_needs_an_invite(journal: Journal) -> None:
    """An unknown token enrols nobody."""
    assert not journal.enrol("unknown", client()) and journal.client(ANN) is None


def test_one_token_enrols_one_of_two_at_once(journal: Journal) -> None:
    """Of two agents that use one token at the same moment, exactly one is enrolled."""
    for turn in range(10):
        journal.add_invite(invite(str(turn)))
        names = (f"a{turn}", f"b{turn}")
        won = together(*(partial(journal.enrol, str(turn), client(n)) for n in names))
        assert sorted(won, key=bool) == [False, True] and [journal.client(n) is not None for n in names] == won


def test_clients_are_listed_by_name(journal: Journal) -> None:
    """The order of enrolment does not matter."""
    for name in (CYD, ANN, BOB):
        journal.add_invite(invite(name))
        assert journal.enrol(name, client(name))
    assert [c.name for c in journal.clients()] == [ANN, BOB, CYD]


def test_seeing_a_client_updates_what_it_told(journal: Journal) -> None:
    """The time is always noted; version and roles only if they are told; a stranger is nobody."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN))
    journal.saw(ANN, 5.0)
    assert journal.client(ANN) == client(ANN, seen=5.0)
    journal.saw(ANN, 6.0, "2", ("target",))
    assert journal.client(ANN) == client(ANN, seen=6.0, version="2", roles=("target",))
    journal.saw(BOB, 7.0)
    assert journal.clients() == (client(ANN, seen=6.0, version="2", roles=("target",)),)
    journal.saw(ANN, 8.0, "2", ("target",), "a GPU")
    journal.saw(ANN, 9.0)
    assert journal.client(ANN) == client(ANN, seen=9.0, version="2", roles=("target",), device="a GPU")
    journal.saw(ANN, 9.0, device="")
    assert journal.client(ANN) == client(ANN, seen=9.0, version="2", roles=("target",))


def test_many_are_seen_at_once(journal: Journal) -> None:
    """All who are there; what they told before stays, and strangers are nobody."""
    for name in (CYD, ANN, BOB):
        journal.add_invite(invite(name))
        journal.enrol(name, client(name))
    journal.saw_all((), 1.0)
    journal.saw_all({CYD, ClientId("nobody"), ANN}, 5.0)
    assert journal.clients() == (client(ANN, seen=5.0), client(BOB), client(CYD, seen=5.0))


# One suite for every journal: keys, approval and revocation.
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
    assert journal.client(ANN) == bound and journal.rekey(ANN, "cc", KEYS)
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
    assert journal.enrol("two", again) and journal.client(ANN) == again


# One suite for every journal: API keys, and the names of those who ask.


def key(name: str = "alice", number: str = "1", **changes: Any) -> ApiKey:
    """A key that is good."""
    given = {"role": KeyRole.OPERATOR, "created": 1.5, "created_by": "admin", **changes}
    return ApiKey(id=f"id-{number}", name=name, key_hash=f"hash-{number}", **given)


def test_keys_come_back_as_they_were_written(journal: Journal) -> None:
    """The oldest first; of one age, by id."""
    late = key("bob", "1", created=3.0, expires=9.5, role=KeyRole.VIEWER)
    assert journal.add_key(late) and journal.add_key(key("cyd", "3")) and journal.add_key(key("alice", "2"))
    assert journal.api_keys() == (key("alice", "2"), key("cyd", "3"), late)


def test_a_name_is_free_again_once_its_key_is_revoked(journal: Journal) -> None:
    """Two good keys never have one name; revoked ones stay in the list. A key is revoked once."""
    assert journal.add_key(key(number="1"))
    assert not journal.add_key(key(number="2")) and not journal.add_key(key("bob", number="1"))
    assert journal.revoke_key("alice", 5.0)
    assert not journal.revoke_key("alice", 6.0) and not journal.revoke_key("nobody", 6.0)
    assert journal.add_key(key(number="2", created=7.0))
    assert journal.api_keys() == (key(number="1", revoked=5.0), key(number="2", created=7.0))


def test_of_two_at_once_one_gets_the_name(journal: Journal) -> None:
    """Whoever comes second is told so, and nothing of his is written."""
    for turn in range(5):
        name = f"name-{turn}"
        won = together(*(partial(journal.add_key, key(name, f"{turn}-{i}")) for i in range(2)))
        assert sorted(won) == [False, True] and len([k for k in journal.api_keys() if k.name == name]) == 1


def test_the_last_use_only_grows(journal: Journal) -> None:
    """A replica whose clock is behind does not turn it back."""
    journal.add_key(key())
    for now, known in ((5.0, 5.0), (4.0, 5.0), (6.0, 6.0)):
        journal.used_key("id-1", now)
        assert journal.api_keys() == (key(last_used=known),)
    journal.used_key("id-9", 7.0)


def test_events_say_who_asked(journal: Journal) -> None:
    """Of what a person did; what happens by itself has no name."""
    journal.create([run_row()], joins(), "alice")
    journal.set_status(RUN, OPEN, Status.STALLED, "too few", 9.0)
    assert journal.reopen(RUN, Status.WAITING, "resumed", 10.0, 70.0, [order_row(JOIN, "ann", attempt=2)], "bob")  # type: ignore[arg-type]
    journal.set_status(RUN, OPEN, Status.CANCELLED, "by a person", 11.0, by="cyd")
    told = [(event.kind, event.data.get("by")) for event in journal.events(RUN)]
    assert told == [("created", "alice"), ("stalled", None), ("waiting", "bob"), ("cancelled", "cyd")]
    row = journal.run(RUN)
    assert row is not None and row.cause == "by a person"


def test_a_record_says_who_asked(journal: Journal) -> None:
    """The run of a call with a key, too."""
    idempotency_record = journal.reserve(IdempotencyRecord("key", "asked", "seed", 1.0, "worker"))
    journal.create_once(idempotency_record.key, "worker", [run_row()], joins(), "alice")
    assert journal.events(RUN)[0].data["by"] == "alice"


# One suite for every journal: sessions of users who signed in with a browser.


def session(number: str = "1", **changes: Any) -> UserSession:
    """A session that is good."""
    given = {"created": 1.5, "expires": 100.0, "values": ("cardio-ops",), "state_hash": f"state-{number}", **changes}
    names = {"issuer": "https://idp.example", "subject": "42", "name": "alice <https://idp.example#42>"}
    return UserSession(id=f"id-{number}", token_hash=f"hash-{number}", **names, **given)


def test_sessions_come_back_as_they_were_written(journal: Journal) -> None:
    """By the hash of their secret; in the list the oldest first, of one age by id."""
    late = session("1", created=3.0, values=())
    for each in (late, session("3"), session("2")):
        assert journal.begin_user_session(each)
    assert journal.user_session("hash-3") == session("3") and journal.user_session("hash-9") is None
    assert journal.user_sessions() == (session("2"), session("3"), late)


def test_one_sign_in_begins_one_session(journal: Journal) -> None:
    """Of two that come back from the provider with the same state, also at once, one gets a session."""
    for turn in range(5):
        state = f"state of {turn}"
        tries = [session(f"{turn}-{i}", state_hash=state) for i in range(2)]
        assert sorted(together(*(partial(journal.begin_user_session, each) for each in tries))) == [False, True]
        assert len([each for each in journal.user_sessions() if each.state_hash == state]) == 1


def test_a_session_ends_once(journal: Journal) -> None:
    """And stays in the list."""
    journal.begin_user_session(session())
    assert journal.end_user_session("id-1", 5.0, "admin")
    assert not journal.end_user_session("id-1", 6.0, "admin") and not journal.end_user_session("id-9", 6.0)
    assert journal.user_sessions() == (session(ended=5.0),)


def test_the_last_use_of_a_session_only_grows(journal: Journal) -> None:
    """A replica whose clock is behind does not turn it back."""
    journal.begin_user_session(session())
    for now, known in ((5.0, 5.0), (4.0, 5.0), (6.0, 6.0)):
        journal.used_user_session("id-1", now)
        assert journal.user_session("hash-1") == session(last_used=known)
    journal.used_user_session("id-9", 7.0)


def test_old_sessions_are_forgotten(journal: Journal) -> None:
    """A week after they expired, when the next begins."""
    journal.begin_user_session(session("1"))
    journal.begin_user_session(session("2", created=100.0 + RETAINED_SECONDS, expires=1e9))
    assert len(journal.user_sessions()) == 2
    journal.begin_user_session(session("3", created=101.0 + RETAINED_SECONDS))
    assert [each.id for each in journal.user_sessions()] == ["id-2", "id-3"]


def test_the_audit_log_says_who_signed_in(journal: Journal) -> None:
    """And who ended it; what did nothing leaves no entry."""
    journal.begin_user_session(session())
    journal.begin_user_session(session())
    journal.end_user_session("id-1", 5.0, "admin")
    journal.end_user_session("id-1", 6.0, "admin")
    (began, ended) = journal.audit()[1:]
    assert (began.kind, began.at, began.by) == ("signed_in", 1.5, "alice <https://idp.example#42>")
    assert began.details == {"session": "id-1", "expires": 100.0}
    assert (ended.kind, ended.by, ended.details) == ("session_ended", "admin", {"session": "id-1"})


def test_a_restored_database_ends_all_sessions(journal: Journal) -> None:
    """It may have forgotten that one was ended."""
    journal.begin_user_session(session("1"))
    journal.begin_user_session(session("2"))
    journal.end_user_session("id-2", 5.0)
    assert journal.catch_up((), AuditEvent(RESTORED, 9.0, details={"lost": True}), 0, Tip(3, "f" * 64))
    assert [each.ended for each in journal.user_sessions()] == [9.0, 5.0]
