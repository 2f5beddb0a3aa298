"""Orders over HTTP: who was asked at a place of the plan, and what became of it."""

from __future__ import annotations

import pytest
from api_world import EXPERIMENT, OWN, SITES, Coordinator, refused


def test_orders_of_a_run(ended: Coordinator) -> None:
    """Of the newest place, of one, of several: the same as the journal has, and where in the plan that was."""
    row = ended.federation.journal.run(ended.run)  # type: ignore[arg-type]
    assert row is not None
    every = ended.get(f"/runs/{ended.run}/orders?last=50").json()
    places = sorted({order["cursor"] for order in every})
    assert places[0] == -1 and len(places) > 2
    for order in every:
        fact = row.fact(order["cursor"])
        assert (order["phase"], order["round"], order["attempt"]) == (fact.phase, fact.round, 1)
        assert order["status"] == "answered" and order["created"] <= order["answered"] and order["failure"] is None
    joins = ended.get(f"/runs/{ended.run}/orders?cursor=-1").json()
    assert [order["client"] for order in joins] == list(SITES) and {order["phase"] for order in joins} == {"join"}
    newest = ended.get(f"/runs/{ended.run}/orders").json()
    assert newest == [order for order in every if order["cursor"] == places[-1]]
    assert ended.get(f"/runs/{ended.run}/orders?last=2").json() == [o for o in every if o["cursor"] in places[-2:]]
    assert set(newest[0]) == {
        *("client", "cursor", "phase", "round", "attempt", "status", "held", "created", "beat", "answered", "progress"),
        *("bytes_down", "bytes_up", "failure", "stages"),
    }
    assert ended.get(f"/runs/{ended.run}/orders?cursor=99").json() == []


def test_open_orders_and_failed_ones(door: Coordinator) -> None:
    """Who is awaited, and who was revoked and why."""
    made = door.post("/runs", EXPERIMENT, headers=OWN).json()["run"]
    assert {o["status"] for o in door.get(f"/runs/{made}/orders", headers=OWN).json()} == {"open"}
    door.post("/clients/anna/revoke", {"reason": "left"}, headers=OWN)
    anna = door.get(f"/runs/{made}/orders", headers=OWN).json()[0]
    assert anna["client"] == "anna" and anna["status"] == "failed" and "left" in anna["failure"]["what"]
    assert anna["failure"]["kind"] == "Revoked" and anna["answered"] is not None
    assert door.get(f"/runs/{made}/orders", headers=door.add_key("bob", "viewer")).status_code == 200


def test_what_is_asked_oddly(ended: Coordinator, subtests: pytest.Subtests) -> None:
    """It is refused with the name of the parameter."""
    for query in ("cursor=-2", "last=0", "last=51", "cursor=x", "last=", "cursor=0&last=2", "cursor=3000000000"):
        with subtests.test(query):
            wrong = query.rpartition("&")[2].partition("=")[0]
            refused(ended.get(f"/runs/{ended.run}/orders?{query}"), 422, "ConfigRefused", wrong)
    refused(ended.get("/runs/0123456789ab/orders"), 404, "NotFound")
