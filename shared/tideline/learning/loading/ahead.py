"""Passes over rows: mini-batches to train on and parts in order, read ahead by threads where that takes more than a copy.

What comes is the same for any number of threads, also none: the order is the caller's, and what is drawn for a mini-batch is
drawn from its number in the pass. Of rows in memory each is read when it is asked for, without a thread.
"""

from __future__ import annotations

import collections.abc
import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor

from tideline.core.errors import DataRefused, FederationError
from tideline.core.rows import Rows, part_size
from tideline.core.step import Site
from tideline.learning.loading.workers import Workers, here

SEEDS = 2**62
HELD = 1 << 28  # bytes of rows that wait for the step, if one batch is not more
SPARE = 2  # batches that wait beside those that are being read
MEND = "Look at the file or the dataset behind it, mend or remove the row, and begin again"
Read = Callable[[int, Tensor], Tensor]
Begun = tuple[int, Tensor, "Future[Tensor] | None"]
Batches: TypeAlias = "collections.abc.Generator[tuple[Tensor, Tensor], None, None]"
Parts: TypeAlias = "collections.abc.Generator[Tensor, None, None]"


def moved(x: Tensor, device: str) -> Tensor:
    """A tensor where the step computes. Pinned memory is copied while the step goes on."""
    if device == "cpu" and x.is_cpu:
        return x
    return x.to(device, non_blocking=device.startswith("cuda"))


def drawn(rows: Rows, indices: Iterable[Tensor], rng: Generator, device: str = "cpu") -> Batches:
    """Mini-batches to train on, on the device: (numbers (b,), rows (b, *shape)) for each of `indices`, in their order.

    rng: where rows draw at random, one number is drawn from it, first of all; else none. `indices` are asked ahead of their use,
    so that they draw nothing once the first has come. Raises DataRefused for a row that cannot be read.
    """
    seed = int(torch.randint(SEEDS, (), generator=rng)) if rows.draws else None
    return in_order(rows, indices, device, seed)


def in_order(rows: Rows, indices: Iterable[Tensor], device: str = "cpu", seed: int | None = None) -> Batches:
    """The same of rows as they are, to measure or to score. seed: of what rows draw, each batch by its number; None: nothing."""
    if rows.near:
        for chosen in indices:
            yield chosen, moved(rows.batch(chosen), device)
        return
    with closing(passed(rows, partial(one_batch, rows, seed, pinned(device)), indices)) as batches:
        for chosen, x in batches:
            yield chosen, moved(x, device)


def in_parts(rows: Rows, size: int | None = None) -> Parts:
    """All rows in order, (size, *shape) at a time, as `Rows.parts` gives them; nothing is drawn. Raises DataRefused."""
    if rows.near:
        yield from rows.parts(size)
        return
    size = size or part_size(rows.shape)
    less = min(size, part_size(rows.shape))  # what one thread reads: several share a part of large images
    cuts = [(start, min(start + size, len(rows))) for start in range(0, max(len(rows), 1), size)]
    pieces = [range(at, max(end, at + 1), less) for at, end in cuts]
    indices = (torch.arange(at, min(at + less, end)) for (_, end), starts in zip(cuts, pieces, strict=True) for at in starts)
    with closing(passed(rows, partial(one_batch, rows, None, False), indices)) as read:
        for starts in pieces:
            found = [x for _, x in islice(read, len(starts))]
            yield found[0] if len(found) == 1 else torch.cat(found)


def pinned(device: str) -> bool:
    return device.startswith("cuda") and torch.cuda.is_available()


def one_batch(rows: Rows, seed: int | None, pin: bool, number: int, chosen: Tensor) -> Tensor:
    """The batch of a number in its pass."""
    rng = None if seed is None else Generator().manual_seed(seed + number)
    x = rows.batch(chosen, rng)
    return x.pin_memory() if pin else x


def passed(rows: Rows, read: Read, indices: Iterable[Tensor]) -> Batches:
    """Each of `indices` with what is read for it, ahead where rows are not near."""
    with here() as workers:
        yield from Pass(rows, read, workers).run(indices)


@dataclass(frozen=True)
class Pass:
    """One pass over rows."""

    rows: Rows
    read: Read
    workers: Workers

    def run(self, indices: Iterable[Tensor]) -> Batches:
        waiting: deque[Begun] = deque()
        try:
            for number, chosen in enumerate(indices):
                waiting.append((number, chosen, self.workers.begin(self.read, number, chosen)))
                if len(waiting) >= self.ahead(len(chosen)):
                    yield self.ended(waiting.popleft())
            while waiting:
                yield self.ended(waiting.popleft())
        finally:
            for _, _, later in waiting:
                if later is not None:
                    later.cancel()

    def ahead(self, size: int) -> int:
        """How many batches of a size may wait, or be read, at once."""
        if not self.workers.count:
            return 1
        most = HELD // max(1, size * math.prod(self.rows.shape) * self.rows.dtype.itemsize)
        return max(2, min(self.workers.count + SPARE, most))

    def ended(self, begun: Begun) -> tuple[Tensor, Tensor]:
        """A batch with its numbers, read ahead or now.

        What a thread could not read, the step's own reads again: an object of the site's owner may be bound to the thread that
        made it. Then nothing more is read ahead. Raises DataRefused.
        """
        number, chosen, later = begun
        if later is not None:
            if later.exception() is None:
                return chosen, later.result()
            self.workers.count = 0
        try:
            return chosen, self.read(number, chosen)
        except FederationError:
            raise
        except (Exception, SystemExit) as error:
            raise self.refused(chosen, error) from error

    def refused(self, chosen: Tensor, error: BaseException) -> DataRefused:
        """The refusal of a batch, which names the first of its rows that cannot be read by itself, if one cannot."""
        for row in chosen.tolist():
            with suppress(Exception, SystemExit):
                self.rows.batch(torch.tensor([row]))
                continue
            what = f"Row {row} of the {len(self.rows)} rows that are read here cannot be read: {type(error).__name__}"
            return DataRefused(what, MEND, row=row)
        what = f"{len(chosen)} rows cannot be read together: {type(error).__name__}"
        return DataRefused(what, MEND)


def ticking(rows: Rows, site: Site[Any]) -> collections.abc.Iterator[Tensor]:
    """All parts of rows, with a sign of life at each."""
    done = 0
    for part in in_parts(rows):
        yield part
        done += len(part)
        site.tick(done / max(len(rows), 1))
