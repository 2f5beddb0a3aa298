"""The audit log over HTTP: who asked is told, and the list leads to the tip."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_world import EXPERIMENT, Coordinator, refused

from tideline.core.errors import ChainBroken
from tideline.engine.audit.log import Tip, entry_of, follow
from tideline.engine.coordinator.api_keys import hash_of
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits
from tideline_server.store import SqlJournal

OWN = {"Authorization": "Bearer the home's key"}


@pytest.fixture
def door() -> Coordinator:
    """A coordinator with a key of its own."""
    return Coordinator(api_key_hash=hash_of("the home's key"))


def log(door: Coordinator, query: str = "") -> list[dict[str, Any]]:
    """The entries."""
    answer = door.get(f"/audit{query}", headers=OWN)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_who_asked_is_told(door: Coordinator) -> None:
    """For everything that a person does, under the name of the key, with an Idempotency-Key as well as without."""
    key = door.post("/keys", {"name": "alice", "role": "admin"}, headers=OWN).json()["key"]
    alice = {"Authorization": f"Bearer {key}"}
    run = door.post("/runs", EXPERIMENT, headers=alice | {"Idempotency-Key": "1"}).json()["run"]
    door.post(f"/runs/{run}/cancel", headers=alice)
    for _ in range(2):
        door.post("/invites", {"name": "dora", "hold": True}, headers=alice | {"Idempotency-Key": "2"})
    door.post("/clients/anna/revoke", {"reason": "left"}, headers=alice)
    door.send("DELETE", "/keys/alice", headers=alice)
    before = log(door, "?kind=key_made")[0]["seq"] - 1
    told = [(entry["kind"], entry["by"]) for entry in log(door, f"?after={before}")]
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


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("after=-1", "after"),
        ("kind=x", "kind"),
        ("run=../x", "run"),
        ("since=soon", "since"),
        ("since=nan", "since"),
    ],
)
def test_what_cannot_be_asked(door: Coordinator, query: str, path: str) -> None:
    """Each is refused with its place."""
    refused(door.get(f"/audit?{query}", headers=OWN), 422, "ConfigRefused", path)


def test_wrong_keys_stand_in_the_log(door: Coordinator) -> None:
    """Once each an hour for an address, without the key; a call with none does not."""
    for _ in range(3):
        assert door.get("/runs", headers={"Authorization": "Bearer a guess"}).status_code == 401
    assert door.get("/runs").status_code == 401
    [entry] = log(door, "?kind=sign_in_refused")
    assert entry["details"]["port"] == "http" and entry["details"]["address"] == "127.0.0.1" and "guess" not in str(entry)


def test_who_is_over_the_limit_stands_in_the_log(door: Coordinator) -> None:
    """A guesser hides nothing behind his own guesses: what is refused next is noted, though it is answered with 429."""
    key = door.post("/keys", {"name": "alice", "role": "admin"}, headers=OWN).json()["key"]
    door.send("DELETE", "/keys/alice", headers=OWN)
    limited = Coordinator(
        api_key_hash=hash_of("the home's key"),
        limits=Limits(LocalCounts(), ManualClock(1_000_000_020.0), wrong_keys=1),
        journal=door.services.journal,
    )
    for guess, status in (("a guess", 401), (key, 429)):
        assert limited.get("/runs", headers={"Authorization": f"Bearer {guess}"}).status_code == status
    told = [entry["details"]["what"] for entry in log(door, "?kind=sign_in_refused")]
    assert len(told) == 2 and told[1].startswith("The API key 'alice' was revoked")


def test_who_had_parts_destroyed_is_told(door: Coordinator) -> None:
    """Once, though the call is sent twice."""
    key = door.post("/keys", {"name": "alice", "role": "operator"}, headers=OWN).json()["key"]
    door.services.part_store.parts.put([b"litter"])
    door.federation.clock.advance(1e6)
    for _ in range(2):
        swept = door.post("/parts/sweep", headers={"Authorization": f"Bearer {key}", "Idempotency-Key": "1"}).json()
        assert swept["dropped"] == 1
    [entry] = log(door, "?kind=parts_swept")
    assert (entry["by"], entry["details"]) == ("alice", {"dropped": 1, "freed": 6})


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Coordinator]:
    """A door over a journal in a file."""
    made = Coordinator(api_key_hash=hash_of("the home's key"))
    with closing(SqlJournal(tmp_path / "journal.db")) as journal:
        f = made.federation
        yield Coordinator(
            api_key_hash=hash_of("the home's key"), journal=journal, run_service=RunService(journal, f.compute, f.bell, f.clock)
        )


@pytest.mark.nightly(job="services")
def test_what_lies_in_a_database_comes_out_as_it_was_written(stored: Coordinator) -> None:
    """Odd letters and long fractions too."""
    stored.post("/invites", {"name": "dora", "labels": {"wärd": "é\u2028💧"}, "ttl_seconds": 100 / 3}, headers=OWN)
    stored.post("/keys", {"name": "bob", "role": "viewer", "ttl_seconds": 10 / 3}, headers=OWN)
    tip = stored.get("/audit/tip", headers=OWN).json()
    assert follow(Tip(), map(entry_of, log(stored))) == Tip(tip["seq"], tip["hash"]) == stored.services.journal.audit_tip()


@pytest.mark.parametrize(
    "change",
    [
        "details = substr(details, 1, length(details) - 1)",
        "details = '[1]'",
        "at = 'x'",
        "at = 9e999",
        "by = X'FF'",
        "hash = 'x'",
        "details = NULL",
        'details = \'{"a":' + "[" * 300 + "]" * 300 + "}'",
    ],
)
def test_an_entry_that_somebody_made_unreadable_is_listed_and_named(stored: Coordinator, tmp_path: Path, change: str) -> None:
    """The others of its page are listed too, and whoever follows them comes as far as to it."""
    for name in ("dora", "emil", "fred"):
        stored.post("/invites", {"name": name}, headers=OWN)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
        database.execute("DROP TRIGGER audit_no_UPDATE")
        database.execute(f"UPDATE audit SET {change} WHERE seq = 3")
    rows = log(stored)
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    with pytest.raises(ChainBroken, match="Entry 3 is not as it was written") as told:
        follow(Tip(), map(entry_of, rows))
    assert told.value.context["entry"] == 3
