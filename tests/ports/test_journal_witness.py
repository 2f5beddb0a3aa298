"""One suite for every journal: the witness, its records, and a database that is older than they are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from journal_names import ANN, BOB, RUN, TEAM
from journal_values import began, client, invite, together
from stores import place
from test_journal_people import key

from tideline.archive.records import MemoryRecords, Records
from tideline.engine.audit.log import Tip, follow
from tideline.engine.audit.witness import WITNESSED, Seen, genuine, proof_of, restored, seen
from tideline.engine.model.accounts import Keys, Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.parts import open_parts

NEW = Keys("cc" * 32, "dd" * 32)


def peopled(journal: Journal) -> Journal:
    """A client by one of two invites, and a key."""
    journal.add_invite(invite("1" * 64))
    journal.add_invite(invite("2" * 64))
    journal.enrol("1" * 64, client(ANN))
    journal.add_key(key())
    return journal


def later(after: Journal) -> None:
    """What a backup of it does not know: a key and a client are revoked, a token is used, another client has new keys."""
    after.enrol("2" * 64, client(BOB))
    after.rekey(ANN, "aa", NEW, 4.0, "ab")
    after.revoke_key("alice", 5.0, "admin")
    after.revoke(ANN, "left", 6.0, "admin")


def old(journal: Journal) -> tuple[Journal, Journal]:
    """A journal as it was restored, and what it was like before: their first record is the same."""
    whole = peopled(MemoryJournal())
    peopled(journal)
    later(whole)
    assert whole.witness()[0] == journal.witness()[0]
    return journal, whole


def test_what_is_witnessed(journal: Journal) -> None:
    """The audit events of these kinds in a chain of their own, with the public keys that a client has now."""
    later(peopled(journal))
    records = journal.witness()
    assert [entry.kind for entry in records] == ["enrolled", "enrolled", "rotated", "key_ended", "revoked"]
    assert follow(Tip(), records) == journal.witness_mark().tip
    assert records[2].details["sign"] == NEW.sign and records[2].details["handover"] == "ab"
    assert journal.witness(3) == records[3:]
    logged = [entry for entry in journal.audit() if entry.kind in WITNESSED]
    assert [(e.kind, e.at, e.by, e.client, e.details) for e in logged] == [
        (e.kind, e.at, e.by, e.client, e.details) for e in records
    ]


def test_a_tip_that_was_given_away(journal: Journal) -> None:
    """Nobody makes one up, and another journal's are not its own."""
    mark = peopled(journal).witness_mark()
    given = seen(mark)
    assert genuine(mark, given) and given.seq == 1
    assert not genuine(mark, Seen(given.seq + 1, given.hash, given.proof))
    other = peopled(MemoryJournal()).witness_mark()
    assert other.secret != mark.secret and other.chain != mark.chain
    assert not genuine(mark, Seen(1, given.hash, proof_of(other, 1, given.hash)))


def test_an_old_journal_catches_up(journal: Journal) -> None:
    """Records that it lacks are in force again, once, and what was found stands in the log and waits for an admin."""
    restored_one, whole = old(journal)
    began(restored_one)
    missing = whole.witness(1)
    found = restored(missing, 1, missing[-1].seq, False, 9.0)
    assert restored_one.catch_up(missing, found, 1) and not restored_one.catch_up(missing, found, 1)
    ann, used = restored_one.client(ANN), restored_one.invite("2" * 64)
    assert ann is not None and (ann.standing, ann.revoked, ann.reason) == (Standing.REVOKED, 6.0, "left")
    assert ann.keys == NEW and [each.signature for each in ann.handovers] == ["", "ab"]
    assert used is not None and used.used_by == BOB
    assert [each.revoked for each in restored_one.api_keys()] == [5.0]
    assert {o.status for o in restored_one.orders(RUN) if o.client == ANN} == {OrderStatus.FAILED}
    assert restored_one.open_orders(TEAM[1]) != ()
    records, waiting = restored_one.witness(), restored_one.witness_mark().restored
    assert records[:5] == whole.witness() and follow(Tip(), records) == restored_one.witness_mark().tip
    assert waiting is not None and waiting.details == found.details
    assert waiting.details["clients"] == [ANN] and waiting.details["keys"] == ["alice"] and waiting.details["invites"] == 1
    assert follow(Tip(), restored_one.audit()) == restored_one.audit_tip()
    assert restored_one.audit()[-1].kind == "restored"


def test_records_of_its_own_come_behind(journal: Journal) -> None:
    """Those that were written since the restore get new numbers; nothing of either is gone."""
    restored_one, whole = old(journal)
    restored_one.add_key(key("bob", "2"))
    restored_one.revoke_key("bob", 8.0)
    missing = whole.witness(1)
    assert restored_one.catch_up(missing, restored(missing, 1, 5, False, 9.0), 1)
    kinds = [entry.kind for entry in restored_one.witness(5)]
    assert "bob" in [entry.details.get("name") for entry in restored_one.witness(5)] and kinds[-1] == "restored"
    assert follow(Tip(), restored_one.witness()) == restored_one.witness_mark().tip


def test_records_that_nobody_has(journal: Journal) -> None:
    """The chain goes on behind what an agent remembers of it, so that no number is given twice."""
    peopled(journal)
    found = restored((), 1, 7, True, 9.0)
    assert journal.catch_up((), found, 1, Tip(7, "ab" * 32))
    assert not journal.catch_up((), found, 1, Tip(7, "ab" * 32))
    mark = journal.witness_mark()
    assert (mark.tip.seq, mark.lost_at) == (8, 8) and mark.restored is not None and mark.restored.details["lost"]


def test_a_restore_is_confirmed_once(journal: Journal) -> None:
    """By an admin, whose name stands in both chains."""
    assert not peopled(journal).confirm_restore("alice", 9.0)
    journal.catch_up((), restored((), 1, 7, True, 9.0), 1, Tip(7, "ab" * 32))
    assert journal.confirm_restore("alice", 10.0) and not journal.confirm_restore("alice", 10.0)
    assert journal.witness_mark().restored is None and journal.witness_mark().lost_at == 8
    assert [e.kind for e in journal.witness(7)] == ["restored", "restore_confirmed"] and journal.audit()[-1].by == "alice"


def test_of_two_that_find_it_one_writes(journal: Journal) -> None:
    """Two coordinators start on one restored database."""
    restored_one, whole = old(journal)
    missing = whole.witness(1)
    found = restored(missing, 1, 5, False, 9.0)
    assert sorted(together(*[partial(restored_one.catch_up, missing, found, 1)] * 2), key=bool) == [False, True]
    assert [entry.kind for entry in restored_one.audit()].count("restored") == 1


# One suite for every place of the witness's records.


@pytest.fixture(params=["memory", "folder", "bucket"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    """The records of a chain, empty."""
    if request.param == "memory":
        return MemoryRecords()
    return open_parts(place(request.param, request, tmp_path), tmp_path / "home", cache=1.0).records("chain")


def test_records_stay(records: Records) -> None:
    """Each under its number; the same again is no other, and another is not written over it."""
    assert records.last() == 0 and records.read(1) is None
    assert records.write(1, b"one") and records.write(3, b"three") and records.write(1, b"one")
    assert not records.write(3, b"else")
    assert (records.last(), records.read(1), records.read(2), records.read(3)) == (3, b"one", None, b"three")


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_chains_do_not_meet(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Two databases that had one store after the other; and no record is a part."""
    parts = open_parts(place(kind, request, tmp_path), tmp_path / "home", cache=1.0)
    parts.records("one").write(1, b"one")
    assert parts.records("two").last() == 0 and tuple(parts.digests()) == () and not parts.inventory()
