"""How many files a process may have open at once. A mapped part counts as one."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import resource
import sys
from typing import Any


def open_many_files() -> int:
    """Allow this process as many as the system lets it; gives how many. A fold may map every part of every reply at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems name no limit and refuse it all the same; then the old one stays.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return soft


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h
ARENAS = 2  # heaps: one for each of dozens of threads would keep as many times the freed memory
KEPT_BYTES = 32 << 20  # at most so much freed memory stays with a process that passes bytes on
CRUNCHING_BYTES = 128 << 20  # and with one that computes
HEAP_BYTES = 32 << 20  # blocks up to this size come from the heap; larger ones go back to the kernel when they are freed


def retain_freed_memory(kept: int = KEPT_BYTES) -> bool:
    """Tell glibc so; elsewhere there is nothing to tell. A fifth of a round's time with models of 100 MB."""
    mallopt = glibc("mallopt")
    if mallopt is None:
        return False
    wishes = ((M_ARENA_MAX, ARENAS), (M_MMAP_THRESHOLD, HEAP_BYTES), (M_TRIM_THRESHOLD, kept))
    return min(int(mallopt(*wish)) for wish in wishes) == 1


def give_back() -> bool:
    """Hand freed memory to the kernel now; whether there was any. For a process that will do nothing with it for a while."""
    malloc_trim = glibc("malloc_trim")
    return malloc_trim is not None and int(malloc_trim(0)) == 1


def glibc(name: str) -> Any:
    """A function of glibc; None on other systems and with another C library."""
    if sys.platform != "linux":
        return None
    return getattr(library(), name, None)


@functools.cache
def library() -> ctypes.CDLL:
    """What this process is linked with. Opened once: each opening leaves classes that wait for the collector."""
    return ctypes.CDLL(None)
