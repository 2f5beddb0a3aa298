"""Tensors and rows in mapped files: of a size that memory need not hold.

A scratch file lies in the folder for temporary files (`TMPDIR`), is readable by this process alone, and has no name: it is gone
with the tensor, or with the process, however that ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from tideline.core.errors import DataRefused
from tideline.core.rows import MemoryRows, Rows, TensorRows, check_whole
from tideline.learning.loading.ahead import in_parts

HELD = 1 << 29  # bytes of rows, or of their features, that are held in memory; of more, none are
MORE_DISK = "Make room there, or name another folder with the variable TMPDIR; or keep fewer rows, or ask for smaller inputs"


NUMPY = {torch.float32: np.float32, torch.int64: np.int64}  # what rows may hold


def empty(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of this shape in a scratch file, its values not set. Raises DataRefused where the disk has no room."""
    size = dtype.itemsize * prod(shape)
    if not size:
        return torch.empty(tuple(shape), dtype=dtype)
    check_disk(size)
    with tempfile.TemporaryFile(prefix="tideline-rows-") as file:
        try:
            # A file that is merely long would end the process where the disk is full, in the midst of writing to it.
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise full(size, os.strerror(error.errno or 0)) from error
        return torch.from_numpy(np.memmap(file, NUMPY[dtype], "r+", shape=tuple(shape)))


def check_disk(size: int) -> None:
    """Raises DataRefused unless so many bytes are free for scratch files."""
    if size > (free := free_disk()):
        raise full(size, f"{free / 1e9:.1f} GB are free")


def free_disk() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).free


def full(size: int, why: str) -> DataRefused:
    what = f"{size / 1e9:.1f} GB of rows want a scratch file in {tempfile.gettempdir()}, and it has no room ({why})"
    return DataRefused(what, MORE_DISK, size=size)


class MappedRows(TensorRows):
    """Rows that are a tensor (n, *shape) whose memory is a file's."""

    @classmethod
    def of_array(cls, path: Path | str) -> MappedRows:
        """The rows of a `.npy` file, float32 (n, *shape) in C's order; the file is not written to. Raises DataRefused."""
        try:
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            what = f"{path} cannot be read as an .npy file ({type(error).__name__})"
            raise DataRefused(what, "Write the file again with numpy.save", path=str(path)) from error
        if array.dtype != np.float32 or array.ndim < 2 or not array.flags.c_contiguous:
            what = f"{path} holds {array.dtype.name} of shape {array.shape}, not rows of float32 one after the other"
            raise DataRefused(what, "Save numpy.ascontiguousarray(x, 'float32'), x of shape (n, ...)", path=str(path))
        return cls(torch.from_numpy(array))

    def all(self, by: str = "this method") -> Tensor:
        check_whole(len(self), self.shape, by, item=self.dtype.itemsize)
        return self.tensor.clone()


Filled: TypeAlias = MemoryRows | MappedRows


def room(shape: Sequence[int], held: int = HELD, dtype: torch.dtype = torch.float32) -> Filled:
    """Rows whose tensor is to be filled: in memory, or above `held` bytes in a scratch file. Raises DataRefused as `empty`."""
    small = dtype.itemsize * prod(shape) <= held
    return MemoryRows(torch.empty(tuple(shape), dtype=dtype)) if small else MappedRows(empty(shape, dtype))


def poured(rows: Rows, held: int = HELD) -> Rows:
    """The same rows with nothing behind them but numbers: read once, into memory or, above `held` bytes, a scratch file."""
    into, done = room((len(rows), *rows.shape), held, rows.dtype), 0
    for part in in_parts(rows):
        into.tensor[done : done + len(part)] = part
        done += len(part)
    return into
