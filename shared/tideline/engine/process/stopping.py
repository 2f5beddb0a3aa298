"""To stop at SIGINT and SIGTERM, whatever the process is doing at that moment.

A handler in Python runs on the main thread, between two steps of whatever that does. If the handler takes a lock that the main
thread holds, such as an Event's or a log's, it waits for itself. So the handler here does nothing: the interpreter's own handler,
in C, writes the signal's number to a line, and a thread reads it. If the orderly stop hangs, the process ends without it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import structlog

log = structlog.get_logger()
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ORDERLY_SECONDS = 8.0  # for an orderly stop; all that matters is on disk before, so ending without it loses nothing
LAST_SECONDS = 1.0  # after these too the kernel ends the process, even if no thread of it runs any more
LOG_SECONDS = 0.5  # for a last line: whoever reads the log may have stopped to


@contextlib.contextmanager
def stopping(stop: Callable[[], object], seconds: float = ORDERLY_SECONDS) -> Iterator[None]:
    """Call `stop`, on a thread of its own, at the first signal; end the process with code 0 if it lasts so many seconds longer.

    On the main thread only. Without a signal, everything is as before at the end of the block.
    """
    heard, written = socket.socketpair()
    written.setblocking(False)
    stopped = threading.Event()
    before = {number: signal.signal(number, ignored) for number in SIGNALS}
    line = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=listen, args=(heard, stopped, stop, seconds), name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        if not stopped.is_set():
            signal.set_wakeup_fd(line)
            for number, handler in before.items():
                signal.signal(number, handler)
            written.close()
            thread.join()
            heard.close()


def ignored(number: int, frame: object) -> None:
    """What Python does at a signal: nothing. Without a handler of Python's there is none in C that writes its number."""


def listen(heard: socket.socket, stopped: threading.Event, stop: Callable[[], object], seconds: float) -> None:
    """Wait for a signal, or for the end of the block, which closes the other end."""
    while number := heard.recv(1):
        if number[0] in SIGNALS:
            break
    else:
        return
    stopped.set()
    signal.setitimer(signal.ITIMER_REAL, seconds + LAST_SECONDS)  # SIGALRM, which nobody handles, ends a process
    threading.Thread(target=end_after, args=(seconds,), daemon=True).start()
    stop()


def end_after(seconds: float) -> None:
    """End the process, finished or not, after some seconds."""
    threading.Event().wait(seconds)
    last = threading.Thread(target=log.warning, args=("stop_forced",), kwargs={"after_seconds": seconds}, daemon=True)
    last.start()
    last.join(LOG_SECONDS)
    os._exit(0)
