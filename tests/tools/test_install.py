"""`make` says in a line what it installs, and where to read what went wrong."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path

from tools.install import Progress, install, show

LINES = {
    "Collecting torch>=2.4 (from tideline==0.1.0)": "    1:05  finding torch (package 1)",
    "  Downloading torch-2.9.1-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (30 kB)": "    1:05  downloading torch, 30 kB",
    "  Downloading scikit_learn-1.7.2-cp311-cp311-linux_x86_64.whl (9.7 MB)": "    1:05  downloading scikit_learn, 9.7 MB",
    "Installing collected packages: a, b, c": "    1:05  unpacking 3 packages",
    "Requirement already satisfied: pip": "    1:05  starting pip",
}


def test_a_line_of_pip_becomes_progress() -> None:
    """With the time since the start; what says nothing of progress leaves it as it was."""
    for line, shown in LINES.items():
        clock = iter([0.0, 65.9])
        progress = Progress(lambda clock=clock: next(clock))
        progress.read(line)
        assert progress.line() == shown


def test_packages_are_counted_once() -> None:
    """pip names a package again when it tries an older version of it."""
    progress = Progress(lambda: 0.0)
    for name in ("torch", "numpy", "torch"):
        progress.read(f"Collecting {name}")
    assert "torch (package 2)" in progress.line()


def test_a_terminal_is_left_empty() -> None:
    """The line is taken away when all is installed."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out, done = Terminal(), threading.Event()
    done.set()
    show(Progress(lambda: 0.0), done, out)
    assert out.getvalue() == "\r\033[K"


def test_a_failure_names_its_log(tmp_path: Path) -> None:
    """The end of what pip said is shown, and the exit code is pip's own."""
    log, out = tmp_path / "install.log", io.StringIO()
    log.write_text("from before\n")
    assert install(log, ["--no-index", "no-such-package-as-this"], out) == 1
    assert "no-such-package-as-this" in log.read_text() and log.read_text().startswith("from before")
    shown = out.getvalue()
    assert "No matching distribution found" in shown and shown.endswith(f"All that pip wrote is in {log}\n")


def test_nothing_to_install_is_quiet(tmp_path: Path) -> None:
    """From the command line too: no line of pip's own, and no log beside the one that was asked for."""
    script = Path(__file__).parents[2] / "tools" / "install.py"
    done = subprocess.run([sys.executable, script, tmp_path / "log", "pip"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "already satisfied" in (tmp_path / "log").read_text()
