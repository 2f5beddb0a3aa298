"""How the step at hand computes: set around it by whoever runs it, and read where networks are built and optimisers step.

    with computing_at(asked, device) as here: ...

Methods know nothing of it. `arranged` has the networks that `nets.build` and `nets.loaded` give run as it says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch

from tideline.core.asked.computing import Computed, Computing, Deterministic, Precision
from tideline.core.notes import OTHERWISE

DTYPES = {Precision.BFLOAT16: torch.bfloat16, Precision.FLOAT16: torch.float16}
HALVED, NOT_COMPILED = OTHERWISE[:2]
CPU, CUDA = "cpu", "cuda"
CUBLAS, WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"  # without it matrices are multiplied in any order


@dataclass(frozen=True)
class Here:
    """How this place computes. device: a kind, such as cuda. events: what was done otherwise than asked, each once."""

    asked: Computing = field(default_factory=Computing)
    device: str = CPU
    events: list[str] = field(default_factory=list)

    @property
    def precision(self) -> Precision:
        """What was asked for, where the device has it."""
        known = self.asked.precision in DTYPES and torch.amp.is_autocast_available(self.device)
        return self.asked.precision if known else Precision.FLOAT32

    @property
    def channels_last(self) -> bool:
        """Whether images lie channel by channel within a pixel: convolutions of GPUs are faster so, and of CPUs in 16 bits. In
        float32 CPUs gain by it or lose, and it would change last digits.
        """
        return self.device == CUDA or (self.device == CPU and self.precision is not Precision.FLOAT32)

    @property
    def plain(self) -> bool:
        """Whether networks run just as they are."""
        return self.precision is Precision.FLOAT32 and not self.asked.compile and not self.channels_last

    def autocast(self) -> AbstractContextManager[object]:
        """Within it, layers that gain by it multiply in the precision."""
        if self.precision is Precision.FLOAT32:
            return nullcontext()
        return torch.autocast(self.device, DTYPES[self.precision])

    def say(self, event: str) -> None:
        if event not in self.events:
            self.events.append(event)

    @property
    def computed(self) -> Computed:
        """What the site tells of it."""
        asked = self.asked.deterministic
        same = asked is Deterministic.YES or (asked is Deterministic.AUTO and self.device == CPU)
        return Computed(self.device, self.precision, same)


NOWHERE = Here()  # outside of steps
HERE: ContextVar[Here] = ContextVar("HERE", default=NOWHERE)


def here() -> Here:
    """How the step at hand computes; as it always did, outside of one."""
    return HERE.get()


@contextmanager
def computing_at(asked: Computing | None, device: str) -> Iterator[Here]:
    """Compute so within the block. asked: None, as without the section. device: as torch names it, such as cuda:1."""
    now = Here(asked or Computing(), torch.device(device).type)
    before = HERE.set(now)
    try:
        with deterministic() if now.asked.deterministic is Deterministic.YES else nullcontext():
            yield now
    finally:
        HERE.reset(before)


@contextmanager
def deterministic() -> Iterator[None]:
    """Kernels that give equal bytes from equal steps; a layer without one raises."""
    os.environ.setdefault(CUBLAS, WORKSPACE)  # read when a GPU first multiplies
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
