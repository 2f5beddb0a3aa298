"""Who runs the steps of simulated sites: this process, or processes of its own on the machine's other cores.

Steps are pure: what one reads goes with it, what it makes comes back, and one whose process died is run again. So the bytes are
the same whoever runs it. A process is started by spawn, and is sent the sites' data sources and jobs as Python objects: all of
that is between processes of one owner. Nothing but this module pickles, and Ray (`ray_pool`). Messages are bytes of archives, as
everywhere.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from pickle import PicklingError
from typing import NoReturn, Protocol, TypeAlias

from tideline.archive.digests import Buffer
from tideline.archive.folder import FolderParts
from tideline.archive.layout import parse
from tideline.archive.parts import MemoryParts, Parts, bytes_of
from tideline.core.algorithm import Methods
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, FederationError, StepFailed
from tideline.core.run import ClientId, Digest, OrderId, Role, RunId
from tideline.core.settings import Plain, plain, read
from tideline.core.step import no_tick
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.compute.workers import know_networks, network_places
from tideline.engine.model.brief import Brief
from tideline.engine.ports.site import Done, Job, OpenSiteData
from tideline.engine.process.pipe import from_plain, to_plain

log = logging.getLogger(__name__)
Sources: TypeAlias = Mapping[ClientId, OpenSiteData]
Answer: TypeAlias = tuple[OrderId, "Done | FederationError"]
SHARED_BYTES = 1 << 20  # parts of so many bytes go through files that processes map, not through pipes
# Steps that a process has at once: the next is there when one is done. Of short ones it has more, so that it waits for no pipe;
# of long ones not, or one process would have them while another has none.
AHEAD, FAR_AHEAD, SHORT_STEP = 2, 12, 0.02
AT_ONCE = 512  # short steps that this process runs one after the other
SHORT_SECONDS = 0.25  # for so long steps are run in this process before the first answer is given
TRIES = 3  # a step whose process died is run again, at most twice
MEMORY = Path("/dev/shm")  # a folder in memory, where there is one


class StepPool(Protocol):
    """Runs steps, several at once."""

    @property
    def room(self) -> int:
        """How many more steps may begin now."""

    def begin(self, order: OrderId, job: Job, parts: Parts) -> None:
        """Begin the step of an order over the parts of its site, where what it makes will lie."""

    def finished(self) -> Answer:
        """Wait for a step; what came of it, in any order."""

    def close(self) -> None: ...


class InlinePool:
    """Runs steps in this process. Short ones are run one after the other, before any answer is given: each then finds the
    processor's caches as the one before left them.
    """

    def __init__(self, methods: Methods, sources: Sources, device: str = "cpu") -> None:
        self._runners = Runners(methods, sources, device)
        self._begun: deque[tuple[OrderId, Job, Parts]] = deque()
        self._done: deque[Answer] = deque()

    @property
    def room(self) -> int:
        """None until every answer was given, so that answers follow each other, too."""
        return 0 if self._done else AT_ONCE - len(self._begun)

    def begin(self, order: OrderId, job: Job, parts: Parts) -> None:
        self._begun.append((order, job, parts))

    def finished(self) -> Answer:
        if not self._done:
            self._run_some()
        return self._done.popleft()

    def _run_some(self) -> None:
        end = time.monotonic() + SHORT_SECONDS
        while self._begun:
            order, job, parts = self._begun.popleft()
            self._done.append((order, self._runners.run(job, parts)))
            if time.monotonic() >= end:
                return

    def close(self) -> None:
        return


class Runners:
    """A step runner for each site, made when it is first needed: each remembers its site's data."""

    def __init__(self, methods: Methods, sources: Sources, device: str) -> None:
        self._methods, self._sources, self._device = methods, sources, device
        self._known: dict[ClientId, StepRunner] = {}
        self._parts: Parts = MemoryParts()
        self._reported: set[str] = set()

    def parts_of(self, run: RunId) -> Parts:
        """Those of the step at hand."""
        return self._parts

    def run(self, job: Job, parts: Parts) -> Done | FederationError:
        """One step, what it makes left in its parts."""
        if job.client not in self._known:
            self._known[job.client] = StepRunner(self._methods, self.parts_of, self._sources[job.client], self._device)
        self._parts = parts
        try:
            return self._known[job.client].run(job, no_tick)
        except FederationError as error:
            self._report(job.client, error)
            return error

    def _report(self, site: ClientId, error: FederationError) -> None:
        """What a step's own code raised, for whoever runs this process: no agent has a log of it. The same error is told once."""
        raised = repr(error.__cause__)
        if isinstance(error, StepFailed) and error.__cause__ is not None and raised not in self._reported:
            self._reported.add(raised)
            log.warning("At %s: %s", site, error.what, exc_info=error.__cause__)


@dataclass(frozen=True)
class Task:
    """A step on its way to a process. job: with BARE for its brief, whose number is `like`; brief: itself, the first time.

    files: what the step reads, but for what lies in shared files.
    """

    order: OrderId
    job: Job
    like: int
    brief: Mapping[str, Plain] | None
    files: Mapping[Digest, bytes]


# In the place of a brief that a process knows: nothing in it is a view of a mapping, which cannot be sent.
NOWHERE = World(sizes={}, options={})
BARE = Brief(method="", config={}, world=NOWHERE, threads=1, keeps=False, contract=(), role=Role.PEER, peers={})


def bare(job: Job) -> Job:
    """A job as it can be sent, without its brief."""
    return replace(job, brief=BARE, transfers=replace(job.transfers, fetched=dict(job.transfers.fetched)))


@dataclass(frozen=True)
class Outcome:
    """What came of a step, with the files that it made; or its error as plain data. seconds: that it took."""

    order: OrderId
    done: Done | None
    files: Mapping[Digest, bytes]
    error: Mapping[str, Plain]
    seconds: float = 0.0


@dataclass
class Worker:
    """A process. known: the briefs that it has been sent. at_work: its steps, and how often each was begun."""

    process: BaseProcess
    line: Connection
    known: set[int] = field(default_factory=set)
    at_work: dict[OrderId, tuple[Job, Parts, int]] = field(default_factory=dict)


class ProcessPool:
    """Spawned processes, each with the sites that fall to it, so that mostly one alone holds a site's data."""

    def __init__(self, methods: Methods, sources: Sources, device: str = "cpu", jobs: int = 1, large: int = SHARED_BYTES) -> None:
        """Raises ConfigRefused for more processes than there are cores, and for data sources that cannot be sent to them."""
        check_jobs(jobs)
        self._folder = tempfile.TemporaryDirectory(prefix="tideline-", dir=MEMORY if MEMORY.is_dir() else None)
        self._shared = FolderParts(Path(self._folder.name), durable=False)
        self._lent: Counter[Digest] = Counter()
        self._large = large
        self._start = (methods, dict(sources), device, Path(self._folder.name), large, network_places())
        self._homes = {name: i % jobs for i, name in enumerate(sorted(sources))}
        self._briefs: list[Brief] = []
        self._failed: list[Answer] = []
        self._jobs, self._ahead = jobs, AHEAD
        self._workers: list[Worker] = []
        try:
            self._workers += [self._started() for _ in range(jobs)]
        except ConfigRefused:
            self.close()
            raise

    @property
    def room(self) -> int:
        return self._jobs * self._ahead - sum(len(worker.at_work) for worker in self._workers) - len(self._failed)

    def begin(self, order: OrderId, job: Job, parts: Parts) -> None:
        for digest in needed(job, parts):
            if parts.size(digest) >= self._large:
                self._lent[digest] += 1
                if not self._shared.has(digest):
                    self._shared.put([parts.view(digest)])
        self._send(order, job, parts, 1)

    def finished(self) -> Answer:
        while not self._failed:
            busy = [each for each in self._workers if each.at_work]
            ready = wait([each.line for each in busy])
            worker = next(each for each in busy if each.line in ready)
            try:
                if (answer := self._received(worker, worker.line.recv())) is not None:
                    return answer
            except (EOFError, OSError):
                self._again(worker)
        return self._failed.pop(0)

    def close(self) -> None:
        for worker in self._workers:
            worker.line.close()
            worker.process.terminate()
            worker.process.join()
        self._folder.cleanup()

    def _started(self) -> Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, *self._start), daemon=True)
        try:
            process.start()
        except (AttributeError, TypeError, PicklingError) as cause:
            what = f"The sites' data cannot be opened by another process: {cause}"
            raise ConfigRefused(
                what, "Open them with functions and classes of modules, or use the pool inline", path="pool"
            ) from None
        theirs.close()
        return Worker(process, ours)

    def _send(self, order: OrderId, job: Job, parts: Parts, tries: int) -> None:
        """To the process that has the site's data, unless that has enough to do."""
        home = self._workers[self._homes[job.client]]
        worker = home if len(home.at_work) < self._ahead else min(self._workers, key=lambda each: len(each.at_work))
        worker.at_work[order] = job, parts, tries
        like = self._number(job.brief)
        brief = None if like in worker.known else plain(job.brief)
        worker.known.add(like)
        files = {digest: bytes(parts.view(digest)) for digest in needed(job, parts) if parts.size(digest) < self._large}
        with suppress(OSError):  # it has died, as `finished` will see
            worker.line.send(Task(order=order, job=bare(job), like=like, brief=brief, files=files))

    def _number(self, brief: Brief) -> int:
        """A brief's number. There are two of a run, or three: one for each role."""
        for i, each in enumerate(self._briefs):
            if each is brief:
                return i
        self._briefs.append(brief)
        return len(self._briefs) - 1

    def _received(self, worker: Worker, outcome: Outcome) -> Answer | None:
        """What came of a step; None if it was begun again."""
        self._ahead = FAR_AHEAD if outcome.seconds < SHORT_STEP else AHEAD
        job, parts, _ = worker.at_work.pop(outcome.order)
        self._returned(job, parts)
        if outcome.done is None:
            return outcome.order, from_plain(outcome.error)
        here = (parts.has, outcome.files.__contains__, self._shared.has)
        if not all(any(has(digest) for has in here) for digest, _ in made(outcome.done)):
            # Another step made the same bytes at the same time: they were there, and went with that one.
            self.begin(outcome.order, job, parts)
            return None
        for digest, size in made(outcome.done):
            if not parts.has(digest):
                parts.put([outcome.files[digest] if digest in outcome.files else self._shared.view(digest)])
            if size >= self._large and digest not in self._lent:
                self._shared.drop(digest)
        return outcome.order, outcome.done

    def _returned(self, job: Job, parts: Parts) -> None:
        """A step is over: drop the shared files that no other reads."""
        for digest in needed(job, parts):
            if digest in self._lent:
                self._lent[digest] -= 1
                if not self._lent[digest]:
                    del self._lent[digest]
                    self._shared.drop(digest)

    def _again(self, worker: Worker) -> None:
        """A process has died: start another one, with the steps that it had."""
        worker.process.join()
        self._workers[self._workers.index(worker)] = self._started()
        for order, (job, parts, tries) in worker.at_work.items():
            if tries < TRIES:
                self._send(order, job, parts, tries + 1)
                continue
            self._returned(job, parts)
            what = f"The process of this step died {TRIES} times, the last time with code {worker.process.exitcode}"
            todo = "Look for the kernel's out-of-memory messages; use fewer processes, or smaller batches"
            self._failed.append((order, StepFailed(what, todo)))


def check_jobs(jobs: int) -> None:
    """Raises ConfigRefused for fewer processes than one, and for more than there are cores."""
    if not 1 <= jobs <= cores():
        raise ConfigRefused(f"jobs is {jobs}; this machine has {cores()} cores", f"Give 1 to {cores()}", path="jobs")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def needed(job: Job, parts: Parts) -> Iterator[Digest]:
    """The files that a step reads: its message and its memory, the values that the message names, the run's base, what its
    children predicted, and what its last message left out.
    """
    if job.brief.base is not None:
        yield job.brief.base
    for root in filter(None, (job.message, job.memory, job.best, job.unsent, *job.outputs.values())):
        header = parse(parts.view(root))
        yield root
        yield from (Digest(digest) for digest, _ in header.parts)
        yield from (digest for each in header.handles if parts.has(digest := Digest(each.digest)))


def made(done: Done) -> Iterator[tuple[Digest, int]]:
    """The files that a step made, the values for peers among them."""
    yield from (*done.message, *done.memory, *done.best, *done.outputs, *done.unsent)
    yield from ((Digest(each.digest), each.size) for each in done.handles)


class TaskParts(MemoryParts):
    """The parts of one step: small ones in memory, large ones in the folder that all processes see."""

    def __init__(self, files: Mapping[Digest, bytes], shared: Parts, large: int) -> None:
        super().__init__()
        self._held.update(files)
        self._shared, self._large = shared, large

    def has(self, digest: Digest) -> bool:
        return super().has(digest) or self._shared.has(digest)

    def size(self, digest: Digest) -> int:
        return super().size(digest) if digest in self._held else self._shared.size(digest)

    def view(self, digest: Digest) -> memoryview:
        return super().view(digest) if digest in self._held else self._shared.view(digest)

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        large = sum(map(len, buffers)) >= self._large
        return self._shared.put(buffers) if large else super().put(buffers)

    def files(self, digests: Iterable[Digest]) -> dict[Digest, bytes]:
        """Those that are in memory."""
        return {digest: bytes_of(self._held[digest]) for digest in digests if digest in self._held}


def work(
    line: Connection, methods: Methods, sources: Sources, device: str, folder: Path, large: int, added: tuple[str, ...]
) -> None:
    """A process of a pool: step after step. It ends when the other end of the line closes. Ctrl-C is for that end to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    know_networks(added)
    shared, runners = FolderParts(folder, durable=False), Runners(methods, sources, device)
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    # What comes is taken up at once: two that wait for each other to read would wait for ever.
    threading.Thread(target=listen, args=(line, tasks), daemon=True).start()
    briefs: dict[int, Brief] = {}
    while True:
        task = tasks.get()
        if task.brief is not None:
            briefs[task.like] = read(Brief, task.brief, "brief")
        parts = TaskParts(task.files, shared, large)
        began = time.monotonic()
        came = runners.run(replace(task.job, brief=briefs[task.like]), parts)
        with suppress(OSError):  # nobody listens any more
            line.send(replace(outcome(task.order, came, parts), seconds=time.monotonic() - began))


def listen(line: Connection, tasks: queue.SimpleQueue[Task]) -> NoReturn:
    """Take tasks in; when the other end is gone, end at once, in the middle of a step if need be."""
    with suppress(EOFError, OSError):
        while True:
            tasks.put(line.recv())
    os._exit(0)


def outcome(order: OrderId, came: Done | FederationError, parts: TaskParts) -> Outcome:
    if isinstance(came, FederationError):
        return Outcome(order=order, done=None, files={}, error=to_plain(came))
    done = replace(came, metrics=dict(came.metrics))
    return Outcome(order=order, done=done, files=parts.files(digest for digest, _ in made(done)), error={})
