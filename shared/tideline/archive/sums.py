"""Quick sums beside digests: whether bytes that were held to their name once are still the same.

A digest names bytes; to make one again takes 20 to 65 ms of a core for 100 MB, and their XXH3 takes 11. A sum is known to the
processes of one machine alone. It says nothing to anybody else, and its seed is drawn at their start, so that nobody can choose
other bytes of the same sum. Bytes that changed by chance have the same sum once in 2^64 times.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence

from xxhash import xxh3_64

from tideline.core.run import Digest

LEAST_BYTES = 1 << 20  # of bytes whose sum is made: of fewer, the digest costs little more
KNOWN = 1 << 16  # sums that are remembered: those of a terabyte in parts of 16 MB
FRESH = 1 << 12  # of them, those that another process may still be handed

Handed = tuple[tuple[Digest, int], ...]


class Sums:
    """The sums that this process made or was handed. Any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed = secrets.randbits(64)
        self._known: OrderedDict[Digest, int] = OrderedDict()
        self._fresh: OrderedDict[int, Digest] = OrderedDict()
        self._made = 0

    @property
    def seed(self) -> int:
        return self._seed

    def begin(self) -> xxh3_64:
        """A sum of bytes that come one after the other."""
        return xxh3_64(seed=self._seed)

    def note(self, digest: Digest, made: xxh3_64) -> None:
        """Remember the sum of bytes whose digest was made beside it."""
        with self._lock:
            if made.seed == self._seed:
                self._put(digest, made.intdigest())

    def same(self, digest: Digest, view: memoryview) -> bool:
        """Whether bytes have the sum that those of this name have. False where it is not known."""
        known, seed = self._known.get(digest), self._seed
        return known is not None and xxh3_64(view, seed=seed).intdigest() == known

    def forget(self, digest: Digest) -> None:
        """Have the next look at these bytes make their digest."""
        with self._lock:
            self._known.pop(digest, None)

    def since(self, place: int) -> tuple[Handed, int]:
        """What was noted after a place, for another process, and the place that is next; 0 is the first."""
        with self._lock:
            fresh = [digest for at, digest in self._fresh.items() if at > place] if place < self._made else []
            return tuple((digest, self._known[digest]) for digest in fresh if digest in self._known), self._made

    def adopt(self, seed: int, handed: Sequence[tuple[Digest, int]]) -> None:
        """Take over the sums of the process that started this one, and its seed."""
        with self._lock:
            if seed != self._seed:
                self._seed = seed
                self._known.clear()
                self._fresh.clear()
            for digest, made in handed:
                self._put(digest, made)

    def _put(self, digest: Digest, made: int) -> None:
        if self._known.get(digest) != made:
            self._made += 1
            self._fresh[self._made] = digest
        self._known[digest] = made
        self._known.move_to_end(digest)
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)
        while len(self._fresh) > FRESH:
            self._fresh.popitem(last=False)


SUMS = Sums()  # of this process: a sum is a fact about bytes, whatever store they lie in
