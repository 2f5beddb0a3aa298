"""A log says one thing so often in a minute, and then how often it did not."""

from __future__ import annotations

import logging
import queue

import pytest
import structlog

from tideline.cli.throttle import LEFT_OUT, Throttle


def test_lines_of_one_cause_are_bounded_and_counted() -> None:
    reported: queue.Queue[tuple[str, int]] = queue.Queue()
    throttle = Throttle(lambda cause, count: reported.put((cause, count)), most=3, seconds=0.05)
    assert [throttle.admits("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert throttle.admits("b")
    assert reported.get(timeout=10) == ("a", 2)
    assert throttle.admits("a") and reported.empty()


def test_only_what_is_serious_is_bounded() -> None:
    throttle = Throttle(lambda cause, count: None, most=1, seconds=600)
    for _ in range(3):
        assert throttle(None, "info", {"event": "x"}) == {"event": "x"}
        assert throttle(None, "warning", {"event": LEFT_OUT}) == {"event": LEFT_OUT}
    throttle(None, "warning", {"event": "x"})
    with pytest.raises(structlog.DropEvent):
        throttle(None, "error", {"event": "x"})


def test_what_libraries_log_is_bounded_too() -> None:
    throttle = Throttle(lambda cause, count: None, most=1, seconds=600)
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "socket.accept() out of system resource", (), None)
    other = logging.LogRecord("grpc", logging.ERROR, "", 0, "socket.accept() out of system resource", (), None)
    assert [throttle.filter(record), throttle.filter(record), throttle.filter(other)] == [True, False, True]
