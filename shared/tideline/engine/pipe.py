"""A process that answers calls over pipes: length-prefixed JSON, file paths instead of tensors. Standard library only.

The coordinator's numeric worker and the agent's trainer are such processes. They are started by exec (no fork, no pickled
arguments), so a parent that holds threads and sockets is safe. A child ends as soon as its parent's end of the pipe closes.

    parent -> child   {"call": name, "payload": {...}}
    child -> parent   {"tick": share}  any number of times, then  {"done": {...}}  or  {"error": {kind, what, todo, context}}
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import tideline.archive.errors  # noqa: F401 - its classes are found below FederationError
from tideline.core.errors import Cancelled, FederationError, StepFailed
from tideline.core.step import no_tick
from tideline.engine.thrift import CRUNCHING_BYTES, keep_freed_memory

Tick = Callable[[float], None]
Serve = Callable[[str, Mapping[str, Any], Tick], Mapping[str, Any]]
MAX_FRAME = 256 << 20


class ChildDied(FederationError):
    """The process behind a pipe ended in the middle of a call."""


def write_frame(stream: IO[bytes], value: Any) -> None:
    """One JSON value with its length before it."""
    text = json.dumps(value, separators=(",", ":")).encode()
    stream.write(struct.pack("<I", len(text)) + text)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any | None:
    """The next value; None when the other end is gone."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack("<I", head)[0]
    if size > MAX_FRAME:
        return None
    text = stream.read(size)
    return json.loads(text) if len(text) == size else None


def to_plain(error: FederationError) -> dict[str, Any]:
    """An error as plain data."""
    context = {k: v for k, v in error.context.items() if isinstance(v, (str, int, float, bool, list, type(None)))}
    return {"kind": error.kind, "what": error.what, "todo": error.todo, "context": context}


def from_plain(raw: Mapping[str, Any]) -> FederationError:
    """The error again, of its own class where this version knows it."""
    known = {c.__name__: c for c in family(FederationError)}
    made = known.get(raw["kind"], FederationError)
    return made(raw["what"], raw.get("todo", ""), **raw.get("context", {}))


def family(root: type[FederationError]) -> list[type[FederationError]]:
    """A class and everything below it."""
    return [root] + [each for child in root.__subclasses__() for each in family(child)]


class Child:
    """The parent's side: one process, one call at a time."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._command, self._env = list(command), env
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The living process, for people and tests."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process if it is not running; the first call does so by itself. Not after `close`: raises Cancelled.

        It is a process group of its own: a Ctrl-C is for the parent, which ends it in its own time.
        """
        with self._starting:
            if self._closed:
                raise Cancelled("The process was closed")
            if self._process is None or self._process.poll() is not None:
                self._reap()
                env = None if self._env is None else dict(self._env)
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, process_group=0
                )
            return self._process

    def call(self, name: str, payload: Mapping[str, Any], tick: Tick = no_tick) -> dict[str, Any]:
        """Call and wait. Raises what the child raised, ChildDied if it ended, Cancelled if `kill` ended it."""
        with self._lock:
            self._killed = False
            process = self.start()
            assert process.stdin is not None and process.stdout is not None
            try:
                write_frame(process.stdin, {"call": name, "payload": payload})
                frame = self._answer(process.stdout, tick)
            except (OSError, EOFError, ValueError):
                process.kill()
                code = process.wait()
                if self._killed or self._closed:
                    raise Cancelled(f"The call {name} was cancelled") from None
                raise ChildDied(f"The process for {name} ended {ending(code)}", "It is started again") from None
            except BaseException:
                process.kill()  # it still works for this call; the next one must not read its answer
                process.wait()
                raise
        if "error" in frame:
            raise from_plain(frame["error"])
        done: dict[str, Any] = frame["done"]
        return done

    def _answer(self, stream: IO[bytes], tick: Tick) -> Mapping[str, Any]:
        while True:
            frame: Mapping[str, Any] | None = read_frame(stream)
            if frame is None:
                raise EOFError
            if "tick" not in frame:
                return frame
            tick(frame["tick"])

    def kill(self) -> None:
        """End the process at once; a call in progress raises Cancelled."""
        self._killed = True
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def end_hung(self) -> None:
        """End the process; a call in progress raises ChildDied."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()

    def close(self) -> None:
        """End the process for good and let go of its pipes; a call in progress raises Cancelled."""
        with self._starting:
            self._closed = True
            self._reap()

    def _reap(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue


def ending(code: int) -> str:
    """An exit code in words."""
    return f"by signal {-code}" if code < 0 else f"with code {code}"


def serve(handle: Serve) -> None:
    """The child's side: answer calls until the parent is gone. What anybody prints goes to standard error instead."""
    keep_freed_memory(CRUNCHING_BYTES)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls: queue.Queue[Mapping[str, Any]] = queue.Queue()
    threading.Thread(target=listen, args=(calls,), daemon=True).start()
    while True:
        frame = calls.get()
        write_frame(out, answer(handle, frame, lambda share: write_frame(out, {"tick": float(share)})))


def listen(calls: queue.Queue[Mapping[str, Any]]) -> None:
    """Take calls in; when the parent is gone, end at once, in the middle of a step if need be."""
    stream = sys.stdin.buffer
    while (frame := read_frame(stream)) is not None:
        calls.put(frame)
    os._exit(0)


def answer(handle: Serve, frame: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
    """One call's answer. A foreign error's words may hold data: only its type leaves; the rest goes to the local log."""
    try:
        return {"done": handle(frame["call"], frame["payload"], tick)}
    except FederationError as error:
        log_cause(error)
        return {"error": to_plain(error)}
    except MemoryError:
        return {"error": to_plain(StepFailed("There was not enough memory", "Lower the batch size, or give the machine more"))}
    except Exception as error:  # noqa: BLE001 - the process must answer; the trace stays in the local log
        log_cause(error)
        return {"error": to_plain(StepFailed(f"{frame['call']} raised {type(error).__name__}", "See the log of that process"))}


def log_cause(error: BaseException) -> None:
    """The whole story, to standard error, for whoever runs this process."""
    import traceback

    if not isinstance(error, FederationError) or error.__cause__ is not None:
        traceback.print_exception(error)
