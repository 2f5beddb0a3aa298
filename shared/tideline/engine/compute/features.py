"""A site's rows as the features of a frozen encoder: computed once, and kept in a file that is whole or not there.

A file is a header of HEADER bytes, JSON padded with spaces: rows n, features d, and the BLAKE2b digest of what follows, which
is n * d numbers, float32. Its name is that of the run's frozen weights, by which it is known what still needs it, and a digest of
the encoder, of where it computes, and of the rows as they were transformed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tideline import __version__, nets
from tideline.archive.folder import sync
from tideline.core.errors import DataRefused
from tideline.core.record import Weights
from tideline.core.rows import MemoryRows, Rows
from tideline.core.run import Digest, Role, World
from tideline.core.settings import plain
from tideline.core.step import Data, View
from tideline.engine.compute.inline import reproducible
from tideline.engine.ports.site import SiteData
from tideline.learning.formats.holdings import Holdings
from tideline.learning.model_file import digest_of
from tideline.learning.rows import scratch
from tideline.nets.fingerprint import print_of
from tideline.nets.layers import backbone_of

HEADER = 256
SUFFIX, TEMPORARY = ".features", ".tmp"
KEPT = 32  # files in a home: those that were used last
SEED = 0


@dataclass(frozen=True)
class Encoder:
    """The frozen part of a network at one place.

    base: the digest of its file. folder: where features are kept; None: in memory, or a scratch file.
    """

    world: World
    weights: Weights
    device: str
    threads: int
    base: Digest
    folder: Path | None = None

    def rows(self, rows: Rows) -> Rows:
        """The features (n, d) of rows. Raises DataRefused where the disk has no room, or a feature is not finite."""
        d = nets.width(self.world)
        if not len(rows):
            return MemoryRows(torch.empty(0, d))
        if self.folder is None:
            return held(self.computed(rows), len(rows), d)
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.base}.{self.name_of(rows)}{SUFFIX}"
        found = read(file, len(rows), d)
        if found is None:
            write(file, self.computed(rows), len(rows), d)
            forget(self.folder)
            found = read(file, len(rows), d)
        if found is None:
            raise DataRefused(f"The features in {self.folder} cannot be read back", "Check the disk, and begin again")
        return found

    def computed(self, rows: Rows) -> Iterator[Tensor]:
        """Part after part, (b, d) each, in evaluation mode."""
        world = replace(self.world, trains=World().trains)
        empty = {name: torch.zeros(like.shape, dtype=like.dtype) for name, like in nets.template(world).items()}
        encoder = nets.loaded(world, empty | dict(self.weights), self.device).eval().get_submodule("features")
        for part in rows.parts():
            with reproducible(SEED, self.threads, self.device), torch.no_grad():
                made: Tensor = encoder(part.to(self.device)).float().cpu()
            if not torch.isfinite(made).all():
                todo = "Look at the values of the rows, and at the weights that the run brings"
                raise DataRefused(f"The frozen encoder of {self.world.model} gives features that are not finite", todo)
            yield made

    def name_of(self, rows: Rows) -> str:
        """What the features depend on, as one digest."""
        here = [torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.device(self.device).type, self.threads]
        # Of a network that is not built in, too, what it computes: its code may have changed since, and its weights not.
        network = [self.world.model, plain(self.world.options), list(self.world.inputs), plain(print_of(self.world)), __version__]
        said = [HEADER, here, network, digest_of(backbone_of(self.weights)), digest_of_rows(rows)]
        return hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=32).hexdigest()


def digest_of_rows(rows: Rows) -> str:
    """Of all numbers of rows, as they are after their transforms."""
    made = hashlib.blake2b(json.dumps([len(rows), list(rows.shape)]).encode(), digest_size=32)
    for part in rows.parts():
        made.update(part.contiguous().numpy().data)
    return made.hexdigest()


def held(parts: Iterator[Tensor], n: int, d: int) -> Rows:
    """Features where nothing of them is kept."""
    into, done = scratch.room((n, d)), 0
    for part in parts:
        into.tensor[done : done + len(part)] = part
        done += len(part)
    return into


def read(file: Path, n: int, d: int) -> Rows | None:
    """The features in a file, mapped; None where it is not there, or not as it was written."""
    try:
        if file.stat().st_size != HEADER + 4 * n * d:
            return None
        array = np.memmap(file, np.float32, "c", offset=HEADER, shape=(n, d))
        with file.open("rb") as opened:
            said = json.loads(opened.read(HEADER))
    except (OSError, ValueError):
        return None
    if said != header(n, d, hashlib.blake2b(array.data, digest_size=32).hexdigest()):
        return None
    with suppress(OSError):
        os.utime(file)
    return scratch.MappedRows(torch.from_numpy(array))


def header(n: int, d: int, digest: str) -> Mapping[str, object]:
    return {"rows": n, "features": d, "digest": digest}


def write(file: Path, parts: Iterator[Tensor], n: int, d: int) -> None:
    """Write features under a temporary name, renamed once they lie on the disk. Raises DataRefused where that is full."""
    size, made = HEADER + 4 * n * d, hashlib.blake2b(digest_size=32)
    for left in file.parent.glob(f".*{TEMPORARY}"):
        drop_if_left(left)
    if size > (free := make_room(file.parent, size)):
        raise full(file, size, f"{free / 1e9:.1f} GB are free")
    descriptor, temporary = opened_alone(file.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(b" " * HEADER)
            for part in parts:
                numbers = part.contiguous().numpy().data
                made.update(numbers)
                opened.write(numbers)
            opened.seek(0)
            opened.write(json.dumps(header(n, d, made.hexdigest())).encode().ljust(HEADER))
            opened.flush()
            os.fsync(opened.fileno())
            temporary.replace(file)
        sync(file.parent)
    except OSError as error:
        raise full(file, size, os.strerror(error.errno or 0)) from error
    finally:
        temporary.unlink(missing_ok=True)


def opened_alone(folder: Path) -> tuple[int, Path]:
    """A new temporary file, locked for as long as it is open: who ends while he writes leaves one that nobody holds."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=TEMPORARY)
        if locked(descriptor) and Path(name).exists():
            return descriptor, Path(name)
        os.close(descriptor)  # one who tidied up was faster, and deletes it


def locked(descriptor: int) -> bool:
    """Whether the file is ours alone. Where a file system has no locks it is: nobody there finds one that is not held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def drop_if_left(temporary: Path) -> None:
    """Delete a temporary file whose writer was killed."""
    with suppress(OSError), temporary.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.unlink(missing_ok=True)


def full(file: Path, size: int, why: str) -> DataRefused:
    what = f"The features of this site take {size / 1e9:.1f} GB in {file.parent}, and cannot be written ({why})"
    return DataRefused(what, "Make room there, or keep fewer rows", size=size)


def forget(folder: Path) -> None:
    """Keep the files that were used last."""
    for file in by_use(folder)[:-KEPT]:
        file.unlink(missing_ok=True)


def make_room(folder: Path, size: int) -> int:
    """Forget files, those first that were not used for longest, until so many bytes are free; how many are then."""
    old = iter(by_use(folder))
    while (free := shutil.disk_usage(folder).free) < size and (file := next(old, None)) is not None:
        file.unlink(missing_ok=True)
    return free


def by_use(folder: Path) -> list[Path]:
    """The files with features, those first that were not used for longest."""

    def used(file: Path) -> float:
        try:
            return file.stat().st_mtime
        except OSError:
            return 0.0

    return sorted(folder.glob(f"*{SUFFIX}"), key=used)


def forget_but(folder: Path, bases: Collection[str]) -> int:
    """Forget the features over all but these frozen weights; the bytes that were freed."""
    freed = 0
    for left in folder.glob(f".*{TEMPORARY}"):
        drop_if_left(left)
    for file in folder.glob(f"*{SUFFIX}"):
        if file.name.partition(".")[0] not in bases:
            with suppress(FileNotFoundError):  # another has forgotten it meanwhile
                size = file.stat().st_size
                file.unlink()
                freed += size
    return freed


@dataclass(frozen=True)
class ByView:
    """Data that are no Holdings: encoded view by view."""

    site_data: SiteData
    encoder: Encoder
    known: dict[tuple[View, Role], Data]

    def view(self, view: View, role: Role) -> Data:
        if (view, role) not in self.known:
            self.known[view, role] = encoded(self.site_data.view(view, role), self.encoder)
        return self.known[view, role]


def encoded(data: Data, encoder: Encoder) -> Data:
    """The same rows as features; labels and domains stay."""
    return replace(data, x=encoder.rows(data.x), bare=None if data.bare is None else encoder.rows(data.bare))


def encoded_site(site_data: SiteData, encoder: Encoder) -> SiteData:
    """All of a site's data as features: each row passes through the encoder once. Raises DataRefused."""
    if not isinstance(site_data, Holdings):
        return ByView(site_data, encoder, {})
    return replace(site_data, train=encoded(site_data.train, encoder), held_out=encoded(site_data.held_out, encoder))
