"""A site's domains as rows of caches: found in the site's folder of caches, or made there."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.cache.building import Build, Lost, Mixed, Source, mender_of, workers_here
from tideline.learning.cache.cached_rows import CachedRows, Mender, RowsFile, opened
from tideline.learning.cache.folder import LOCK, PART, SUFFIX, Folder, locked
from tideline.learning.cache.layout import DIGEST, VERSION, Head, digest_of
from tideline.learning.cache.writing import Writer
from tideline.learning.formats import arrays
from tideline.learning.formats.holdings import Rows as Numbers
from tideline.learning.formats.kinds import npy
from tideline.learning.formats.surveys import Piece, Survey, at
from tideline.learning.formats.transforms import PICTURES, Transform
from tideline.learning.rows import resizing

# Settings by which files are read, beside the scale; others follow when rows are read from the cache.
BEFORE = ("layout", "window", "resize", "mel", "rate", "window_ms", "hop_ms", "seconds")
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
        """A domain's samples; or why it has no cache: the disk, the limit, or, as an empty text, that it needs none.

        Raises DataRefused for samples that are no use.
        """
        source = source_of(survey, world)
        if source is None:
            return ""
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
    """How a domain's samples are read row by row; None for tables, and for a mapped array whose rows are read as they are."""
    path, made = survey.place.path, partial(Source, count=len(survey), world=world, what=survey.what)
    if path.suffix == ".npz":
        return made(read=None, stream=partial(streamed, path, survey.place.transform))
    if npy.is_domain(path):  # images may have to be resized
        return made(read=None, stream=survey.pieces) if len(world.inputs) == 3 else None
    if survey.reader is None:
        return None
    return made(read=survey.reader(np.arange(len(survey), dtype=np.int64)), stream=survey.pieces)


def streamed(path: Path, transform: Transform) -> Iterator[Piece]:
    return (Piece(start, x, transform) for start, x in arrays.streamed(path))


def files_digest(survey: Survey) -> str:
    """Of the names, sizes and times of a domain's files, in the order of its rows."""
    path = survey.place.path
    places = [f"{path}{os.sep}{survey.name(row)}" for row in range(len(survey))] if path.is_dir() else [str(path)]
    return digest_of(os.fsencode("\n".join(map(seen, places)))).hex()


def seen(place: str) -> str:
    """The name, size and time of a file; of a sample that is a folder, of each file in it."""
    try:
        found = os.stat(place)  # noqa: PTH116 - a Path for each of very many files takes longer than the look
        inside = sorted(each.name for each in Path(place).iterdir()) if stat.S_ISDIR(found.st_mode) else []
    except OSError:
        return place
    return "\n".join((f"{place}\0{found.st_size}\0{found.st_mtime_ns}", *(seen(f"{place}{os.sep}{name}") for name in inside)))


def reading_digest(survey: Survey, world: World) -> str:
    """Of what the bytes of a row depend on, beside its file."""
    transform = survey.place.transform
    said = [VERSION, resizing.VERSION, survey.decoder, torch.__version__, list(world.inputs), transform.scale]
    said += [world.vocabulary, *(getattr(transform, name) for name in BEFORE)]
    if len(world.inputs) != 3 or world.inputs[0] not in PICTURES:
        said += [
            transform.mean,
            transform.std,
        ]  # numbers may become too large by them, which is found out while they are written
    return digest_of(json.dumps(said).encode()).hex()


def name_of(head: Head) -> str:
    """The file's name: of a domain, its files, and how they are read."""
    return digest_of(json.dumps([head.domain, head.files, head.reading]).encode()).hex()
