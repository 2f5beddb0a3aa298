"""One suite for every journal: API keys, and the names of those who ask."""

from __future__ import annotations

from functools import partial
from typing import Any

from journal_values import RUN, joins, order_row, run_row, together

from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.accounts import ApiKey, KeyRole
from tideline.engine.model.runs import JOIN, OPEN, Status
from tideline.engine.ports.journal import Journal


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
        assert sorted(won) == [False, True]
        assert len([k for k in journal.api_keys() if k.name == name]) == 1


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
