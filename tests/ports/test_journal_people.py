"""One suite for every journal: invites and clients."""

from __future__ import annotations

from functools import partial

from journal_values import (
    ANN,
    BOB,
    CYD,
    client,
    invite,
    together,
)

from tideline.core.run import ClientId
from tideline.engine.ports.journal import Journal


def test_an_invite_is_found_by_its_token(journal: Journal) -> None:
    """An invite comes back as it was written, and an unknown token is nobody's."""
    journal.add_invite(invite())
    assert journal.invite("token") == invite()
    assert journal.invite("another") is None


def test_enrolment_uses_the_invite_and_adds_the_client(journal: Journal) -> None:
    """Both are written together, and the token serves once."""
    journal.add_invite(invite())
    assert journal.enrol("token", client(ANN))
    assert journal.client(ANN) == client(ANN)
    assert journal.invite("token") == invite(used_by=ANN)
    assert not journal.enrol("token", client(BOB))
    assert journal.clients() == (client(ANN),)


def test_enrolment_under_a_taken_name_leaves_the_invite_unused(journal: Journal) -> None:
    """Neither the token nor the client of that name changes."""
    journal.add_invite(invite("one"))
    journal.add_invite(invite("two"))
    assert journal.enrol("one", client(ANN))
    assert not journal.enrol("two", client(ANN, version="9"))
    assert journal.invite("two") == invite("two")
    assert journal.client(ANN) == client(ANN)


def test_enrolment_needs_an_invite(journal: Journal) -> None:
    """An unknown token enrols nobody."""
    assert not journal.enrol("unknown", client())
    assert journal.client(ANN) is None


def test_one_token_enrols_one_of_two_at_once(journal: Journal) -> None:
    """Of two agents that use one token at the same moment, exactly one is enrolled."""
    for turn in range(10):
        journal.add_invite(invite(str(turn)))
        names = (f"a{turn}", f"b{turn}")
        won = together(*(partial(journal.enrol, str(turn), client(n)) for n in names))
        assert sorted(won, key=bool) == [False, True]
        assert [journal.client(n) is not None for n in names] == won


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
