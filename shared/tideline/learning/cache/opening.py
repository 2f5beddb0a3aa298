"""A site's domains as rows of caches: found in the site's folder of caches, or made there."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tideline.core.errors import DataRefused
from tideline.core.run import World
from tideline.learning.cache.building import Build, Lost, Mixed, Source, mender_of, workers_here
from tideline.learning.cache.cached_rows import CachedRows, Mender, RowsFile, opened
from tideline.learning.cache.folder import LOCK, PART, SUFFIX, Folder, locked
from tideline.learning.cache.layout import DIGEST, VERSION, Head, digest_of
from tideline.learning.cache.writing import Writer
from tideline.learning.formats import arrays, images
from tideline.learning.formats.holdings import Rows as Numbers
from tideline.learning.formats.surveys import Piece, Survey, at
from tideline.learning.rows import resizing

WAIT_SECONDS = 0.2  # between two looks at a lock that another process holds
log = logging.getLogger(__name__)


def nothing(share: float) -> None:
    """Progress that nobody follows."""


@dataclass(frozen=True)
class Cached:
    """A domain's samples in an open cache; and the rows that cannot be read, with the type of error of each."""

    file: RowsFile
    survey: Survey

    @property
    def lost(self) -> Lost:
        return self.file.head.lost

    def rows(self, numbers: Numbers) -> CachedRows:
        return CachedRows(self.file, torch.from_numpy(numbers), self.survey.place.transform)


@dataclass(frozen=True)
class RowsCache:
    """The caches of a site. workers: threads that decode; None: as many as there are processors for this process.

    progress: follows the making of one, a share at a time; 1.0 at its end, however that comes.
    """

    folder: Folder
    workers: int | None = None
    progress: Callable[[float], None] = nothing

    def of(self, survey: Survey, world: World) -> Cached | str:
        """A domain's samples; or why it has no cache: the disk, the limit. Raises DataRefused for samples that are no use."""
        source = source_of(survey, world)
        if source is None:
            return "tables have none"
        path = survey.place.path
        plan = Head(
            domain=str(path.absolute()),
            files=files_digest(survey),
            reading=reading_digest(survey, world),
            count=len(survey),
            shape=world.inputs,
            dtype="",
            white=1.0,
        )
        try:
            with at(path):
                return Cached(self.found_or_made(plan, source), survey)
        except NoRoom as error:
            return str(error)
        except OSError as error:
            return f"{self.folder.path}: {os.strerror(error.errno or 0)}"

    def found_or_made(self, plan: Head, source: Source) -> RowsFile:
        name = name_of(plan)
        path = self.folder.path / f"{name}{SUFFIX}"
        if self.folder.limit == 0:
            raise NoRoom("--rows-cache is 0")
        find = partial(self.found, path, plan, source)
        file = find()
        if file is None:
            self.folder.prepare()

            def waiting() -> None:
                self.progress(0.0)
                time.sleep(WAIT_SECONDS)

            try:
                with locked(path.with_suffix(LOCK), waiting):
                    file = find()
                    if file is None:
                        self.make(path, plan, source)
                        file = find()
            finally:
                self.progress(1.0)
        if file is None:
            raise NoRoom("it cannot be read back")
        self.folder.drop_stale(plan)
        return file

    def found(self, path: Path, plan: Head, source: Source) -> RowsFile | None:
        def fits(head: Head) -> bool:
            like = (head.domain, head.files, head.reading, head.count, head.shape)
            return like == (plan.domain, plan.files, plan.reading, plan.count, plan.shape)

        def mends(head: Head, digests: bytes) -> Mender:
            def digest(row: int) -> bytes:
                return digests[row * DIGEST : (row + 1) * DIGEST]

            return mender_of(source, head.domain, head, digest, digest_of)

        return opened(path, fits, mends)

    def make(self, path: Path, plan: Head, source: Source) -> None:
        """Make the file. Raises NoRoom, OSError, and DataRefused for samples that are no use."""
        first = source.first()
        if first is None:
            raise NoRoom("no sample can be read")
        planned = replace(plan, dtype=first.x.dtype.name, white=first.white)
        try:
            self.write(path, planned, source)
        except Mixed:
            self.write(path, replace(planned, dtype="float32", white=1.0), source)

    def write(self, path: Path, head: Head, source: Source) -> None:
        if why := self.folder.make_room(head.end, path.stem):
            raise NoRoom(why)
        workers, began = self.workers or workers_here(), time.monotonic()
        log.info("Decoded rows: %d are written once, %.1f GB, by %d threads", head.count, head.end / 1e9, workers)
        writer = Writer(path.with_suffix(PART), head)
        try:
            lost = Build(writer, source, workers, self.progress).run()
            writer.finish(path, lost)
        except (OSError, Mixed, DataRefused):
            writer.discard()
            raise
        finally:
            writer.close()
        log.info("Decoded rows: %d are written in %.0f s", head.count, time.monotonic() - began)


class NoRoom(Exception):
    """A cache cannot be had here; the samples can be used without."""


def source_of(survey: Survey, world: World) -> Source | None:
    """How a domain's samples are read row by row; None for tables."""
    path, transform = survey.place.path, survey.place.transform
    if survey.reader is not None:
        every = np.arange(len(survey), dtype=np.int64)
        return Source(len(survey), world.inputs, survey.reader(every), survey.pieces)
    if path.suffix != ".npz":
        return None
    return Source(len(survey), world.inputs, None, lambda: (Piece(start, x, transform) for start, x in arrays.streamed(path)))


def files_digest(survey: Survey) -> str:
    """Of the names, sizes and times of a domain's files, in the order of its rows."""
    path, said = str(survey.place.path), list[str]()
    for each in [path] if survey.reader is None else [f"{path}{os.sep}{survey.name(row)}" for row in range(len(survey))]:
        try:
            seen = os.stat(each)  # noqa: PTH116 - a Path for each of very many files takes longer than the look
            said.append(f"{each}\0{seen.st_size}\0{seen.st_mtime_ns}")
        except OSError:
            said.append(each)
    return digest_of(os.fsencode("\n".join(said))).hex()


def reading_digest(survey: Survey, world: World) -> str:
    """Of what the bytes of a row depend on, beside its file."""
    transform = survey.place.transform
    said = [VERSION, resizing.VERSION, images.DECODER, torch.__version__, list(world.inputs), transform.scale]
    if len(world.inputs) != 3:
        said += [
            transform.mean,
            transform.std,
        ]  # features may become too large by them, which is found out while they are written
    return digest_of(json.dumps(said).encode()).hex()


def name_of(head: Head) -> str:
    """The file's name: of a domain, its files, and how they are read."""
    return digest_of(json.dumps([head.domain, head.files, head.reading]).encode()).hex()
