"""Run pytest again and again in forks of a process that has loaded torch and the other libraries, and nothing of the product.

Started as a script, it reads jobs from its standard input, a line of JSON each, and writes the exit code of each as a line. A
fork imports the product from the tree of its job, so that a changed module is loaded anew.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# Third-party modules that take longest to load, with what they load when they are first used.
LIBRARIES = (
    *("torch", "torch._dynamo", "torchvision", "cvxpy", "ot", "sklearn.linear_model", "scipy.stats", "matplotlib.pyplot"),
    *("fastapi", "grpc", "sqlalchemy.orm", "alembic", "httpx", "typer", "rich.table", "hypothesis", "pytest", "xdist"),
)
POLL_SECONDS = 0.02
NO_END = -1  # the exit code of a job that was killed


@dataclass(frozen=True)
class Job:
    """Arguments of pytest, the tree that it is run in, folders that Python looks into first, a file for what it says, a limit."""

    arguments: Sequence[str]
    tree: str
    path: Sequence[str]
    output: str
    seconds: float


class Warm:
    """The process that forks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).resolve())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(self, job: Job) -> int:
        """Return the exit code of a job; NO_END if it took longer than it may."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(job)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        with self.process:
            pass


def play(job: Job) -> int:
    """Run a job in a fork."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        become(job)
    end = time.monotonic() + job.seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_SECONDS)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return NO_END


def become(job: Job) -> None:
    """Be the process of a job until its end."""
    import pytest

    with Path(job.output).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(job.tree)
    sys.path[:0] = [job.tree, *job.path]
    code = 70
    try:
        code = int(pytest.main([*job.arguments]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    """Load the libraries, then play what is asked for."""
    sys.path.pop(0)  # this folder
    sys.modules["triton"] = None  # type: ignore[assignment]  # each fork would list at its end what that leaks
    for name in LIBRARIES:
        importlib.import_module(name)
    del sys.modules["triton"]
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(f"{play(Job(**json.loads(line)))}\n")
        answers.flush()


if __name__ == "__main__":
    main()
