"""Clocks that are off, and certificates that end: who is told, and in which words."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from tests.acceptance.test_doctor import issued
from tests.server.grpc_port import grpc_port_of
from tideline.core.notes import Note
from tideline.core.run import ClientId
from tideline.engine.model.validity import ending, off
from tideline.engine.simulation.adapters import ManualClock
from tideline_agent.link import Endpoints
from tideline_agent.validity import Validity
from tideline_server.clocks import LIVING_SECONDS, Clocks

DAY = 86400.0


def test_words() -> None:
    """Of an end that is far, near, very near and past; of clocks that agree and that do not."""
    assert [ending(days * DAY, 0) for days in (15, 13.5, 1.2, 0.1, 25 / DAY)] == [
        "",
        "ends in 13 days",
        "ends in 1 day",
        "ends in 2 hours",
        "ends within the hour",
    ]
    assert (ending(0, 3600), ending(0, 2.5 * DAY)) == ("has ended", "ended 2 days ago")
    assert (off(-2 * DAY), off(61), off(59)) == ("172800 s behind", "61 s ahead of", "")


def test_a_coordinator_tells_of_agents_whose_clocks_are_off() -> None:
    """Their number to everybody, their names to its log, once; and that its own may be the wrong one."""
    clock = ManualClock()
    clock.advance(10 * DAY)
    clocks = Clocks(clock)
    with capture_logs() as lines:
        for _ in range(3):
            clocks.heard(ClientId("a"), int((clock.now() - 2 * DAY) * 1000))
            clocks.heard(ClientId("b"), int(clock.now() * 1000))
            clocks.heard(ClientId("old"), 0)
    assert [(line["client"], line["seconds_ahead"]) for line in lines] == [("a", -2 * DAY)]
    assert clocks.warnings() == ("the clocks of 1 of 2 agents differ from the coordinator's by more than a minute",)
    clocks.heard(ClientId("b"), int((clock.now() - 2 * DAY) * 1000))
    assert clocks.warnings()[0].endswith("; so its own may be wrong")
    clocks.heard(ClientId("b"), int(clock.now() * 1000))
    clocks.heard(ClientId("a"), int(clock.now() * 1000))
    assert clocks.warnings() == ()


def test_who_is_heard_of_no_more_is_told_of_no_more() -> None:
    """An agent that has left has no clock that matters."""
    clock = ManualClock()
    clock.advance(10 * DAY)
    clocks = Clocks(clock)
    clocks.heard(ClientId("a"), 2**62)
    assert clocks.warnings()
    clock.advance(LIVING_SECONDS + 1)
    assert clocks.warnings() == ()


@pytest.mark.parametrize(("days_left", "told"), [(30, ""), (3.5, "ends in 3 days"), (25 / DAY, "ends within the hour")])
def test_an_agent_looks_at_the_coordinators_certificate(tmp_path: Path, days_left: float, told: str) -> None:
    """And says in its log how it ends."""
    tls = issued(tmp_path)
    end = x509.load_pem_x509_certificate(tls[1]).not_valid_after_utc.timestamp()
    with grpc_port_of(tls=tls) as (_, port), capture_logs() as lines:
        endpoints = Endpoints((f"127.0.0.1:{port}",), roots=(tmp_path / "ca.pem").read_bytes())
        Validity(lambda: endpoints, threading.Event(), lambda: 0.0, lambda: end - days_left * DAY).check()
    assert [line["how"] for line in lines if line["event"] == "certificate_ends"] == ([told] if told else [])


def test_an_agent_notes_what_matters_to_a_run(tmp_path: Path) -> None:
    """A clock that is off, and a certificate of its own that ends; nothing where both are good."""
    key, chain = issued(tmp_path)
    end = x509.load_pem_x509_certificate(chain).not_valid_after_utc.timestamp()
    endpoints = Endpoints((), own=(key, chain))

    def notes(ahead: float, left: float) -> list[Note]:
        return list(Validity(lambda: endpoints, threading.Event(), lambda: ahead, lambda: end - left).notes())

    assert notes(3.0, 30 * DAY) == []
    clock, certificate = notes(-2 * DAY, 7200.0)
    assert clock.sentence == "has a clock that is 172800 s behind the coordinator's"
    assert certificate.sentence == "has a certificate of its own that is good for another 2 hours"
