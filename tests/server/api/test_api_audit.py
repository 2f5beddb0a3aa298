"""The audit log over HTTP: who asked is told, and the list leads to the tip."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_world import EXPERIMENT, OWN, Coordinator, locked, refused

from tideline.core.errors import ChainBroken
from tideline.engine.audit.log import Tip, entry_of, follow
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits
from tideline_server.store import SqlJournal


def entries(door: Coordinator, query: str = "") -> list[dict[str, Any]]:
    """The entries."""
    answer = door.get(f"/audit{query}", headers=OWN)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_who_asked_is_told(door: Coordinator) -> None:
    """For everything that a person does, under the name of the key, with an Idempotency-Key as well as without."""
    alice = door.add_key("alice", "admin")
    run = door.post("/runs", EXPERIMENT, headers=alice | {"Idempotency-Key": "1"}).json()["run"]
    door.post(f"/runs/{run}/cancel", headers=alice)
    for _ in range(2):
        door.post("/invites", {"name": "dora", "hold": True}, headers=alice | {"Idempotency-Key": "2"})
    door.post("/clients/anna/revoke", {"reason": "left"}, headers=alice)
    door.send("DELETE", "/keys/alice", headers=alice)
    before = entries(door, "?kind=key_made")[0]["seq"] - 1
    told = [(entry["kind"], entry["by"]) for entry in entries(door, f"?after={before}")]
    events = ("run_started", "run_cancelled", "invited", "revoked", "key_ended")
    assert told == [("key_made", "admin"), *((kind, "alice") for kind in events)]


def test_the_list_leads_to_the_tip(door: Coordinator) -> None:
    """Page by page, over HTTP's own numbers, the hashes are those that were written."""
    door.post("/invites", {"name": "dora", "ttl_seconds": 0.1 + 1e3}, headers=OWN)
    pages, link = [], "/audit?limit=2"
    while link:
        answer = door.get(link, headers=OWN)
        pages += answer.json()
        link = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    tip = door.get("/audit/tip", headers=OWN).json()
    assert follow(Tip(), map(entry_of, pages)) == Tip(tip["seq"], tip["hash"]) and len(pages) == tip["seq"] > 4
    assert (tip["archived"], tip["archived_hash"]) == (0, Tip().hash)


def test_what_cannot_be_asked(door: Coordinator, subtests: pytest.Subtests) -> None:
    """It is refused with its place."""
    for query in ("limit=0", "after=-1", "kind=x", "run=../x", "since=soon", "since=nan"):
        with subtests.test(query):
            refused(door.get(f"/audit?{query}", headers=OWN), 422, "ConfigRefused", query.partition("=")[0])


def test_wrong_keys_stand_in_the_log(door: Coordinator) -> None:
    """Once each an hour for an address, without the key; a call with none does not."""
    for _ in range(3):
        assert door.get("/runs", headers={"Authorization": "Bearer a guess"}).status_code == 401
    assert door.get("/runs").status_code == 401
    [entry] = entries(door, "?kind=sign_in_refused")
    assert entry["details"]["port"] == "http" and entry["details"]["address"] == "127.0.0.1" and "guess" not in str(entry)


def test_who_is_over_the_limit_stands_in_the_log(door: Coordinator) -> None:
    """A guesser hides nothing behind his own guesses: what is refused next is noted, though it is answered with 429."""
    alice = door.add_key("alice", "admin")
    door.send("DELETE", "/keys/alice", headers=OWN)
    door.wear(limits=Limits(LocalCounts(), ManualClock(1_000_000_020.0), wrong_keys=1))
    for headers, status in (({"Authorization": "Bearer a guess"}, 401), (alice, 429)):
        assert door.get("/runs", headers=headers).status_code == status
    told = [entry["details"]["what"] for entry in entries(door, "?kind=sign_in_refused")]
    assert len(told) == 2 and told[1].startswith("The API key 'alice' was revoked")


def test_who_had_parts_destroyed_is_told(door: Coordinator) -> None:
    """Once, though the call is sent twice."""
    alice = door.add_key("alice", "operator")
    door.services.part_store.parts.put([b"litter"])
    door.federation.clock.advance(1e6)
    for _ in range(2):
        assert door.post("/parts/sweep", headers=alice | {"Idempotency-Key": "1"}).json()["dropped"] == 1
    [entry] = entries(door, "?kind=parts_swept")
    assert (entry["by"], entry["details"]) == ("alice", {"dropped": 1, "freed": 6})


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Coordinator]:
    """A door over a journal in a file."""
    with closing(SqlJournal(tmp_path / "journal.db")) as journal:
        yield locked().beside(journal)


@pytest.mark.nightly(job="services")
def test_what_lies_in_a_database_comes_out_as_it_was_written(stored: Coordinator) -> None:
    """Odd letters and long fractions too."""
    stored.post("/invites", {"name": "dora", "labels": {"wärd": "é\u2028💧"}, "ttl_seconds": 100 / 3}, headers=OWN)
    stored.post("/keys", {"name": "bob", "role": "viewer", "ttl_seconds": 10 / 3}, headers=OWN)
    tip = stored.get("/audit/tip", headers=OWN).json()
    assert follow(Tip(), map(entry_of, entries(stored))) == Tip(tip["seq"], tip["hash"]) == stored.services.journal.audit_tip()


CHANGES = (
    "details = substr(details, 1, length(details) - 1)",
    "details = '[1]'",
    "at = 'x'",
    "at = 9e999",
    "by = X'FF'",
    "hash = 'x'",
    "details = NULL",
    'details = \'{"a":' + "[" * 300 + "]" * 300 + "}'",
)


def test_an_unreadable_entry_is_listed_and_named(stored: Coordinator, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The others of its page are listed too, and whoever follows them comes as far as to it."""
    for name in ("dora", "emil", "fred"):
        stored.post("/invites", {"name": name}, headers=OWN)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
        database.execute("DROP TRIGGER audit_no_UPDATE")
        database.execute("CREATE TABLE whole AS SELECT * FROM audit")
    for change in CHANGES:
        with subtests.test(change[:40]):
            with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
                same = ", ".join(f"{name} = whole.{name}" for name in ("at", "by", "hash", "details"))
                database.execute(f"UPDATE audit SET {same} FROM whole WHERE whole.seq = audit.seq")
                database.execute(f"UPDATE audit SET {change} WHERE seq = 3")
            rows = entries(stored)
            assert [row["seq"] for row in rows] == [1, 2, 3, 4]
            with pytest.raises(ChainBroken, match="Entry 3 is not as it was written") as broken:
                follow(Tip(), map(entry_of, rows))
            assert broken.value.context["entry"] == 3
