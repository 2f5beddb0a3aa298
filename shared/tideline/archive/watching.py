"""Mapped files, held to their names once more at the end of their use.

A page of a mapped file that memory had no room for is read from the disk again, so that a look when it is opened says little of
what is read later. Whoever makes something of mapped files holds them to their names at the end, before it counts: what is whole
then was whole all the time, as a disk does not change a bit back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import starmap
from typing import Protocol
from weakref import ref

from tideline.archive.errors import PartDamaged, PartMissing
from tideline.core.errors import Cancelled
from tideline.core.run import Digest


class Viewed(Protocol):
    """A store of parts, as far as this module knows it."""

    def view(self, digest: Digest) -> memoryview:
        """As `Parts.view`."""

    def peek(self, digest: Digest) -> memoryview:
        """As `Parts.peek`."""


Same = Callable[[], bool]
LOOKERS = 2  # files that are read again at once: hashing leaves the interpreter to others


class Watched:
    """The files that were mapped within a block."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, Digest], tuple[Viewed, tuple[ref[object], ...], tuple[Same, ...]]] = {}

    def note(self, parts: Viewed, digest: Digest, view: memoryview, same: Same) -> None:
        """A file is mapped. same: tells whether it is that file which lies there now."""
        _, held, files = self._seen.get((id(parts), digest), (parts, (), ()))
        self._seen[id(parts), digest] = parts, (*held, ref(view.obj)), (*files, same)

    def add(self, others: Watched) -> None:
        """Those of another block, too."""
        self._seen |= others._seen

    def living(self) -> Watched:
        """Those that somebody still holds."""
        left = Watched()
        left._seen = {key: seen for key, seen in self._seen.items() if any(each() is not None for each in seen[1])}
        return left

    def check(self) -> None:
        """Read all of them again, 0.2 ms a megabyte. Raises PartDamaged. One that was dropped since is not there to be read."""
        seen = [(parts, digest, files) for (_, digest), (parts, _, files) in self._seen.items()]
        if len(seen) < 2:
            deque(starmap(read_again, seen), maxlen=0)
            return
        with ThreadPoolExecutor(LOOKERS) as threads:
            for looked in [threads.submit(read_again, *each) for each in seen]:
                looked.result()


def read_again(parts: Viewed, digest: Digest, files: Iterable[Same]) -> None:
    """Hold a part to its name. Raises PartDamaged, also where another file lies in the place of one that nobody has looked at."""
    with gone_is_no_matter():
        parts.view(digest)
        if not all(same() for same in files):
            what = f"Part {digest[:12]} was written again while it was used"
            raise PartDamaged(what, "What was made of it is made once more", digest=digest)


@contextmanager
def gone_is_no_matter() -> Iterator[None]:
    """Passes over a part that is gone, and over none that is damaged."""
    try:
        yield
    except PartDamaged:
        raise
    except PartMissing:
        return


WATCHED: ContextVar[Watched | None] = ContextVar("watched", default=None)


@contextmanager
def watching(at_end: bool = True) -> Iterator[Watched]:
    """Note what this thread maps within the block, and read it again at its end. Raises PartDamaged, also in place of another
    error: what a changed file led to tells nothing.

    at_end: False: in place of an error alone, where whoever uses what came of the block reads the same files once more.
    """
    token = WATCHED.set(made := Watched())
    try:
        yield made
    except Cancelled:
        raise
    except Exception:
        WATCHED.set(None)
        made.check()
        raise
    else:
        WATCHED.set(None)
        if at_end:
            made.check()
    finally:
        WATCHED.reset(token)


def seen(parts: Viewed, digest: Digest) -> memoryview:
    """A part's bytes: as they lie where somebody watches, who reads them again at the end; else held to their name now."""
    return parts.view(digest) if WATCHED.get() is None else parts.peek(digest)


def note(parts: Viewed, digest: Digest, view: memoryview, same: Same = lambda: True) -> memoryview:
    """A file was mapped: whoever watches is told. Gives the view. same: where its bytes are not known yet."""
    if (watched := WATCHED.get()) is not None:
        with suppress(TypeError):  # the bytes of a small file: nothing reads them again
            watched.note(parts, digest, view, same)
    return view
