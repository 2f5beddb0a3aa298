"""A process that answers calls over pipes: length-prefixed JSON, file paths instead of tensors. Standard library only.

The coordinator's numeric worker and the agent's trainer are such processes. They are started by exec (no fork, no pickled
arguments), so a parent that holds threads and sockets is safe. A child ends as soon as its parent's end of the pipe closes.

    parent -> child   {"id": n, "call": name, "payload": {...}, "sums": {seed, known}}
    child -> parent   {"id": n, "tick": share}  any number of times, then  {"id": n, "done": {...}}  or
                      {"id": n, "error": {kind, what, todo, context}};  and {"beat": true} every few seconds
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any, Generic, TypeVar, cast

import tideline.archive.errors  # noqa: F401 - its classes are found below FederationError
from tideline.archive.sums import SUMS
from tideline.core.errors import Cancelled, FederationError, NotFound, StepFailed
from tideline.core.settings import Plain, parse, plain, read
from tideline.core.step import no_tick
from tideline.engine.ports import compute
from tideline.engine.ports.site import Done, Job
from tideline.engine.process.resources import CRUNCHING_BYTES, open_many_files, retain_freed_memory

Tick = Callable[[float], None]
Frame = Mapping[str, Any]  # JSON: a call, what it is made with, and its answer
Serve = Callable[[str, Frame, Tick], Frame]
Calls = queue.SimpleQueue[Frame]
MAX_FRAME = 256 << 20
BEAT_SECONDS = 5.0
NO_LANES: Mapping[str, Set[str]] = MappingProxyType({})


class ChildDied(FederationError):
    """The process behind a pipe ended in the middle of a call, or hung."""


class TookTooLong(FederationError):
    """A call was ended because its time was up."""


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
    context = {k: v for k, v in error.context.items() if isinstance(v, (str, int, float, bool, list, type(None)))}
    return {"kind": error.kind, "what": error.what, "todo": error.todo, "context": context}


def from_plain(raw: Frame) -> FederationError:
    """The error again, of its own class where this version knows it."""
    known = {c.__name__: c for c in family(FederationError)}
    made = known.get(raw["kind"], FederationError)
    return made(raw["what"], raw.get("todo", ""), **raw.get("context", {}))


def family(root: type[FederationError]) -> list[type[FederationError]]:
    return [root] + [each for child in root.__subclasses__() for each in family(child)]


class Child:
    """The parent's side: one process, and one call at a time for each lane, which `serve` must know too.

    silence: seconds without a sign of life after which the process counts as hung and is ended; none: however long.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None, silence: float | None = None) -> None:
        self._command, self._env, self._silence = list(command), env, silence
        self._lanes: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._starting = threading.Lock()
        self._running: Running | None = None
        self._killed = False
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The living process, for people and tests."""
        running = self._running
        return running.process.pid if running is not None and running.process.poll() is None else None

    def start(self) -> Running:
        """Start the process if it is not running; the first call does so by itself. Not after `close`: raises Cancelled."""
        with self._starting:
            if self._closed:
                raise Cancelled("The process was closed")
            if self._running is None or self._running.process.poll() is not None:
                self._reap()
                self._running = Running(self._command, self._env, self._silence)
            return self._running

    def call(self, name: str, payload: Frame, tick: Tick = no_tick, lane: str = "", limit: float | None = None) -> dict[str, Any]:
        """Call and wait. Raises what the child raised, ChildDied if it ended or hung, Cancelled if `kill` ended it.

        limit: seconds after which the process is ended whatever it does, and the call raises TookTooLong.
        """
        with self._lanes[lane]:
            self._killed = False
            running = self.start()
            try:
                frame = running.ask(name, payload, tick, limit)
            except (OSError, EOFError, ValueError):
                running.end()
                if self._killed or self._closed:
                    raise Cancelled(f"The call {name} was cancelled") from None
                raise ChildDied(f"The process for {name} {running.ending()}", "It is started again") from None
            except BaseException:
                running.end()  # it still works for this call
                raise
        if "error" in frame:
            raise from_plain(frame["error"])
        done: dict[str, Any] = frame["done"]
        return done

    def kill(self) -> None:
        self._killed = True
        self.end_hung()

    def end_hung(self) -> None:
        """End the process; a call in progress raises ChildDied."""
        running = self._running
        if running is not None and running.process.poll() is None:
            running.process.kill()

    def close(self) -> None:
        with self._starting:
            self._closed = True
            self._reap()

    def _reap(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()


class Running:
    """A process's life. It is a process group of its own: a Ctrl-C is for the parent, which ends it in its own time."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None, silence: float | None) -> None:
        own = None if env is None else dict(env)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own, process_group=0)
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._numbers, self._handed = itertools.count(1), 0
        self._over = threading.Event()
        self._silence, self._heard, self._hung, self._garbled = silence, time.monotonic(), False, False
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._watch)]
        for thread in self._threads:
            thread.start()

    def ask(self, name: str, payload: Frame, tick: Tick, limit: float | None) -> Frame:
        """One call's answer. Raises EOFError if the process ends before, TookTooLong, and what `tick` raises."""
        number, answers = next(self._numbers), queue.SimpleQueue[Any]()
        with self._lock:
            if self._over.is_set():
                raise EOFError
            if not self._waiting:
                self._heard = time.monotonic()
            self._waiting[number] = answers
        try:
            assert self.process.stdin is not None
            with self._writing:  # a process that stands still may not read; then `_watch` ends it
                sums, self._handed = SUMS.since(self._handed)
                handed = {"sums": {"seed": SUMS.seed, "known": sums}} if sums else {}
                write_frame(self.process.stdin, {"id": number, "call": name, "payload": payload, **handed})
            return self._answer(name, answers, tick, limit)
        finally:
            with self._lock:
                del self._waiting[number]

    def _answer(self, name: str, answers: queue.SimpleQueue[Any], tick: Tick, limit: float | None) -> Frame:
        until = None if limit is None else time.monotonic() + limit
        while True:
            try:
                frame: Any = answers.get(timeout=None if until is None else max(until - time.monotonic(), 0.0))
            except queue.Empty:
                raise TookTooLong(f"The call {name} took longer than {limit:g} s", "Give it more time, or less to do") from None
            if frame is None:
                raise EOFError
            if "tick" not in frame:
                answer: Frame = frame
                return answer
            tick(frame["tick"])

    def _watch(self) -> None:
        """End the process if it gives no sign of life while somebody waits for it."""
        while self._silence is not None and not self._over.wait(min(BEAT_SECONDS, self._silence)):
            with self._lock:
                self._hung = bool(self._waiting) and time.monotonic() - self._heard > self._silence
            if self._hung:
                self.process.kill()
                return

    def _read(self) -> None:
        """Hand each frame to the call that it is for; at the end of the stream tell all."""
        assert self.process.stdout is not None
        try:
            while (frame := read_frame(self.process.stdout)) is not None:
                self._heard = time.monotonic()
                with self._lock:
                    answers = self._waiting.get(frame.get("id", 0))
                if answers is not None:
                    answers.put(frame)
        except ValueError:
            self._garbled = True  # whoever waits ends the process, and says why
        except OSError:
            return  # the pipe was closed on this side
        finally:
            with self._lock:
                self._over.set()
                for answers in self._waiting.values():
                    answers.put(None)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def ending(self) -> str:
        code = self.process.wait()
        if self._garbled:
            return "answered what is no answer"
        if self._hung:
            return f"gave no sign of life for {self._silence:g} s"
        return f"ended by signal {-code}" if code < 0 else f"ended with code {code}"

    def close(self) -> None:
        self.end()
        for thread in self._threads:
            thread.join(BEAT_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def serve(handle: Serve, beside: Mapping[str, Set[str]] = NO_LANES) -> None:
    """The child's side: answer calls until the parent is gone. What anybody prints goes to standard error instead.

    beside: names of calls by their lane. Each lane has a thread of its own; all other calls are answered by this one.
    """
    retain_freed_memory(CRUNCHING_BYTES)
    open_many_files()
    out = Out(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    lanes = {name: Calls() for name in ("", *beside)}
    lane_of = {call: name for name, calls in beside.items() for call in calls}
    for name in beside:
        threading.Thread(target=answer_all, args=(handle, lanes[name], out), daemon=True).start()
    threading.Thread(target=listen, args=(lanes, lane_of), daemon=True).start()
    threading.Thread(target=out.beat, daemon=True).start()
    answer_all(handle, lanes[""], out)


class Out:
    """The child's way out. Any number of threads."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def write(self, frame: Frame) -> None:
        with self._lock:
            write_frame(self._stream, frame)

    def tick(self, number: int) -> Tick:
        """What a call tells its progress with."""
        return lambda share: self.write({"id": number, "tick": float(share)})

    def beat(self) -> None:
        """Give signs of life. They stop when the process does, or when something holds the interpreter for good."""
        with contextlib.suppress(OSError):  # the parent is gone, which `listen` finds out
            while True:
                time.sleep(BEAT_SECONDS)
                self.write({"beat": True})


def answer_all(handle: Serve, calls: Calls, out: Out) -> None:
    """Answer one call after another. A lane that could not even say why would leave all that come after it waiting for ever."""
    try:
        while True:
            answer_one(handle, calls.get(), out)
    except BaseException as error:  # noqa: BLE001 - a thread's end would go unnoticed; the process's is told to all who wait
        with contextlib.suppress(BaseException):
            log_cause(error)
        os._exit(1)


def answer_one(handle: Serve, frame: Frame, out: Out) -> None:
    """Answer a call, or say that its answer cannot be sent: what a method gives may be no JSON, or more than there is memory."""
    result = answer(handle, frame, out.tick(frame["id"]))
    try:
        out.write({"id": frame["id"], **result})
    except OSError:
        raise  # the parent is gone
    except Exception as error:  # noqa: BLE001 - the process must answer; the trace stays in the local log
        log_cause(error)
        what = f"The answer to {frame['call']} cannot be sent: {type(error).__name__}"
        out.write({"id": frame["id"], "error": to_plain(StepFailed(what, "See the log of that process"))})


def listen(lanes: Mapping[str, Calls], lane_of: Mapping[str, str]) -> None:
    """Take calls in; when the parent is gone, end at once, in the middle of a step if need be."""
    stream = sys.stdin.buffer
    while (frame := read_frame(stream)) is not None:
        if sums := frame.get("sums"):
            SUMS.adopt(sums["seed"], sums["known"])
        lanes[lane_of.get(frame["call"], "")].put(frame)
    os._exit(0)


def answer(handle: Serve, frame: Frame, tick: Tick) -> dict[str, Any]:
    """One call's answer. A foreign error's words may hold data: only its type leaves; the rest goes to the local log."""
    try:
        return {"done": handle(frame["call"], frame["payload"], tick)}
    except FederationError as error:
        log_cause(error)
        return {"error": to_plain(error)}
    except MemoryError:
        return {"error": to_plain(StepFailed("There was not enough memory", "Lower the batch size, or give the machine more"))}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the process must answer; the trace stays in the local log
        log_cause(error)
        return {"error": to_plain(StepFailed(f"{frame['call']} raised {type(error).__name__}", "See the log of that process"))}


def log_cause(error: BaseException) -> None:
    """The whole story, to standard error, for whoever runs this process."""
    import traceback

    if not isinstance(error, FederationError) or error.__cause__ is not None:
        traceback.print_exception(error)


T = TypeVar("T")
GIVES = "gives"


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call by name: the types of what it takes, by their names, and of what it gives."""

    name: str
    takes: Frame
    gives: Any

    def result(self, answer: Mapping[str, Plain]) -> T:
        return cast(T, None if self.gives is None else read(self.gives, answer[GIVES], self.name))


METHODS = Call[tuple[compute.MethodSummary, ...]]("methods", {}, tuple[compute.MethodSummary, ...])
DESCRIBE = Call[compute.MethodFacts]("describe", {"method": str, "preset": str | None, "secure_sums": bool}, compute.MethodFacts)
DRAFT = Call[compute.Draft]("draft", {"asked": compute.DraftRequest}, compute.Draft)
BEGIN = Call[compute.NextRound]("begin", {"asked": compute.BeginRequest}, compute.NextRound)
CLOSE = Call[compute.NextRound]("close", {"asked": compute.CloseRequest}, compute.NextRound)
CHECK = Call[None]("check", {"asked": compute.CheckRequest}, None)
CALLS: Mapping[str, Call[Any]] = {call.name: call for call in (METHODS, DESCRIBE, DRAFT, BEGIN, CLOSE, CHECK)}


def answered(compute: compute.Compute, name: str, payload: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """A call made of plain data, and its result as plain data. Raises NotFound for an unknown one, else what the call raises."""
    if name not in CALLS:
        raise NotFound(f"The worker has no call {name!r}")
    given = {key: read(kind, payload[key], key) for key, kind in CALLS[name].takes.items()}
    return {GIVES: plain(getattr(compute, name)(**given))}


def job_in(raw: Mapping[str, Plain]) -> Job:
    return parse(Job, raw, "job")


def done_in(raw: Mapping[str, Plain]) -> Done:
    return parse(Done, raw, "done")
