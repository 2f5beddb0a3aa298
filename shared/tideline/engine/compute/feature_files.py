"""The features that frozen encoders made, in files that are whole or not there.

A file is a header of HEADER bytes, JSON padded with spaces: rows n, features d, and the BLAKE2b digest of what follows, which
is n * d numbers, float32. Its name begins with that of the run's frozen weights, by which it is known what still needs it.
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
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tideline.archive.folder import sync
from tideline.core.errors import DataRefused
from tideline.core.rows import Rows
from tideline.learning.cache.folder import taken_alone
from tideline.learning.rows import scratch

HEADER = 256
SUFFIX, TEMPORARY = ".features", ".tmp"
KEPT = 32  # files in a home: those that were used last


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
        if taken_alone(descriptor) and Path(name).exists():
            return descriptor, Path(name)
        os.close(descriptor)  # one who tidied up was faster, and deletes it


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
