"""A process that is asked to stop: at any moment of its main thread, and also where the orderly stop hangs."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PATIENCE = 120.0  # nothing here takes so long; what does has failed

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
    assert done.returncode == 0
    assert "stop_forced" in done.stdout


def test_a_process_of_which_no_thread_runs_is_ended_by_the_kernel() -> None:
    """Something holds the interpreter for good."""
    assert played(SEIZED).returncode == -signal.SIGALRM


def test_without_a_signal_all_is_as_before() -> None:
    """Handlers and the line of signals are those of before the block."""
    done = played(QUIET)
    assert (done.returncode, done.stderr) == (0, "")
