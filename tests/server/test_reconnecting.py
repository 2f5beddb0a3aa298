"""How long an agent waits before it calls again."""

from __future__ import annotations

import threading

import pytest
import tenacity

from tests.services import free_port
from tideline.core.errors import Unreachable
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink
from tideline_agent.link.calls import ABSENT_SECONDS, TROUBLED_SECONDS, pause
from tideline_agent.link.lines import OPTIONS
from tideline_agent.link.outcomes import Absent

LATE = 60  # tries, after which pauses grow no more


def pauses(error: Exception) -> list[float]:
    """Pauses after very many tries that all ended with this error."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = LATE
    state.set_exception((type(error), error, None))
    return [pause(state) for _ in range(200)]


def test_where_nobody_listens_an_agent_calls_again_soon() -> None:
    """However long its coordinator was away: it is back within two seconds, with what gRPC itself waits and varies."""
    assert max(pauses(Absent("away"))) <= ABSENT_SECONDS
    assert ABSENT_SECONDS + 1.2 * dict(OPTIONS)["grpc.max_reconnect_backoff_ms"] / 1000 < 2.0


def test_a_coordinator_in_trouble_is_spared() -> None:
    """One that answers that it cannot, is asked more and more seldom."""
    assert ABSENT_SECONDS < max(pauses(Unreachable("The store does not answer"))) <= TROUBLED_SECONDS


def test_a_port_that_nobody_listens_on_is_known_as_such() -> None:
    """And told of as ever."""
    link = GrpcLink(Endpoints((f"127.0.0.1:{free_port()}",)), "ann", Keys.made(), threading.Event())
    try:
        with pytest.raises(Absent) as caught:
            link.beat({})
        assert caught.value.kind == "Unreachable"
    finally:
        link.close()
