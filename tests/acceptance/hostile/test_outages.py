"""A database that dies under a coordinator: sites and users hear of it, and not where it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from tests.acceptance.harness import Net, net
from tests.acceptance.raw import Raw
from tests.services import Postgres, why_no_postgres

pytestmark = pytest.mark.processes
INCIDENT = re.compile(r"incident ([0-9a-f]{8})")


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[tuple[Net, Postgres, str, Raw]]:
    """A coordinator, its database, which was killed, a viewer's key and an agent."""
    if why_no_postgres() and os.environ.get("CI", "").lower() != "true":
        pytest.skip(why_no_postgres())
    database = Postgres(tmp_path)
    try:
        with net(tmp_path, database=database.url) as federation:
            federation.coordinator()
            key = federation.client().post("/keys", {"name": "alice", "role": "viewer"})["key"]
            token = federation.client().post("/invites", {"name": "a", "ttl_seconds": 600})["token"]
            with grpc.insecure_channel(f"127.0.0.1:{federation.grpc}") as channel:
                agent = Raw(channel)
                agent.enrol(token.rpartition(".")[2])
                database.kill()
                yield federation, database, key, agent
    finally:
        database.kill()


def incident_in(federation: Net, database: Postgres, said: str) -> str:
    """The number in an answer that names no place; the coordinator's log has the place beside that number."""
    found = INCIDENT.search(said)
    assert found, said
    for place in (str(database.port), "127.0.0.1", str(database.folder), "postgres"):
        assert place not in said, said
    lines = [line for line in federation.log("coordinator").splitlines() if "store_failed" in line and found[1] in line]
    assert lines and str(database.port) in lines[0], federation.log("coordinator")
    return found[1]


def test_neither_a_viewer_nor_an_agent_is_told_where_a_database_is(outage: tuple[Net, Postgres, str, Raw]) -> None:
    """Both hear what happened, with a number under which the operator's log has all of it."""
    federation, database, key, agent = outage
    answer = httpx.get(f"http://127.0.0.1:{federation.http}/runs", headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 503
    assert answer.json()["detail"] == "The store does not answer"
    assert answer.json()["context"]["incident"] == incident_in(federation, database, answer.text)
    with pytest.raises(grpc.RpcError) as caught:
        agent.beat()
    error = json.loads(dict(caught.value.trailing_metadata())["tideline-error-bin"])
    assert error["kind"] == "Unreachable"
    incident_in(federation, database, json.dumps(error))
