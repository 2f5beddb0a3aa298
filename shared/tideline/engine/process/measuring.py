"""What a step takes of its process: wall clock while it holds an accelerator, and processors' time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tideline.core.errors import FederationError
from tideline.engine.model.access.spending import Spent

CPU = "cpu"
SPENT = "spent"  # in the context of an error that ended a step: what had been spent until then


@contextmanager
def measuring(device: str) -> Iterator[Callable[[], Spent]]:
    """A call that gives what was spent since the beginning. An error that ends the step takes it along.

    The process does nothing else meanwhile: its processors' time is that of all its threads.
    """
    began, computed = time.monotonic(), time.process_time()

    def spent() -> Spent:
        devices = int(device != CPU)
        wall, cpu = time.monotonic() - began, time.process_time() - computed
        return Spent(gpu=wall * devices, cpu=cpu, devices=devices, cores=cores())

    try:
        yield spent
    except FederationError as error:
        found = spent()
        error.context = {**error.context, SPENT: [found.gpu, found.cpu, found.devices, found.cores]}
        raise


def spent_in(error: FederationError) -> Spent | None:
    """What an error says that its step had spent; None where none ran, or where that is not measured."""
    found = error.context.get(SPENT)
    if not isinstance(found, list):
        return None
    gpu, cpu, devices, own = found
    return Spent(gpu=gpu, cpu=cpu, devices=devices, cores=own)


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
