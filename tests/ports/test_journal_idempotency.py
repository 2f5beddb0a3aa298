"""One suite for every journal: what people ask for under a key is written once, whoever tries again and whoever comes late."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from journal_names import OTHER, RUN
from journal_values import advance, began, invite, joins, run_row, together, visible
from relay import relayed

from tests.postgres import run as run_sql
from tideline.core.errors import Unreachable
from tideline.engine.coordinator.idempotency import KEPT_SECONDS
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.journal import Journal
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
