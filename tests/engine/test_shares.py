"""A site's count weighs its reply: it must be the one that users see, and a run may pin it, or cap what one site comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import Update
from tideline.archive.errors import Undeclared
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Replies
from tideline.core.run import ClientId, Shares
from tideline.engine.compute.shares import agree, capped, shared_out
from tideline.engine.coordinator.result import share_notes
from tideline.engine.model.orders import Order, Receipt, Reply
from tideline.engine.simulation.federation import Federation

ANNA, BERT, CARL = map(ClientId, ("anna", "bert", "carl"))
ROSTER = dict.fromkeys(("anna", "bert", "carl"), "source")


def update(count: int) -> Update:
    return Update({"w": torch.ones(2)}, count)


def replies(**counts: int) -> Replies[Update]:
    made = {ClientId(name): update(count) for name, count in counts.items()}
    return Replies({c: lambda c=c: made[c] for c in made}, {c: {"samples": float(u.samples)} for c, u in made.items()})  # type: ignore[misc]


def samples(found: Replies[Update]) -> dict[str, int]:
    return {client: reply.samples for client, reply in found.items()}


def test_a_count_is_the_metric_that_users_see() -> None:
    """A site that weighs 10^15 rows and shows 200 is refused; one that tells the same twice is not."""
    agree(update(200), {"samples": 200.0, "loss": 3.0})
    agree(update(200), {})
    with pytest.raises(Undeclared, match="counts 1000000000000000 samples, and reports 200"):
        agree(update(10**15), {"samples": 200.0})


@pytest.mark.parametrize(
    ("shares", "told", "folded", "marks"),
    [
        (Shares(), {"anna": 10, "bert": 990}, {"anna": 10, "bert": 990}, {}),
        (Shares(max=0.5), {"anna": 10, "bert": 10**15}, {"anna": 10, "bert": 10}, {"capped": (BERT,)}),
        (Shares(max=0.5), {"anna": 30, "bert": 30, "carl": 140}, {"anna": 30, "bert": 30, "carl": 60}, {"capped": (CARL,)}),
        (Shares(max=0.5), {"anna": 30, "bert": 30, "carl": 40}, {"anna": 30, "bert": 30, "carl": 40}, {}),
        (Shares(counts={"bert": 20}), {"anna": 10, "bert": 10**15}, {"anna": 10, "bert": 20}, {"pinned": (BERT,)}),
        (Shares(0.5, {"carl": 20}), {"anna": 10, "bert": 90, "carl": 5}, {"anna": 10, "bert": 30, "carl": 20},
         {"pinned": (CARL,), "capped": (BERT,)}),
        (Shares(max=0.1), {"anna": 7, "bert": 3}, {"anna": 3, "bert": 3}, {"capped": (ANNA,)}),
        (Shares(max=0.5), {"anna": 7}, {"anna": 7}, {}),
    ],
)  # fmt: skip
def test_what_is_folded(shares: Shares, told: dict[str, int], folded: dict[str, int], marks: dict[str, Any]) -> None:
    """What was changed is marked; who is not too large stays."""
    found = shared_out(replies(**told), shares)
    assert (samples(found), dict(found.marks)) == (folded, marks)


@given(st.lists(st.integers(1, 10**15), min_size=1, max_size=20), st.floats(0.001, 1.0))
def test_no_site_is_more_than_the_cap(counts: list[int], most: float) -> None:
    """Of the sum of what counts; unless there are too few sites for that, where all count alike. None grows, none vanishes."""
    named = {ClientId(str(i)): float(count) for i, count in enumerate(counts)}
    made = capped(named, most)
    assert all(0 < made[client] <= count for client, count in named.items())
    if len(counts) * most >= 1.0 + 1e-9:
        assert max(made.values()) <= most * sum(made.values()) * (1 + 1e-6)
    else:
        assert len(set(made.values())) == 1 or len(counts) * most >= 1.0 - 1e-6
    assert capped(named, 1.0) == named


def test_a_run_with_shares() -> None:
    """It ends in other bytes than without, is marked, and a cap that changes nothing changes no byte."""
    ends = {}
    for name, shares in (("free", {}), ("loose", {"max": 1.0}), ("tight", {"counts": {"anna": 1}})):
        federation = Federation(METHODS, sites())
        result = federation.run(federation.start({**experiment("fedavg", ROSTER), "shares": shares}))
        assert result["status"] == "completed", result["cause"]
        ends[name] = result
    assert ends["free"]["state_digest"] == ends["loose"]["state_digest"] != ends["tight"]["state_digest"]
    assert next(phase["marks"] for phase in ends["tight"]["phases"] if phase["name"] == "train") == {"pinned": ["anna"]}
    assert ends["tight"]["clients"][0]["samples"] == ends["free"]["clients"][0]["samples"]


@pytest.mark.parametrize(
    ("method", "shares", "path", "words"),
    [
        ("fedavg", {"counts": {"ana": 3}}, "shares.counts.ana", "'ana', who is not in the roster"),
        ("fedavg", {"max": 0.0}, "shares.max", "shares.max is 0.0; it should be at least 0.001"),
        ("fedavg", {"max": 2}, "shares.max", "it should be at most 1"),
        ("fedavg", {"counts": {"anna": 0}}, "shares.counts.anna", "it should be at least 1"),
        ("local", {"max": 0.5}, "shares", "no site of this method tells how many rows"),
    ],
)
def test_what_cannot_be_shared_out(method: str, shares: dict[str, Any], path: str, words: str) -> None:
    """Refused with its place."""
    federation = Federation(METHODS, sites())
    with pytest.raises(ConfigRefused) as refusal:
        federation.start({**experiment(method, ROSTER), "shares": shares})
    assert words in refusal.value.what and refusal.value.context["path"] == path and refusal.value.todo


def test_one_that_lies_about_its_count_is_refused_by_the_coordinator() -> None:
    """Its order fails; the round goes on without it if its quorum allows."""
    federation = Federation(METHODS, sites())
    link = federation.agents[BERT].link
    honest = link.report

    def lying(order: Order, reply: Reply) -> Receipt:
        told = {**reply.metrics, "samples": 1.0} if "samples" in reply.metrics else reply.metrics
        return honest(order, replace(reply, metrics=told))

    link.report = lying  # type: ignore[method-assign]
    asked = {**experiment("fedavg", ROSTER), "waiting": {"min_replies": 2, "deadline": 100.0}}
    result = federation.run(federation.start(asked))
    assert result["status"] == "completed", result["cause"]
    (_, bert, _) = result["clients"]
    assert bert["failures"] and all(each["kind"] == "Undeclared" for each in bert["failures"])


def test_a_site_that_is_nearly_the_mean_is_named() -> None:
    """Of three or more; with so many of all rows."""
    told = [{"name": "anna", "samples": 10}, {"name": "bert", "samples": 10**15}, {"name": "carl", "samples": None}]
    assert share_notes(told) == ()
    (note,) = share_notes([*told, {"name": "dora", "samples": 30}])
    assert note.startswith("bert tells 100.0% of all training rows") and "set shares" in note
    assert share_notes([{"name": str(i), "samples": 10} for i in range(3)]) == ()
