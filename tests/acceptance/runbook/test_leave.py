"""A site leaves for good; another one loses its agent's home and comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.runbook.book import Book, plays
from tideline.core.errors import FederationError

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
LEAVE, LOSE = "Decommission a site", "Lose an agent's home"
REFUSED = 2


@plays(LEAVE, 0, 1, 2, 3, 4)
def test_a_site_leaves(book: Book, undisturbed: str) -> None:
    """Its last run has ended, another one is cancelled; then nothing opens anything in its name, and its ledger is whole."""
    book.coordinator()
    book.agents()
    client = book.client()
    book.completed(client, book.begin(client), undisturbed)
    book.names["RUN"] = run = book.begin(client)
    assert run in book.play(LEAVE, 0) and book.ended(client, run)["status"] == "cancelled"
    book.play(LEAVE, 1)
    assert book.net.running["hospital-b"].wait(60) == REFUSED
    said = book.play(LEAVE, 2)
    assert "Deleted keys.pem" in said and "Forgot 2 runs" in said
    ledger = Path(book.spelt("/srv/agents/hospital-b-ledger.jsonl"))
    kinds = [json.loads(line)["kind"] for line in ledger.read_text().splitlines()]
    assert kinds[0] == "started" and kinds[-1] == "left" and "reply" in kinds
    book.play(LEAVE, 3)
    with pytest.raises(FederationError, match="deleted"):
        client.get(f"/runs/{run}")
    assert "hospital-b: revoked on" in book.play(LEAVE, 4)
    book.net.again("hospital-b")
    assert book.net.running["hospital-b"].wait(60) == REFUSED, "its token is used up, and its keys are new ones"


@plays(LOSE, 0, 1, 2, 3)
def test_a_home_is_lost(book: Book, undisturbed: str) -> None:
    """In the middle of a run, with keys and ledger: the site comes back under its name, and the run ends in the same bytes."""
    book.coordinator()
    book.agents()
    client = book.client()
    book.names["RUN"] = run = book.begin(client)
    book.net.kill("hospital-b")
    shutil.rmtree(book.spelt("/srv/agents/hospital-b"))
    book.play(LOSE, 0)
    book.play(LOSE, 1, name="hospital-b")
    book.heard("hospital-b", "enrolled", 2)
    assert book.ended(client, run)["status"] == "stalled"
    book.play(LOSE, 2)
    book.net.until(lambda: book.result(client, run)["status"] != "stalled", "the run to go on")
    book.completed(client, run, undisturbed)
    assert "approved" in book.play(LOSE, 3)
