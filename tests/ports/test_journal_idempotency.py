"""One suite for every journal: what people ask for under a key is written once, whoever tries again and whoever comes late."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from journal_names import ANN, BOB, OTHER, RUN, TEAM
from journal_values import advance, began, client, invite, joins, run_row, together, visible
from relay import relayed
from stores import place
from test_journal_people import key

from tests.postgres import run as run_sql
from tideline.archive.records import MemoryRecords, Records
from tideline.core.errors import Unreachable
from tideline.engine.audit.log import Tip, follow
from tideline.engine.audit.witness import WITNESSED, Seen, genuine, proof_of, restored, seen
from tideline.engine.coordinator.idempotency import KEPT_SECONDS
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.accounts import Keys, Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.parts import open_parts
from tideline_server.store import SqlJournal

TOLD = Answer(201, (("location", "/runs/a"), ("x", "\xe9")), '{"run": "a\x1a", "name": "Zoë"}')
ROWS = "SELECT key, worker, chosen::text, answer::text FROM idempotency_records"


def idempotency_record(worker: str = "one", **changes: Any) -> IdempotencyRecord:
    """An idempotency record that one worker is at."""
    return IdempotencyRecord(
        **{"key": "key", "asked": "start", "seed": f"seed of {worker}", "made": 1e9, "worker": worker, **changes}
    )


def test_the_first_has_the_key(journal: Journal) -> None:
    """Who comes later finds the first's idempotency record, seed and all; another key is another idempotency record."""
    assert journal.reserve(idempotency_record()) == idempotency_record()
    assert journal.reserve(idempotency_record("two")) == idempotency_record()
    assert journal.reserve(idempotency_record("two", key="other")) == idempotency_record("two", key="other")


def test_one_of_many_has_the_key(journal: Journal) -> None:
    """Of eight that reserve a key at the same moment one is at it, and all know who."""
    for turn in range(5):
        named = [idempotency_record(f"{turn} {at}", key=str(turn)) for at in range(8)]
        assert len(set(map(repr, together(*(partial(journal.reserve, each) for each in named))))) == 1


def test_another_request_does_not_get_the_record(journal: Journal) -> None:
    """Not even one that nobody is at: what stands there says what was asked for."""
    journal.reserve(idempotency_record())
    journal.leave("key", "one")
    assert journal.reserve(idempotency_record("two", asked="cancel")) == idempotency_record(worker="", seed="seed of one")


def test_a_worker_who_leaves_makes_room(journal: Journal) -> None:
    """The next takes the idempotency record up under the first one's seed; who left for another does nothing."""
    journal.reserve(idempotency_record())
    journal.leave("key", "somebody")
    assert journal.reserve(idempotency_record("two")).worker == "one"
    journal.leave("key", "one")
    assert journal.reserve(idempotency_record("two")) == idempotency_record("two", seed="seed of one")
    journal.leave("unknown", "one")


def test_one_of_two_takes_over(journal: Journal) -> None:
    """Two that saw the same worker for too long: one takes the idempotency record over, the other sees that."""
    journal.reserve(idempotency_record())
    after = together(*(partial(journal.reserve, idempotency_record(name), "one") for name in ("two", "three")))
    assert after[0] == after[1] and after[0].worker in ("two", "three")  # type: ignore[attr-defined]


def test_what_is_chosen_first_stays(journal: Journal) -> None:
    """A later try goes by what the first chose, even if that was nothing in particular."""
    journal.reserve(idempotency_record())
    assert journal.choose("key", {"run-a": 3}) == {"run-a": 3}
    assert journal.choose("key", {"run-a": 5}) == {"run-a": 3}
    assert journal.reserve(idempotency_record("two")).chosen == {"run-a": 3}
    journal.reserve(idempotency_record(key="other"))
    assert journal.choose("other", {}) == journal.choose("other", {"run-a": 5}) == {}


def test_an_answer_is_kept_as_it_was(journal: Journal) -> None:
    """Nobody is at the idempotency record afterwards, nobody takes it over, and a second answer changes nothing."""
    journal.reserve(idempotency_record())
    assert journal.conclude("key", "one", TOLD) == TOLD
    assert journal.conclude("key", "one", replace(TOLD, status=200)) == TOLD
    assert journal.reserve(idempotency_record("two")) == idempotency_record(worker="", seed="seed of one", answer=TOLD)
    assert journal.reserve(idempotency_record("two"), "one").answer == TOLD
    assert journal.conclude("key", "two", replace(TOLD, status=200)) == TOLD


def test_who_was_overtaken_writes_nothing(journal: Journal) -> None:
    """A worker whose idempotency record another has taken over creates no run and gives no answer; the other does both."""
    journal.reserve(idempotency_record())
    journal.reserve(idempotency_record("two"), "one")
    for late in (
        lambda: journal.create_once("key", "one", [run_row()], joins()),
        lambda: journal.conclude("key", "one", TOLD),
        lambda: journal.create_once("forgotten", "one", [run_row()], joins()),
    ):
        with pytest.raises(Unreachable, match="taken up by another try"):
            late()
    assert journal.run_ids() == ()
    journal.create_once("key", "two", [run_row()], joins())
    assert journal.conclude("key", "two", TOLD) == TOLD
    with pytest.raises(Unreachable):
        journal.create_once("key", "two", [run_row(OTHER)], [])


def test_runs_are_created_once(journal: Journal) -> None:
    """As by `create`; a second time nothing changes, though the run has gone on and the rows are others."""
    journal.reserve(idempotency_record())
    journal.create_once("key", "one", iter([run_row(), run_row(OTHER)]), iter(joins()))
    assert journal.run_ids() == (RUN, OTHER) and len(journal.orders(RUN)) == 3
    assert [e.kind for e in journal.events(OTHER)] == ["created"]
    journal.advance(advance(JOIN))
    before = visible(journal)
    journal.create_once("key", "one", [run_row(created=9.0)], joins())
    assert visible(journal) == before


def test_two_tries_at_once_create_one_run(journal: Journal) -> None:
    """Of one worker: its first try's commit may be under way when the second comes."""
    journal.reserve(idempotency_record())
    together(*(lambda: journal.create_once("key", "one", [run_row()], joins()) for _ in range(4)))
    assert [e.kind for e in journal.events(RUN)] == ["created"] and len(journal.orders(RUN)) == 3


def test_records_are_forgotten_after_a_day(journal: Journal) -> None:
    """Not before; then the key is as good as new, by whoever comes first, and what is written late is refused."""
    journal.reserve(idempotency_record())
    journal.conclude("key", "one", TOLD)
    assert journal.reserve(idempotency_record("two", made=1e9 + KEPT_SECONDS)).answer == TOLD
    later = idempotency_record("two", made=1e9 + KEPT_SECONDS + 1, asked="cancel")
    assert journal.reserve(later) == later
    journal.reserve(idempotency_record(key="other", made=1e9 + 3 * KEPT_SECONDS))
    with pytest.raises(Unreachable):
        journal.conclude("key", "two", TOLD)


def test_an_invitation_stays_as_it_is(journal: Journal) -> None:
    """A token that was used does not become fresh by being written again."""
    journal.add_invite(invite(used_by="ann"))
    journal.add_invite(invite(name="other", expires=5.0))
    assert journal.invite("token") == invite(used_by="ann")


def test_commits_whose_answers_are_lost(address: str) -> None:
    """On Postgres each is Unreachable though it was done, and done again it leaves what is there."""
    with relayed(address) as (relay, url):
        far = SqlJournal(url)
        far.reserve(idempotency_record())
        for again in (
            lambda: far.choose("key", {"run-a": 3}),
            lambda: far.create_once("key", "one", [run_row()], joins()),
            lambda: far.add_invite(invite()),
            lambda: far.conclude("key", "one", TOLD),
        ):
            relay.cutting = True
            with pytest.raises(Unreachable):
                again()
            relay.cutting = False
            written = run_sql(address, ROWS), visible(far)
            again()
            assert (run_sql(address, ROWS), visible(far)) == written
        assert far.reserve(idempotency_record("two")) == idempotency_record(
            worker="", seed="seed of one", chosen={"run-a": 3}, answer=TOLD
        )
        assert [e.kind for e in far.events(RUN)] == ["created"]
        far.close()


def test_a_create_under_way_is_waited_for(address: str) -> None:
    """On Postgres: who takes a record over while its run is being written sees the run, whole, or writes it himself."""
    one, two = SqlJournal(address), SqlJournal(address)
    for turn in range(8):
        row, key = run_row(f"run-{turn}"), str(turn)  # type: ignore[arg-type]
        one.reserve(idempotency_record(key=key))

        def overtake(row: Any = row, key: str = key) -> None:
            two.reserve(idempotency_record("two", key=key), "one")
            two.create_once(key, "two", [row], joins(row.id))

        def create(row: Any = row, key: str = key) -> bool:
            try:
                one.create_once(key, "one", [row], joins(row.id))
            except Unreachable:
                return False
            return True

        together(create, overtake)
        assert [e.kind for e in two.events(row.id)] == ["created"] and len(two.orders(row.id)) == 3
    one.close()
    two.close()


def test_nothing_else_changes(journal: Journal) -> None:
    """Idempotency records are no part of a run."""
    began(journal)
    before = visible(journal)
    journal.reserve(idempotency_record())
    journal.choose("key", {})
    journal.conclude("key", "one", TOLD)
    assert visible(journal) == before


# One suite for every journal: the witness, its records, and a database that is older than they are.


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
