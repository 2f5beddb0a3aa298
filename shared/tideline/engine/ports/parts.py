"""The journal's knowledge of parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.model.files import Files

MOST_DROPPED = 64  # parts of one collection: their bytes are put aside while their rows are locked


def nothing(digests: Collection[Digest]) -> None:
    """No bytes are to be put aside."""


class PartRecords(Protocol):
    """What is known of the parts in the store: who refers to them, and whose they are."""

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        """Note parts that a client pushed for a run: they may wait for the report that names them."""
        ...

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        """Which of the files are here and this client's own in this run; their collection is put off.

        What only others hold counts as missing: else a client could learn what others sent, and bytes would depend on arrival.
        """
        ...

    def collect(
        self, before: float, drop: Callable[[Collection[Digest]], object] = nothing, most: int = MOST_DROPPED
    ) -> tuple[Digest, ...]:
        """Forget some parts that nothing refers to, at most so many: those that lost their last reference at once, others if
        untouched since `before`. Some more are left unless nothing comes back.

        A part that is pushed or asked for (`held`) after its last reference is written counts as one of the others.
        `drop` is called with those parts while nobody can refer to them, and must be able to bring their bytes back: the
        transaction may fail after it. Then it may be called again, with others, or not again: only what is returned is gone.
        """
        ...

    def adopt(self, found: Mapping[Digest, float]) -> int:
        """Note parts that lie in the store (with the time they were written) and that nobody has noted; how many."""
        ...

    def marker(self, ours: Digest | None = None) -> Digest | None:
        """The part that marks this journal's store of parts: `ours` if it is given and none was known."""
        ...
