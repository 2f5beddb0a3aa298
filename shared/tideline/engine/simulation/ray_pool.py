"""The steps of simulated sites as tasks on a Ray cluster: this machine's, or many machines'.

Steps are pure, so one whose worker or node was lost is run again, wherever there is room, and the bytes are those of the pool
inline. Ray pickles what goes to its workers and back: data sources, jobs, briefs, outcomes, all between processes of one owner.
Messages and memories are bytes of archives, as everywhere. Data do not travel: a worker opens a site's data where it finds them,
and remembers them.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tideline.archive.parts import MemoryParts, Parts
from tideline.core.algorithm import Methods
from tideline.core.errors import FederationError
from tideline.core.run import Digest, OrderId
from tideline.core.settings import Plain, plain, read
from tideline.engine.compute.workers import check_worker, know_networks, network_places, versions
from tideline.engine.model.brief import Brief
from tideline.engine.ports.site import Done, Job
from tideline.engine.process.pipe import from_plain
from tideline.engine.process.ray_tasks import Box, Cluster, RayTasks
from tideline.engine.simulation.pools import (
    AHEAD,
    Answer,
    Outcome,
    Runners,
    Sources,
    Task,
    TaskParts,
    bare,
    cores,
    made,
    needed,
    outcome,
)

Bytes: TypeAlias = NDArray[np.uint8]  # (size,), read-only: Ray maps arrays, and would copy bytes
LARGE_BYTES = 1 << 16  # parts of so many bytes are laid down once, and mapped by the workers of a node


@dataclass(frozen=True)
class Start:
    """What a worker process needs of a pool, once. name: of the pool, no other's."""

    name: str
    methods: Methods
    sources: Sources
    device: str
    versions: Mapping[str, str]
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Boxes:
    """What a worker opens the first time."""

    start: Box[Start]
    brief: Box[Mapping[str, Plain]]


@dataclass
class Home:
    """What a worker process remembers of a pool: its sites' data, and the briefs that it has read."""

    name: str
    runners: Runners
    briefs: dict[int, Brief] = field(default_factory=dict)


HOMES: list[Home] = []  # of this worker process: one at most, that of the pool at hand


class RayPool:
    """Tasks on Ray. At work are two a slot of the cluster, followed as nodes come and go; or as many as `jobs` says."""

    def __init__(
        self,
        methods: Methods,
        sources: Sources,
        device: str = "cpu",
        cluster: Cluster | None = None,
        jobs: int | None = None,
        large: int = LARGE_BYTES,
    ) -> None:
        """Raises ConfigRefused without Ray, or room in the cluster, and for data sources that cannot be sent; Unreachable."""
        self._jobs, self._large = jobs, large
        self._lent: Counter[Digest] = Counter()
        self._shared: dict[Digest, Box[Bytes]] = {}
        self._briefs: list[tuple[Brief, Box[Mapping[str, Plain]]]] = []
        self._at_work: dict[OrderId, tuple[Job, Parts]] = {}
        self._tasks = RayTasks(step, cluster or Cluster(cpus=jobs or cores()))
        try:
            start = Start(
                name=uuid.uuid4().hex,
                methods=methods,
                sources=dict(sources),
                device=device,
                versions=versions(),
                networks=network_places(),
            )
            self._name, self._start = start.name, self._tasks.put(start)
        except FederationError:
            self.close()
            raise

    @property
    def room(self) -> int:
        return (self._jobs or self._tasks.slots * AHEAD) - len(self._at_work)

    def begin(self, order: OrderId, job: Job, parts: Parts) -> None:
        """Begin a step. Raises Unreachable for a cluster that has gone away."""
        shared, files = dict[Digest, Box[Bytes]](), dict[Digest, bytes]()
        for digest in needed(job, parts):
            if parts.size(digest) >= self._large:
                shared[digest] = self._lend(digest, parts)
            else:
                files[digest] = bytes(parts.view(digest))
        like, brief = self._brief(job.brief)
        task = Task(order=order, job=bare(job), like=like, brief=None, files=files)
        self._at_work[order] = job, parts
        # Boxes in Boxes are opened by a worker that needs them; the others are opened, that is mapped, before the task begins.
        self._tasks.begin(order, self._name, Boxes(self._start, brief), task, tuple(shared), *shared.values())

    def finished(self) -> Answer:
        """A step's end, in any order. Raises Unreachable; ConfigRefused for workers of other versions or without the device."""
        answer = self._tasks.finished()
        assert answer is not None, "no step was begun"
        order = OrderId(answer[0])
        job, parts = self._at_work.pop(order)
        self._returned(job, parts)
        if isinstance(answer[1], FederationError):
            return order, answer[1]
        return order, received(answer[1], parts)

    def close(self) -> None:
        self._tasks.close()

    def _lend(self, digest: Digest, parts: Parts) -> Box[Bytes]:
        """A part in the cluster: laid down for the first step that reads it, and there as long as one does."""
        if digest not in self._shared:
            self._shared[digest] = self._tasks.put(np.frombuffer(parts.view(digest), np.uint8))
        self._lent[digest] += 1
        return self._shared[digest]

    def _returned(self, job: Job, parts: Parts) -> None:
        """A step is over: forget the parts that no other reads."""
        for digest in needed(job, parts):
            if digest in self._lent:
                self._lent[digest] -= 1
                if not self._lent[digest]:
                    del self._lent[digest], self._shared[digest]

    def _brief(self, brief: Brief) -> tuple[int, Box[Mapping[str, Plain]]]:
        """A brief's number and box. There are two of a run, or three: one for each role."""
        for i, (each, box) in enumerate(self._briefs):
            if each is brief:
                return i, box
        self._briefs.append((brief, self._tasks.put(plain(brief))))
        return len(self._briefs) - 1, self._briefs[-1][1]


def received(came: Outcome, parts: Parts) -> Done | FederationError:
    """What came of a step, its files now in its site's parts."""
    if came.done is None:
        return from_plain(came.error)
    for digest, _ in made(came.done):
        if not parts.has(digest):
            parts.put([came.files[digest]])
    return came.done


class MappedParts(TaskParts):
    """The parts of one step: what came with it, what is mapped, and what it makes."""

    def __init__(self, files: Mapping[Digest, bytes], mapped: Mapping[Digest, Bytes]) -> None:
        super().__init__(files, MemoryParts(), sys.maxsize)
        self._mapped = mapped

    def has(self, digest: Digest) -> bool:
        return digest in self._mapped or super().has(digest)

    def size(self, digest: Digest) -> int:
        return self._mapped[digest].nbytes if digest in self._mapped else super().size(digest)

    def view(self, digest: Digest) -> memoryview:
        # A copy: the pages are those of all workers of the node, and a step may write to its tensors.
        return memoryview(bytearray(self._mapped[digest])) if digest in self._mapped else super().view(digest)


def step(pool: str, boxes: Boxes, task: Task, digests: tuple[Digest, ...], *mapped: Bytes) -> Outcome:
    """One step, in a worker. Raises ConfigRefused and DeviceMissing for a worker that cannot run steps of this pool."""
    if [home.name for home in HOMES] != [pool]:
        HOMES[:] = [opened(boxes.start.open())]
    home = HOMES[0]
    if task.like not in home.briefs:
        home.briefs[task.like] = read(Brief, boxes.brief.open(), "brief")
    parts = MappedParts(task.files, dict(zip(digests, mapped, strict=True)))
    came = home.runners.run(replace(task.job, brief=home.briefs[task.like]), parts)
    return outcome(task.order, came, parts)


def opened(start: Start) -> Home:
    """Raises ConfigRefused for other versions than the pool's, and for networks that are not there; DeviceMissing."""
    check_worker(start.versions, start.device)
    know_networks(start.networks)
    return Home(start.name, Runners(start.methods, start.sources, start.device))
