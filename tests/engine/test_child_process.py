"""A process behind a pipe: calls beside one another, and what ends one that stands still or takes for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.present import present
from tideline.core.errors import FederationError, StepFailed
from tideline.engine.process import resources
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


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    """A process that waits for files; it counts as hung after a short silence. A test that ends it leaves the next a new one."""
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
    frozen = present(child.pid)
    os.kill(frozen, signal.SIGSTOP)
    beside = Calling(child, "look", {"say": "x" * 200_000}, lane="beside")  # more than a pipe holds: the write itself waits
    for call in (long, beside):
        error = call.end()
        assert isinstance(error, ChildDied) and "gave no sign of life for 7 s" in error.what
    assert child.call("look", {"say": 1}) == {"said": 1} and child.pid != frozen


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
    assert Calling(child, "look", {"say": 1}, lane="beside").end() == {"said": 1} and child.pid == pid


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


# A process that is asked to stop: at any moment of its main thread, and also where the orderly stop hangs.
AT_A_LOCK = """
import os, signal, threading
from tideline.engine.process.stopping import stopping

lock, over = threading.Lock(), threading.Event()

def stop():
    with lock:
        over.set()

with stopping(stop):
    with lock:  # as an Event's own, while somebody waits for it
        os.kill(os.getpid(), signal.{name})
    over.wait()
print("in order")
"""

HANGING = """
import os, signal, threading
from tideline.engine.process.stopping import stopping

with stopping(lambda: None, seconds=0.2):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
"""

SEIZED = """
import ctypes, os, signal, threading
from tideline.engine.process.stopping import stopping

libc = ctypes.PyDLL(None)  # whose functions hold the interpreter's lock: no thread of Python runs any more
with stopping(lambda: libc.sleep(600), seconds=0.2):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
"""

QUIET = """
import signal
from tideline.engine.process.stopping import stopping

before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
with stopping(lambda: None):
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) != before
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
assert signal.set_wakeup_fd(-1) == -1
"""


def played(script: str) -> subprocess.CompletedProcess[str]:
    """A process of this script, at its end."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_at_a_lock_stops(name: str) -> None:
    """The main thread holds the very lock that the stop needs: it stops in order, once the lock is free."""
    done = played(AT_A_LOCK.format(name=name))
    assert (done.returncode, done.stdout, done.stderr) == (0, "in order\n", "")


def test_a_stop_that_hangs_is_forced() -> None:
    """The process ends, and its log says that it did not end in order."""
    done = played(HANGING)
    assert done.returncode == 0 and "stop_forced" in done.stdout


@pytest.mark.nightly(job="services")
def test_a_process_of_which_no_thread_runs_is_ended_by_the_kernel() -> None:
    """Something holds the interpreter for good."""
    assert played(SEIZED).returncode == -signal.SIGALRM


def test_without_a_signal_all_is_as_before() -> None:
    """Handlers and the line of signals are those of before the block."""
    done = played(QUIET)
    assert (done.returncode, done.stderr) == (0, "")


# Freed memory goes back to the kernel when it is told to; where it cannot be told, nothing breaks.


# A process of its own: what glibc is told holds for the rest of a process's life. The last block stays, so that the others do
# not lie at the top of the heap, from where they would go back by themselves.
PROGRAM = """
from tideline.engine.process import resources
resources.retain_freed_memory()
held = lambda: next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
blocks = [bytearray(1 << 20) for _ in range(16)]
last = bytearray(1 << 16)
del blocks
before = held()
gave = resources.give_back()
print(gave, before - held())
"""


@pytest.mark.skipif(sys.platform != "linux" or resources.glibc("mallopt") is None, reason="only glibc is told")
def test_freed_memory_goes_back_when_work_ends() -> None:
    """Sixteen megabytes that were kept for the next message."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    gave, kb = done.stdout.split()
    assert gave == "True" and int(kb) > 12 << 10


def test_another_system_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to tell."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not resources.retain_freed_memory() and not resources.give_back()


# How many files a worker may have open.
PROBE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
from tideline.engine.process.resources import open_many_files
print(open_many_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_as_many_files_as_the_system_allows() -> None:
    """In a process of its own: the soft limit becomes the hard one."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["128", "128", "128"]
