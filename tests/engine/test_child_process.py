"""A process behind a pipe: calls beside one another, and what ends one that stands still or takes for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tideline.core.errors import FederationError, StepFailed
from tideline.engine.process.pipe import Child, ChildDied, TookTooLong

CHILD = """
import os, sys, time, pathlib
from tideline.core.errors import FederationError
from tideline.engine.process.pipe import serve

def handle(name, payload, tick):
    if name == "wait":
        pathlib.Path(payload["begun"]).touch()
        while not pathlib.Path(payload["until"]).exists():
            time.sleep(0.005)
    if name == "tick":
        for share in payload["shares"]:
            tick(share)
    if name == "garble":
        os.write(3, bytes((4, 0, 0, 0)) + b"soup")  # where `serve` has put the way out
        time.sleep(60)
    if name == "raise":
        raise OSError("SECRET")
    match payload.get("odd"):
        case "value":
            return {"said": object()}
        case "circle":
            payload["said"] = payload
            return payload
        case "context":
            raise FederationError("no", numbers=[object()])
        case "exit":
            sys.exit(7)
        case "interrupt":
            raise KeyboardInterrupt
    return {"said": payload.get("say")}

serve(handle, {"beside": {"look"}})
"""
PATIENCE = 120.0  # nothing here takes so long; what does has failed


@pytest.fixture
def child() -> Iterator[Child]:
    """A process that waits for files; it counts as hung after a short silence."""
    made = Child([sys.executable, "-c", CHILD], silence=7.0)
    yield made
    made.close()


def waiting(tmp_path: Path) -> dict[str, str]:
    """The payload of a call that does not end by itself."""
    return {"begun": str(tmp_path / "begun"), "until": str(tmp_path / "until")}


class Calling(threading.Thread):
    """A call on a thread, and what it came to."""

    def __init__(self, child: Child, name: str, payload: dict[str, Any], **more: Any) -> None:
        super().__init__(daemon=True)
        self.call = lambda: child.call(name, payload, **more)
        self.came: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.came = self.call()
        except FederationError as error:
            self.came = error

    def end(self) -> Any:
        """What it came to."""
        self.join(PATIENCE)
        assert not self.is_alive()
        return self.came


def begun(tmp_path: Path) -> None:
    """Wait until the long call is under way."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if (tmp_path / "begun").exists():
            return
        pause.wait(0.01)
    raise AssertionError("the call did not begin")


def test_a_lane_is_answered_beside_a_long_call(child: Child, tmp_path: Path) -> None:
    """Who looks does not stand behind who works, and each gets his own answer and ticks."""
    long = Calling(child, "wait", waiting(tmp_path) | {"say": "long"})
    begun(tmp_path)
    assert [child.call("look", {"say": n}, lane="beside")["said"] for n in range(3)] == [0, 1, 2]
    assert long.is_alive()
    (tmp_path / "until").touch()
    assert long.end() == {"said": "long"}


def test_ticks_come_in_order(child: Child) -> None:
    """A step's progress reaches its own caller."""
    heard: list[float] = []
    child.call("tick", {"shares": [0.25, 0.5, 1.0]}, heard.append)
    assert heard == [0.25, 0.5, 1.0]


@pytest.mark.nightly(job="services")
def test_a_process_that_stands_still_is_ended(child: Child, tmp_path: Path) -> None:
    """All who wait for it are told, and the next call has a new process."""
    long = Calling(child, "wait", waiting(tmp_path))
    begun(tmp_path)
    frozen = child.pid
    assert frozen is not None
    os.kill(frozen, signal.SIGSTOP)
    beside = Calling(child, "look", {"say": "x" * 200_000}, lane="beside")  # more than a pipe holds: the write itself waits
    for call in (long, beside):
        error = call.end()
        assert isinstance(error, ChildDied) and "gave no sign of life for 7 s" in error.what
    assert child.call("look", {"say": 1}) == {"said": 1}
    assert child.pid != frozen


def test_a_call_that_takes_too_long_is_ended(child: Child, tmp_path: Path) -> None:
    """However lively the process is: its time is up."""
    child.call("look", {})
    with pytest.raises(TookTooLong, match=r"The call wait took longer than 0\.2 s"):
        child.call("wait", waiting(tmp_path), limit=0.2)
    assert child.call("look", {"say": 1}) == {"said": 1}


def test_a_foreign_error_leaves_its_type_only(child: Child) -> None:
    """Its words may hold data."""
    with pytest.raises(StepFailed, match="raise raised OSError") as caught:
        child.call("raise", {})
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("odd", ["value", "circle", "context", "exit"])
def test_an_answer_that_cannot_be_told(child: Child, odd: str) -> None:
    """It costs its own call, in words; the lane answers the next one, in the same process."""
    child.start()
    pid = child.pid
    error = Calling(child, "look", {"odd": odd}, lane="beside").end()
    assert isinstance(error, StepFailed) and "SECRET" not in str(error)
    assert Calling(child, "look", {"say": 1}, lane="beside").end() == {"said": 1}
    assert child.pid == pid


def test_a_lane_that_ends_ends_the_process(child: Child) -> None:
    """Nobody waits for a lane that will not answer."""
    error = Calling(child, "look", {"odd": "interrupt"}, lane="beside").end()
    assert isinstance(error, ChildDied) and "ended with code 1" in error.what
    assert Calling(child, "look", {"say": 1}, lane="beside").end() == {"said": 1}


def test_an_answer_that_is_none(child: Child) -> None:
    """Words that are no frame end the process, which is told by them and not by the signal that ended it."""
    with pytest.raises(ChildDied, match="The process for garble answered what is no answer"):
        child.call("garble", {})
    assert child.call("look", {"say": 1}) == {"said": 1}


def test_a_killed_process_is_told_from_a_hung_one(child: Child, tmp_path: Path) -> None:
    """The words say how it ended."""
    long = Calling(child, "wait", waiting(tmp_path))
    begun(tmp_path)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert "ended by signal 9" in str(long.end())
