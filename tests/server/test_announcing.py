"""What a coordinator announces to its agents, and of whom it knows that they have taken it up."""

from __future__ import annotations

from tideline.core.run import ClientId
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.rpc.announcing import LIVING_SECONDS, Announcement, Announcing

ANN, BEN = ClientId("ann"), ClientId("ben")


def test_it_is_told_until_it_was_heard() -> None:
    """And again once it is another one; an agent that declines is told once, and follows nothing."""
    said = [Announcement(("a:1", "https://b"), "CA")]
    announcing = Announcing(ManualClock(), lambda: said[0])
    due = announcing.due(ANN, "", False)
    assert due is not None and list(due.addresses) == ["a:1", "https://b"] and due.authorities == "CA"
    assert announcing.follows(ANN) is False and announcing.follows(BEN) is False
    assert announcing.due(ANN, due.id, False) is None and announcing.follows(ANN) is True
    assert announcing.due(BEN, due.id, True) is None and announcing.follows(BEN) is False
    said[0] = Announcement(("https://b", "a:1"), "CA")
    assert announcing.follows(ANN) is False
    again = announcing.due(ANN, due.id, False)
    assert again is not None and again.id != due.id


def test_nothing_is_announced_where_nothing_is_known() -> None:
    """An older agent, which says nothing, then is no exception."""
    announcing = Announcing(ManualClock())
    assert announcing.due(ANN, "", False) is None and announcing.follows(ANN) is None


def test_who_has_left_follows_no_more() -> None:
    """Nobody knows of it; so before a move an operator is not told that all is well."""
    clock = ManualClock()
    announcing = Announcing(clock, lambda: Announcement(("a:1",)))
    due = announcing.due(ANN, "", False)
    assert due is not None and announcing.due(ANN, due.id, False) is None and announcing.follows(ANN) is True
    clock.advance(LIVING_SECONDS + 1)
    assert announcing.follows(ANN) is False
