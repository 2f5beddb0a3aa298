"""Cells as tasks on a Ray cluster: each a whole run on one worker. The bench's folder stays here.

A task gets its experiment and gives back the files of its run. The data it reads at the path that they have here, on whichever
node it runs, and checks that they are those that the experiment means. A cell whose worker was lost is run again.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tideline.bench.cells import CELLS, LOG, STATES
from tideline.bench.checks import digest_of
from tideline.bench.grid import Cell
from tideline.bench.scores import EXPERIMENT, RESULT
from tideline.client.output import replace_file
from tideline.core.algorithm import load_methods
from tideline.core.errors import DataRefused, FederationError
from tideline.core.privacy import Policy
from tideline.engine.compute.workers import check_worker, know_networks, versions
from tideline.engine.process.ray_tasks import Cluster, RayTasks
from tideline.experiments.simulation import Place, simulate_text
from tideline.written.files import read_file

COMPLETED, ENDED_BADLY = 0, 1  # as `tideline simulate` exits


@dataclass(frozen=True)
class Common:
    """What all cells of a bench have in common. data: the folder, and `digest` what `digest_of` it must be.

    name: how experiments call the folder, seen from their own.
    """

    data: Path
    digest: str
    name: str
    methods: str
    policy: Policy
    device: str
    keep_states: bool
    networks: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=versions)


@dataclass(frozen=True)
class Files:
    """What a cell leaves: its exit code, its files by name, and its log."""

    code: int
    files: Mapping[str, bytes]
    log: str


@dataclass
class RayWork:
    """A cell on the cluster. It ends when its files lie in its home."""

    place: RayPlace
    key: str
    home: Path
    returncode: int | None = None

    def poll(self) -> int | None:
        """Raises Unreachable for a cluster that has gone away, as tideline.engine.process.ray_tasks has it."""
        self.place.collect()
        return self.returncode

    def end(self, came: Files | FederationError) -> None:
        ended = Files(ENDED_BADLY, {}, words_of(came)) if isinstance(came, FederationError) else came
        (self.home / LOG).write_text(ended.log, encoding="utf-8")
        # The result last, and whole or not at all: with it everything is there.
        for name in sorted(ended.files, key=lambda each: each == RESULT):
            if name == RESULT:
                replace_file(self.home / name, ended.files[name].decode())
            else:
                (self.home / name).write_bytes(ended.files[name])
        self.returncode = ended.code


@dataclass(frozen=True)
class RayPlace:
    """A workplace of tideline.bench.cells."""

    tasks: RayTasks[Files]
    common: Common
    at_work: dict[str, RayWork] = field(default_factory=dict)

    def begin(self, cell: Cell, home: Path, lock: int) -> RayWork:
        """The lock stays with this process, and so does the cell: whoever begins it again has ended this one."""
        self.at_work[cell.key] = RayWork(self, cell.key, home)
        self.tasks.begin(cell.key, cell.text, self.common)
        return self.at_work[cell.key]

    def collect(self) -> None:
        """Take up what has ended."""
        while (answer := self.tasks.finished(0)) is not None:
            self.at_work.pop(answer[0]).end(answer[1])

    def stop(self, works: Sequence[RayWork]) -> None:
        self.tasks.close()


@contextmanager
def opened(cluster: Cluster, common: Common) -> Iterator[RayPlace]:
    """A place on a cluster, as RayTasks raises it."""
    place = RayPlace(RayTasks(play, cluster), common)
    try:
        yield place
    finally:
        place.stop(())


def play(text: str, common: Common) -> Files:
    """One cell, in a worker. Raises what is wrong with the worker: ConfigRefused, DeviceMissing."""
    check_worker(common.versions, common.device)
    know_networks(common.networks)
    with tempfile.TemporaryDirectory(prefix="tideline-") as scratch:
        home = Path(scratch) / CELLS / "cell"
        home.mkdir(parents=True)
        link = home / common.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(common.data, target_is_directory=True)
        (home / EXPERIMENT).write_text(text, encoding="utf-8")
        try:
            if data_here(common.data) != common.digest:
                raise DataRefused(f"{common.data} has other files on this node", "Put the same data there on every node")
            place = Place(policy=common.policy, device=common.device)
            result = simulate_text(read_file(home / EXPERIMENT), load_methods(common.methods), home, place)
        except FederationError as error:
            return Files(ENDED_BADLY, {}, words_of(error))
        kept = (home / RESULT, *(sorted(home.glob(STATES)) if common.keep_states else ()))
        files = {path.name: path.read_bytes() for path in kept if path.exists()}
        return Files(COMPLETED if result["status"] == "completed" else ENDED_BADLY, files, "")


@functools.cache
def data_here(folder: Path) -> str:
    """The digest of a folder's files, as a worker finds them; read once."""
    return digest_of(folder, Path(os.devnull), write_cache=False)


def words_of(error: FederationError) -> str:
    return f"Error: {error.what}\nWhat to do: {error.todo}\n"
