"""Install packages with pip: one line of progress instead of a wall of text, and a log that is named when something fails.

    python tools/install.py LOG PIP-ARGUMENTS...

It needs nothing but the standard library, as it runs before anything is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

TICK_SECONDS = 0.5
QUIET_SECONDS = 30.0  # between lines where the output is a file
LAST_LINES = 15  # of the log that are shown after a failure
COLLECTING = re.compile(r"Collecting ([\w.-]+)")
DOWNLOADING = re.compile(r"Downloading .*?([\w.]+)-[\d.]+.*\((.+)\)")
INSTALLING = re.compile(r"Installing collected packages: (.+)")


class Progress:
    """What pip is doing, as one line."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._start = now, now()
        self._names: set[str] = set()
        self._doing = "starting pip"

    def read(self, line: str) -> None:
        """Take note of a line that pip wrote."""
        if found := COLLECTING.search(line):
            self._names.add(found[1])
            self._doing = f"finding {found[1]} (package {len(self._names)})"
        elif found := DOWNLOADING.search(line):
            self._doing = f"downloading {found[1]}, {found[2]}"
        elif found := INSTALLING.search(line):
            self._doing = f"unpacking {found[1].count(',') + 1} packages"

    def line(self) -> str:
        """Time since the start, and what is being done."""
        minutes, seconds = divmod(int(self._now() - self._start), 60)
        return f"    {minutes}:{seconds:02d}  {self._doing}"


def show(progress: Progress, done: threading.Event, out: TextIO) -> None:
    """Keep the line up to date until done: in place on a terminal, a new line now and then elsewhere."""
    terminal = out.isatty()
    while not done.wait(TICK_SECONDS if terminal else QUIET_SECONDS):
        out.write(f"\r\033[K{progress.line()[:100]}" if terminal else f"{progress.line()}\n")
        out.flush()
    if terminal:
        out.write("\r\033[K")


def install(log: Path, arguments: Sequence[str], out: TextIO) -> int:
    """Run `pip install` with these arguments; its exit code."""
    progress, done = Progress(), threading.Event()
    shown = threading.Thread(target=show, args=(progress, done, out))
    shown.start()
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", *arguments]
    with log.open("a") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            file.write(line)
            file.flush()
            progress.read(line)
    done.set()
    shown.join()
    if pip.returncode:
        last = log.read_text().splitlines()[-LAST_LINES:]
        out.write("\n".join([*last, f"The installation failed. All that pip wrote is in {log}", ""]))
    return pip.returncode


if __name__ == "__main__":
    sys.exit(install(Path(sys.argv[1]), sys.argv[2:], sys.stdout))
