"""One suite for every journal: sessions of users who signed in with a browser."""

from __future__ import annotations

from functools import partial
from typing import Any

from journal_values import together

from tideline.engine.audit.log import AuditEvent, Tip
from tideline.engine.audit.witness import RESTORED
from tideline.engine.model.access.user_sessions import RETAINED_SECONDS, UserSession
from tideline.engine.ports.journal import Journal


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


def test_the_last_use_only_grows(journal: Journal) -> None:
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
