"""The coordinator moves to another host and name, and one of several is lost: agents find the others by themselves."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.acceptance.runbook.book import ROSTER, Book, opened, plays
from tests.redis import Redis
from tests.services import Postgres, free_port

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
MOVE, LOSE = "Move to another host and name", "Lose a replica"
BEHIND = "have not told"


def known(book: Book, name: str) -> list[str]:
    """The addresses that an agent's home has."""
    home = Path(book.spelt("/srv/agents")) / name / "coordinator.json"
    return list(json.loads(home.read_text())["addresses"])


@plays(MOVE, 0, 1, 2, 3, 4)
def test_another_host_and_name(book: Book, undisturbed: str) -> None:
    """With a dump, a restore, and an address that nobody answers among those that are announced; no agent is restarted."""
    book.coordinator()
    book.agents()
    old, new = f"127.0.0.1:{book.ports['grpc']}", f"127.0.0.2:{book.ports['new grpc']}"
    run = book.begin(book.client())
    book.play(MOVE, 0)
    book.stop()
    book.play(MOVE, 1)
    book.net.until(lambda: BEHIND not in book.play(MOVE, 2), "all agents to follow")
    book.stop()
    book.shell("mkdir -p /backup; cp -au /srv/tideline/parts /srv/tideline/admin.key /srv/tideline/signing.key /backup/")
    book.shell("""sqlite3 /srv/tideline/coordinator.db ".backup '/backup/coordinator.db'" """)
    book.play(MOVE, 3, where="new", host="127.0.0.2")
    client = book.client("/srv/tideline-new")
    for name in ROSTER:
        book.heard(name, "coordinator_found")
    book.completed(client, run, undisturbed)
    book.net.until(lambda: all(known(book, name) == [new] for name in ROSTER), f"all to forget {old}")
    book.net.until(lambda: BEHIND not in book.play(MOVE, 4), "all to have been heard at the new one")
    said = book.play(MOVE, 4)
    assert run in said and all(name in said for name in ROSTER)
    assert not any("enrolled" in book.net.log(name).partition("coordinator_found")[2] for name in ROSTER), "none began anew"


@plays(LOSE, 0, 1, 2)
def test_one_of_two_is_lost(emptied: Postgres, tmp_path: Path, digits: Path, undisturbed: str) -> None:
    """Killed for good while it conducts a run: the other one takes over, a third one joins, and the lost one is forgotten."""
    redis = Redis(tmp_path)
    try:
        with opened(tmp_path, digits) as book:
            book.names |= {"db.example": f"127.0.0.1:{emptied.port}", "redis.example:6379": f"127.0.0.1:{redis.port}"}
            lose(book, undisturbed)
    finally:
        redis.kill()


def lose(book: Book, undisturbed: str) -> None:
    del book.environment["TIDELINE_CA"]
    stores = "--database postgresql://tideline@db.example/tideline --parts /srv/parts --redis redis://redis.example:6379"
    common = f"--lease 3 {stores} --insecure"
    both = f"--advertise coordinator.example:7800,new.example:7800 {common}"
    book.start(f"tideline coordinator --home /srv/tideline --host 0.0.0.0 {both}")
    book.start(f"tideline coordinator --home /srv/tideline-2 --host 0.0.0.0 {both}", "coordinator-2", "new", "127.0.0.2")
    book.agents("--insecure")
    there = book.client("/srv/tideline-2", None)
    run = book.begin(there)
    book.net.kill("coordinator")
    said = book.play(LOSE, 0)
    assert run in said and all(name in said for name in ROSTER)
    book.play(LOSE, 1, name="coordinator-3", where="third")
    book.stop("coordinator-2")
    after = f"--advertise new.example:7800,third.example:7800 {common}"
    book.start(f"tideline coordinator --home /srv/tideline-2 --host 0.0.0.0 {after}", "coordinator-2", "new", "127.0.0.2")
    third = book.client("/srv/tideline-3", None)
    book.completed(third, run, undisturbed)
    lost = f"127.0.0.1:{book.ports['grpc']}"
    book.net.until(lambda: not any(lost in known(book, name) for name in ROSTER), "all to forget the lost one")
    assert all(name in book.play(LOSE, 2) for name in ROSTER)


def test_addresses_of_nobody_are_in_nobodys_way(book: Book, undisturbed: str) -> None:
    """A coordinator that is stopped and started again, beside announced addresses that are dead: its agents are back."""
    dead = f"127.0.0.1:{free_port()},https://127.0.0.1:{free_port()}/tideline"
    book.coordinator("--advertise", f"{dead},127.0.0.1:{book.ports['grpc']}")
    book.agents("--coordinator", f"127.0.0.1:{book.ports['grpc']}")
    run = book.begin(book.client())
    book.stop()
    for name in ROSTER:
        book.heard(name, "address_tried")
    book.again()
    book.completed(book.client(), run, undisturbed)
    assert shlex.split(dead.replace(",", " "))[0] not in known(book, "hospital-a")
