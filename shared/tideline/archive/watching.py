"""Mapped files, held to their names once more at the end of their use.

A file is held to its name when it is opened, and a page of it that memory had no room for is read from the disk again. So whoever
makes something of mapped files looks at them again before it counts: what was whole before and after was whole between, as a disk
does not change a bit back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol
from weakref import ref

from tideline.archive.errors import PartDamaged, PartMissing
from tideline.core.errors import Cancelled
from tideline.core.run import Digest


class Viewed(Protocol):
    """A store of parts, as far as this module knows it."""

    def view(self, digest: Digest) -> memoryview:
        """As `Parts.view`."""


class Watched:
    """The files that were mapped within a block."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, Digest], tuple[Viewed, tuple[ref[object], ...]]] = {}

    def note(self, parts: Viewed, digest: Digest, view: memoryview) -> None:
        """A file is mapped."""
        _, before = self._seen.get((id(parts), digest), (parts, ()))
        self._seen[id(parts), digest] = parts, (*before, ref(view.obj))

    def add(self, others: Watched) -> None:
        """Those of another block, too."""
        self._seen |= others._seen

    def living(self) -> Watched:
        """Those that somebody still holds."""
        left = Watched()
        left._seen = {key: (parts, held) for key, (parts, held) in self._seen.items() if any(each() is not None for each in held)}
        return left

    def check(self) -> None:
        """Read all of them again, 0.2 ms a megabyte. Raises PartDamaged. One that was dropped since is not there to be read."""
        for (_, digest), (parts, _) in self._seen.items():
            with gone_is_no_matter():
                parts.view(digest)


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
def watching() -> Iterator[Watched]:
    """Note what this thread maps within the block, and read it again at its end. Raises PartDamaged, also in place of another
    error: what a changed file led to tells nothing.
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
        made.check()
    finally:
        WATCHED.reset(token)


def note(parts: Viewed, digest: Digest, view: memoryview) -> memoryview:
    """A file was mapped: whoever watches is told. Gives the view."""
    if (watched := WATCHED.get()) is not None:
        with suppress(TypeError):  # the bytes of a small file: nothing reads them again
            watched.note(parts, digest, view)
    return view
