"""An agent whose clock is two days off: it works, and everybody who looks is told."""

from __future__ import annotations

import time

import grpc
import httpx
import pytest

from tests.acceptance.harness import Net
from tests.acceptance.raw import Raw
from tideline_protos.v1 import federation_pb2 as pb

pytestmark = pytest.mark.processes
TWO_DAYS = 2 * 86400


def test_a_clock_two_days_off_is_told(coordinator: Net) -> None:
    """By /ready, to anybody and without a name; by the coordinator's log, with it. When the clock is right, no more."""
    token = coordinator.client().post("/invites", {"name": "late", "ttl_seconds": 600})["token"]
    with grpc.insecure_channel(f"127.0.0.1:{coordinator.grpc}") as channel:
        agent = Raw(channel, "late")
        agent.enrol(token)
        agent.ask("Beat", pb.BeatRequest(clock_ms=int((time.time() - TWO_DAYS) * 1000)), pb.BeatReply)
        told = httpx.get(f"http://127.0.0.1:{coordinator.http}/ready").json()
        assert told["status"] == "ready"
        assert any("differ from the coordinator's by more than a minute" in each for each in told["warnings"]), told
        assert "client_clock" in coordinator.log("coordinator") and "late" in coordinator.log("coordinator")
        agent.ask("Beat", pb.BeatRequest(clock_ms=int(time.time() * 1000)), pb.BeatReply)
        assert httpx.get(f"http://127.0.0.1:{coordinator.http}/ready").json()["warnings"] == []
