"""Tideline's processes, forked from one that has loaded torch and all else: each worker of the suite loads them once.

A `Forked` is a `subprocess.Popen`. Its process comes from a fork server, a child of the test's process, and has the environment,
the files and the process group that it would have had. What it starts itself (an agent its trainer, a coordinator its worker) is
forked as well, from spares that it makes before it does anything else. What cannot be forked is started as ever: another program,
or a Python that is to load other things.

Tests that look at what a process loads or weighs ask for processes that are started (`Started`, or a fixture). Chaos, failpoints,
containers, the demo and all tests in one process (`make test JOBS=0`) start theirs as users do.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parent.parent
# Also what torch loads when the first optimiser is made, which takes as long as torch itself.
LOADED = ("torch", "torch._dynamo", "tideline.cli.app", "tideline.algorithms", "tideline_server.main", "tideline_server.worker")
LOADED += ("tideline_agent.main", "tideline_agent.trainer", "tideline.engine.simulation.federation")
MODULES = ("tideline", "tideline_agent.trainer", "tideline_server.worker", "tests.acceptance.brisk", "tests.acceptance.stopping")
MODULES += ("tests.docs.program",)
SPARES = {"coordinator": 1, "agent": 1, "bench": 3}  # processes that a command of Tideline starts itself
FIXED = ("PYTHON", "LD_", "OMP_", "MKL_", "MALLOC_", "GLIBC_", "TORCH", "CUDA")  # variables that are read before anything runs
STRICT = ["-W", "error"]
MOST_BYTES, MOST_FILES = 1 << 20, 16
CLEAR = 300  # file descriptors from here on are in nobody's way
POLL_SECONDS = 0.005

Started = subprocess.Popen  # the one that forks nothing
ended: list[int] = []  # the code of a process that was forked, once it is at its end


@dataclass(frozen=True)
class Job:
    """A process to be: `python [-W error] -m MODULE ARGUMENTS`. files: the numbers of its file descriptors, 0 to 2 first."""

    module: str
    arguments: Sequence[str]
    strict: bool
    environment: Mapping[str, str]
    folder: str
    files: Sequence[int]
    session: bool
    group: int


def read_command(command: Any) -> tuple[str, list[str], bool] | None:
    """Module, arguments and strictness of a command that can be forked."""
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    strict = words[1:3] == STRICT
    rest = words[3:] if strict else words[1:]
    if not words or words[0] != sys.executable or rest[:1] != ["-m"] or rest[1] not in MODULES:
        return None
    return rest[1], rest[2:], strict


def fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process cannot take over after its start. The repository is on the server's path anyway."""
    found = {name: value for name, value in environment.items() if name.startswith(FIXED)}
    path = [each for each in found.pop("PYTHONPATH", "").split(os.pathsep) if each not in ("", str(ROOT))]
    return found | {"PYTHONPATH": os.pathsep.join(path)}


class Forking(subprocess.Popen[Any]):
    """A Popen whose process is forked where that makes no difference."""

    def _execute_child(  # type: ignore[no-untyped-def]  # of the standard library, as of Python 3.11
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *rest
    ) -> None:
        pipes, (_, *_, start_new_session, process_group) = rest[:6], rest[6:]
        command, environment = read_command(args), dict(os.environ if env is None else env)
        if command is None or preexec_fn or shell or executable or fixed(environment) != fixed(os.environ):
            parts = (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            return super()._execute_child(*parts, *rest)  # type: ignore[misc]
        files = [own if given == -1 else given for own, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        group = -1 if process_group is None else process_group
        module, arguments, strict = command
        numbers = (0, 1, 2, *pass_fds)
        job = Job(module, arguments, strict, environment, str(cwd or Path.cwd()), numbers, start_new_session, group)
        pid = self.fork(job, [*files, *pass_fds])
        if pid is None:
            parts = (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            return super()._execute_child(*parts, *rest)  # type: ignore[misc]
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        return None

    def fork(self, job: Job, files: list[int]) -> int | None:
        """The process's number; None where none can be forked."""
        raise NotImplementedError


class Forked(Forking):
    """Of the fork server, which is its parent."""

    def fork(self, job: Job, files: list[int]) -> int | None:
        self.forked = True
        return int(server().ask({"job": asdict(job)}, files))

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not getattr(self, "forked", False):
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        while True:
            pid, status = server().ask({"poll": self.pid}, [])
            if pid or wait_flags & os.WNOHANG:
                return pid, status
            time.sleep(POLL_SECONDS)

    def _internal_poll(self, *more: Any, **named: Any) -> int | None:
        if not getattr(self, "forked", False):
            return super()._internal_poll(*more, **named)  # type: ignore[misc, no-any-return]
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


class Server:
    """The process that is forked, and the line to it."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, *STRICT, "-m", "tests.forking", str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )

    def ask(self, question: Mapping[str, Any], files: list[int]) -> Any:
        """The server's answer."""
        with self._lock:
            socket.send_fds(self._line, [json.dumps(question).encode()], files)
            answer = self._line.recv(MOST_BYTES)
        assert answer, "the fork server has ended"
        return json.loads(answer)


@cache
def server() -> Server:
    """The fork server of this process, started when it is first asked for."""
    return Server()


def serve(line: socket.socket) -> tuple[Job, list[int]] | None:
    """Fork a process for each job. Returns in that process with the job, and in the server when its parent has ended."""
    while True:
        data, files, _, _ = socket.recv_fds(line, MOST_BYTES, MOST_FILES)
        if not data:
            return None
        question = json.loads(data)
        if "poll" in question:
            answer: Any = os.waitpid(question["poll"], os.WNOHANG)
        else:
            answer = os.fork()
            if not answer:
                line.close()
                return Job(**question["job"]), files
            for file in files:
                os.close(file)
        line.send(json.dumps(answer).encode())


class Spare(Forking):
    """Of a process's own spares, as long as there are any."""

    left: ClassVar[list[tuple[int, socket.socket]]] = []

    def fork(self, job: Job, files: list[int]) -> int | None:
        if not self.left:
            return None
        pid, line = self.left.pop()
        with line:
            socket.send_fds(line, [json.dumps(asdict(job)).encode()], files)
        return pid


def add_spare() -> tuple[Job, list[int]] | None:
    """Fork a process that waits for a job. Returns in that process with the job, once it has one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        Spare.left.append((pid, ours))
        return None
    for line in (ours, *(line for _, line in Spare.left)):
        line.close()
    data, files, _, _ = socket.recv_fds(theirs, MOST_BYTES, MOST_FILES)
    if not data:
        os._exit(0)  # its parent has ended without need of it
    return Job(**json.loads(data)), files


def become(job: Job, files: Sequence[int]) -> None:
    """Take over what a process gets from its parent: group, files, environment, folder, strictness."""
    if job.session:
        os.setsid()
    elif job.group >= 0 and os.getpgid(0) != os.getpid():
        os.setpgid(0, job.group)
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, CLEAR) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, job.files, strict=True):
        os.dup2(file, number, inheritable=number < 3)
        os.close(file)
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.folder)
    sys.argv = [job.module, *job.arguments]
    warnings.resetwarnings()
    sys.warnoptions[:] = ["error"] if job.strict else []
    warnings.simplefilter("error" if job.strict else "ignore")


def run(job: Job, files: Sequence[int]) -> None:
    """Be the process of a job."""
    become(job, files)
    Spare.left.clear()
    subprocess.Popen = Spare  # type: ignore[misc, assignment]
    for _ in range(SPARES.get(next(iter(job.arguments), ""), 0)):
        if spared := add_spare():
            run(*spared)
            sys.exit()
    runpy.run_module(job.module, run_name="__main__", alter_sys=True)


def leave() -> None:
    """End at once, when all that a process does at its end is done: to take modules apart would copy every page of theirs."""
    if ended:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(ended[0])


def run_to_its_end(job: Job, files: Sequence[int]) -> None:
    """Be the process of a job, and say how it ended; one that was interrupted or that raised ends as Python has it."""
    try:
        run(job, files)
        ended.append(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            ended.append(int(end.code or 0))
        raise


def main() -> None:
    """Load everything, then serve."""
    atexit.register(leave)  # the first that is registered is called last
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["triton"] = None  # type: ignore[assignment]  # without it: each fork would say at its end what that leaks
    for module in LOADED:
        importlib.import_module(module)
    del sys.modules["triton"]
    gc.collect()
    gc.freeze()  # no collection in a process that is forked looks at these, and no page of theirs is copied
    with socket.socket(fileno=int(sys.argv[1])) as line:
        given = serve(line)
    if given:
        run_to_its_end(*given)


if __name__ == "__main__":
    main()
