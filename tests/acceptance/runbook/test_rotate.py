"""Every key is rotated while a run is under way; the old ones are refused afterwards."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.acceptance.runbook.book import Book, opened, plays
from tests.redis import Redis
from tests.services import Postgres, free_port
from tideline.client.http import Client, Endpoint
from tideline.core.errors import IdentityRefused

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
ROTATE = "Rotate every key"


def fingerprint(client: Client, name: str) -> str:
    (row,) = [each for each in client.get("/clients") if each["name"] == name]
    return str(row["fingerprint"])


def stored(postgres: Postgres) -> str:
    """What Postgres has of the role's password."""
    with psycopg.connect(postgres.url) as connection:
        found = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'tideline'").fetchone()
    assert found is not None
    return str(found[0])


@plays(ROTATE, 0, 1, 2, 3, 4, 5)
def test_every_key_is_rotated(emptied: Postgres, tmp_path: Path, digits: Path, undisturbed: str) -> None:
    """One after the other, as the page has them, with a start where it says so; the run ends as if nothing had been."""
    redis = Redis(tmp_path)
    try:
        with opened(tmp_path, digits, f"postgresql://tideline@127.0.0.1:{emptied.port}/tideline") as book:
            book.names |= {"db.example": f"127.0.0.1:{emptied.port}", "redis.example:6379": f"127.0.0.1:{redis.port}"}
            book.shell("redis-cli -u redis://redis.example:6379 ACL SETUSER tideline on '>the-old-one' '~*' '&*' '+@all'")
            rotate(book, emptied, undisturbed)
    finally:
        redis.kill()


def rotate(book: Book, postgres: Postgres, undisturbed: str) -> None:
    book.environment |= {
        "PGPASSWORD": "the-old-one",
        "TIDELINE_REDIS": book.spelt("redis://tideline:the-old-one@redis.example:6379"),
    }
    book.names["hooks.example"] = f"127.0.0.1:{free_port()}"
    book.coordinator("--notify-private", "all")
    book.agents()
    book.shell("tideline keys add --name alice --role operator --ttl 90d")
    book.shell("tideline notify add https://hooks.example/tideline --name on-call --on stalled")
    client = book.client()
    run, old = book.begin(client), fingerprint(client, "hospital-b")
    book.play(ROTATE, 0)
    with pytest.raises(IdentityRefused):
        client.get("/runs")
    client = book.client()
    said = book.play(ROTATE, 1)
    assert "alice-2" in said and "revoked" in said
    book.play(ROTATE, 2)
    book.heard("hospital-b", "keys_rotated")
    assert fingerprint(client, "hospital-b") != old
    book.play(ROTATE, 3)
    assert [each["name"] for each in client.get("/notify")] == ["on-call-2"]
    before = stored(postgres)
    book.play(ROTATE, 4)
    assert stored(postgres) != before
    # The start that the page speaks of, with both new passwords; Redis forgets the old one with the last line.
    assert "PONG" in book.play(ROTATE, 5)
    book.stop()
    book.net.more |= {
        "PGPASSWORD": "the-new-one",
        "TIDELINE_REDIS": book.spelt("redis://tideline:the-new-one@redis.example:6379"),
    }
    book.again()
    book.completed(book.client(), run, undisturbed)


def test_a_shared_admin_key_is_replaced_at_once(book: Book) -> None:
    shared = Path(book.spelt("/srv/admin.shared"))
    shared.write_text("the-first-key-of-all-replicas")
    book.coordinator("--admin-key-file", str(shared))
    url = f"https://127.0.0.1:{book.ports['http']}"

    def called(key: str) -> object:
        return Client.of(Endpoint(url=url, api_key=key, ca=Path(book.spelt("/srv/tls/ca.pem")))).get("/runs")

    assert called("the-first-key-of-all-replicas") == []
    fresh = shared.with_suffix(".new")
    fresh.write_text("the-second-key-of-all-replicas\n")
    fresh.replace(shared)
    assert called("the-second-key-of-all-replicas") == []
    with pytest.raises(IdentityRefused):
        called("the-first-key-of-all-replicas")
