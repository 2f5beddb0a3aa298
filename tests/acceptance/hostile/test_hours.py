"""What an agent says of its hours is cut to what can be, counts once, and may be missing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import grpc
import pytest

from tests.acceptance.harness import Net
from tests.acceptance.hostile.liar import Liar
from tideline_protos.v1 import federation_pb2 as pb

pytestmark = pytest.mark.processes


def unreported(there: Net) -> int:
    return int(there.client().get("/projects/default/hours")["unreported"])


@pytest.fixture(scope="module")
def liar(coordinator: Net) -> Iterator[Liar]:
    with grpc.insecure_channel(coordinator.address) as channel:
        yield Liar(channel).begin(coordinator, "spender")


@pytest.mark.parametrize(
    "lie",
    [
        pb.Spent(gpu_seconds=1e12, cpu_seconds=1e12, devices=2**32 - 1, cores=2**32 - 1),
        pb.Spent(gpu_seconds=math.nan, cpu_seconds=-math.inf, devices=1, cores=1),
        pb.Spent(gpu_seconds=math.inf, cpu_seconds=-1.0, devices=1, order="\x00" * 5000),
    ],
)
def test_lies_about_hours(coordinator: Net, liar: Liar, lie: pb.Spent) -> None:
    """They are cut to what can be, with a note, and the reply is taken. Sent again, it counts no more."""
    order = liar.asked()
    for verdict in ("accepted", "stale"):
        assert liar.report(order, facts='{"labelled": true}', spent=lie).verdict == verdict
    spent = coordinator.result(order.run)["spent"]
    assert (spent["reported"], spent["unreported"]) == (1, 0)
    assert 0.0 <= spent["gpu_hours"] <= 64 * 600 / 3600 and 0.0 <= spent["cpu_hours"] <= 1024 * 600 / 3600
    events = coordinator.client().events(order.run)
    liar.over(order)
    assert "spent_clipped" in [event["data"].get("note") for event in events]


def test_an_agent_from_before(coordinator: Net, liar: Liar) -> None:
    before, order = unreported(coordinator), liar.asked()
    assert liar.report(order, facts='{"labelled": true}').verdict == "accepted"
    liar.over(order)
    assert unreported(coordinator) == before + 1
    assert coordinator.result(order.run)["spent"] is None
