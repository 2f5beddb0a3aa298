"""Child processes that run `tideline` commands, and that end with their parent, Ctrl-C included."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 8.0


def start(args: Sequence[str], log: Path, env: Mapping[str, str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start `tideline ARGS` with its output in a log file. The child gets no Ctrl-C of its parent's."""
    command, none = [sys.executable, "-m", "tideline", *args], subprocess.DEVNULL
    with log.open("wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, stdin=none, start_new_session=True, env=env, pass_fds=tuple(pass_fds)
        )


def stop_all(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Ask processes to end, wait, then kill them."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Delay an interruption to the end of the block, so that no child is lost and no cleaning stops half-way."""
    caught: list[int] = []
    before = {n: signal.signal(n, lambda number, _: caught.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: the children end with this process."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
